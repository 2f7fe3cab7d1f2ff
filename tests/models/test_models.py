"""The protocol's three models: a fast slice of each, and (marked slow) all of it.

All of it takes some minutes:  pytest -m slow tests/models
They run alone, too:           python tests/models/journal_model.py
                               python tests/models/lanes_model.py --rules
                               python tests/models/snapshot_model.py --rules
"""

import pytest

from tests.models import journal_model, lanes_model, snapshot_model

NOTHING_LEFT_OUT: set[str] = set()
TINY_JOURNALS = {                        # bounds -> how many states there are
    journal_model.Bounds(2, 1, 1, 2, 0, 1): 21_948,      # images beside commits, nothing unknown
    journal_model.Bounds(2, 1, 0, 2, 1, 1): 73_705,       # unknown outcomes and a death, no images
    journal_model.Bounds(2, 0, 1, 2, 1, 1): 73_499,       # and of images alone
}
LANE = lanes_model.Bounds(2, 0, 1, 1, 0, 1, 1, 0, 0, 0)         # one lane, one receiver
SLOW = lanes_model.Bounds(2, 0, 1, 2, 0, 1, 1, 0, 1, 0)         # turns that outlast records, and a handoff
LEFT = lanes_model.Bounds(2, 0, 2, 1, 0, 1, 2, 0, 0, 0)         # a client leaves its lane
LINKS = lanes_model.Bounds(2, 0, 2, 1, 0, 2, 3, 0, 0, 0)        # it leaves two, and the second stored nothing
FORGOTTEN = lanes_model.Bounds(1, 0, 2, 1, 0, 1, 2, 2, 0, 0)    # and the one that it left is forgotten
BEHIND = lanes_model.Bounds(0, 0, 1, 1, 0, 1, 1, 2, 0, 0, 1)    # another client's clock is far behind
AHEAD = lanes_model.Bounds(0, 0, 1, 1, 0, 1, 1, 2, 0, 0, 2)     # or this one's is far ahead, and the other lives on
IN_ONE = lanes_model.Bounds(2, 0, 2, 2, 0, 0, 2, 2, 0, 1)       # a lane forgotten, the next begun: in one record
UNSURE = lanes_model.Bounds(0, 1, 1, 1, 2, 1, 1, 0, 0, 0)       # a partition sends, through two handoffs
SENDING = lanes_model.Bounds(0, 2, 2, 1, 3, 0, 1, 0, 0, 0)      # twice, through three
FAST_LANES = {                           # bounds -> how many states there are
    lanes_model.CASES[0]: 11_926,
    SLOW: 3_478,
    LINKS: 6_958,
    lanes_model.Bounds(2, 0, 2, 1, 0, 1, 2, 2, 0, 0): 18_494,
    lanes_model.Bounds(0, 0, 1, 2, 0, 1, 1, 2, 0, 0, 1): 15_212,
    AHEAD: 21_209,
    SENDING: 4_707,
    IN_ONE: 38_961,
}

# Which case shows that a rule is needed, in a moment.
BENEATH_SEED = 1099
OTHER_JOURNAL_RULES = {*journal_model.ORDERS, "predecessor", "beneath"}
QUICK_JOURNAL_RULES = [rule for rule in journal_model.RULES if rule not in OTHER_JOURNAL_RULES]
QUICK_LANES_RULES = {
    LANE: ["commitfirst", "sweep", "sameslot", "window"],
    SLOW: ["carried", "fifo"],
    LEFT: ["gapless", "chain", "closes", "ids"],
    LINKS: ["link"],
    FORGOTTEN: ["watermark", "proof"],
    BEHIND: ["ackclock", "announced", "exact", "patience", "heard"],
    AHEAD: ["ackclock", "announced", "exact", "patience", "heard"],
    IN_ONE: ["forgetsfirst"],
    UNSURE: ["sendafter", "acked"],
    SENDING: ["outbox", "verbatim"],
}
LANES_RULES = [(rule, bounds) for bounds, rules in QUICK_LANES_RULES.items() for rule in rules]


@pytest.mark.parametrize(("bounds", "states"), list(TINY_JOURNALS.items()))
def test_the_journal_holds_in_every_interleaving_of_a_tiny_case(bounds, states):
    assert journal_model.check(bounds, NOTHING_LEFT_OUT, alone=True) == states


