"""The protocol's two models: a fast slice of each, and (marked slow) all of it.

All of it takes 190 s:         pytest -m slow tests/models
They run alone, too:           python tests/models/journal_model.py
                               python tests/models/lanes_model.py --rules
"""

import pytest

from tests.models import journal_model, lanes_model

NOTHING_LEFT_OUT: set[str] = set()
FAST_JOURNAL = journal_model.SMALL[0]
SENDING = lanes_model.Bounds(0, 2, 2, 1, 3, 1, 1, 0, 0, 0)     # a partition sends, through three handoffs
FAST_LANES = [*lanes_model.CASES[:2], SENDING]

# Which case shows that a rule is needed, within about a second.
QUICK_JOURNAL_RULES = ["writeonce", "fences", "claim", "identity", "confirm"]
QUICK_LANES_RULES = {
    lanes_model.CASES[0]: ["commitfirst", "sweep", "gapless", "sameslot", "window"],
    lanes_model.CASES[1]: ["carried", "fifo"],
    lanes_model.CASES[2]: ["chain", "closes", "ids"],
    lanes_model.CASES[3]: ["watermark", "ackclock", "proof"],
    SENDING: ["sendafter", "outbox", "acked", "verbatim"],
}
LANES_RULES = [(rule, bounds) for bounds, rules in QUICK_LANES_RULES.items() for rule in rules]


def test_the_journal_holds_in_every_interleaving_of_a_small_case():
    assert journal_model.check(FAST_JOURNAL, NOTHING_LEFT_OUT, alone=True) == 37118


@pytest.mark.parametrize("bounds", journal_model.DEEP)
def test_the_journal_holds_in_random_walks(bounds):
    assert sum(journal_model.walk(bounds, NOTHING_LEFT_OUT, seed) for seed in range(50)) > 1000


@pytest.mark.parametrize("rule", QUICK_JOURNAL_RULES)
def test_the_journal_needs(rule):
    with pytest.raises(journal_model.Violation):
        journal_model.check(FAST_JOURNAL, {rule}, alone=True)


@pytest.mark.parametrize(("bounds", "states"), list(zip(FAST_LANES, [11926, 20388, 21021], strict=True)))
def test_lanes_hold_in_every_interleaving_of_a_small_case(bounds, states):
    assert lanes_model.check(bounds, NOTHING_LEFT_OUT) == states


@pytest.mark.parametrize(("rule", "bounds"), LANES_RULES)
def test_lanes_need(rule, bounds):
    with pytest.raises(lanes_model.Violation):
        lanes_model.check(bounds, {rule})


def test_no_rule_is_left_untested():
    assert {*QUICK_JOURNAL_RULES, "predecessor"} == journal_model.RULES.keys()
    assert {rule for rule, _ in LANES_RULES} == lanes_model.RULES.keys()


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
    assert sum(lanes_model.check(bounds, NOTHING_LEFT_OUT) for bounds in lanes_model.CASES) == 765_035