@pytest.mark.parametrize("bounds", journal_model.DEEP)
def test_the_journal_holds_in_random_walks(bounds):
    assert sum(journal_model.walk(bounds, NOTHING_LEFT_OUT, seed) for seed in range(8)) > 500


@pytest.mark.parametrize("rule", QUICK_JOURNAL_RULES)
def test_the_journal_needs(rule):
    with pytest.raises(journal_model.Violation):
        journal_model.check(journal_model.SMALL[0], {rule}, alone=True)


@pytest.mark.parametrize("rule", journal_model.ORDERS)
def test_the_journal_needs_in_one_order_of_steps(rule):
    bounds, order = journal_model.ORDERS[rule]
    assert journal_model.reach(bounds, NOTHING_LEFT_OUT, order)
    with pytest.raises(journal_model.Violation):
        journal_model.reach(bounds, {rule}, order)


@pytest.mark.parametrize(("bounds", "states"), list(FAST_LANES.items()))
def test_lanes_hold_in_every_interleaving_of_a_small_case(bounds, states):
    assert lanes_model.check(bounds, NOTHING_LEFT_OUT) == states


@pytest.mark.parametrize(("rule", "bounds"), LANES_RULES)
def test_lanes_need(rule, bounds):
    with pytest.raises(lanes_model.Violation):
        lanes_model.check(bounds, {rule})


def test_no_rule_is_left_untested():
    assert journal_model.RULES.keys() > OTHER_JOURNAL_RULES
    assert {rule for rule, _ in LANES_RULES} == lanes_model.RULES.keys()


def test_the_journal_needs_what_was_passed_over_to_be_confirmed_too():
    with pytest.raises(journal_model.Violation):
        journal_model.walk(journal_model.DEEP[-1], {"beneath"}, seed=BENEATH_SEED)


@pytest.mark.slow
def test_the_journal_needs_predecessors():
    with pytest.raises(journal_model.Violation):
        journal_model.check(journal_model.LARGER, {"predecessor"})


@pytest.mark.slow
@pytest.mark.parametrize("bounds", journal_model.SMALL)
def test_the_journal_holds_in_every_interleaving(bounds):
    assert journal_model.check(bounds, NOTHING_LEFT_OUT, alone=True) > 30_000


@pytest.mark.slow
@pytest.mark.parametrize("bounds", journal_model.DEEP)
def test_the_journal_holds_in_many_random_walks(bounds):
    assert sum(journal_model.walk(bounds, NOTHING_LEFT_OUT, seed) for seed in range(4000)) > 100_000


@pytest.mark.slow
def test_lanes_hold_in_every_interleaving():
    assert sum(lanes_model.check(bounds, NOTHING_LEFT_OUT) for bounds in lanes_model.CASES) == 2_010_476


# Which case shows that a rule of snapshots is needed, and that all of them together hold.
SENT, TOLD, LOST, LEFT_OVER, _ = snapshot_model.CASES
SNAPSHOTS = {SENT: 41_142, TOLD: 22_457, LOST: 37_646, LEFT_OVER: 31_440}
SNAPSHOT_RULES = {
    SENT: ["marked", "first", "stragglers", "unmarked", "until", "known", "last", "base"],
    TOLD: ["clients", "scan", "waiting"],
    LOST: ["gone", "number"],
    LEFT_OVER: ["ours"],
}


@pytest.mark.parametrize(("bounds", "states"), list(SNAPSHOTS.items()))
def test_snapshots_hold_in_every_interleaving_of_a_small_case(bounds, states):
    assert snapshot_model.check(bounds, NOTHING_LEFT_OUT) == states


@pytest.mark.parametrize(("bounds", "rule"), [(b, rule) for b, rules in SNAPSHOT_RULES.items() for rule in rules])
def test_each_rule_of_snapshots_is_needed(bounds, rule):
    with pytest.raises(snapshot_model.Violation):
        snapshot_model.check(bounds, {rule})


def test_no_rule_of_snapshots_is_left_out_here():
    assert sorted(snapshot_model.RULES) == sorted(rule for rules in SNAPSHOT_RULES.values() for rule in rules)


@pytest.mark.slow
def test_snapshots_hold_in_all_cases():
    assert snapshot_model.verdict(NOTHING_LEFT_OUT).startswith("no violation")
