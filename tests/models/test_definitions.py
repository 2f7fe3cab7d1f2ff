"""The model of definitions: all of its small cases, and what each rule is needed for.

It runs alone, too:  python tests/models/definitions_model.py --rules
"""

import pytest

from tests.models import definitions_model as model

NOTHING_LEFT_OUT: set[str] = set()
REMOVED, PAUSED, OLDER, TOLD, ENDS, TWICE, _, REMADE, THRICE = model.CASES
STATES = {
    REMOVED: 2_336,
    PAUSED: 3_116,
    OLDER: 32_874,
    TOLD: 2_727,
    ENDS: 7_537,
    TWICE: 11_293,
    REMADE: 11_306,
}
NEEDED = {
    "proved": (REMOVED, "generation 1 starts again"),
    "current": (REMOVED, "generation 1 starts again"),
    "wanted": (OLDER, "it is confirmed that the job is"),
    "absence": (TOLD, "called undeliverable"),
    "committed": (ENDS, "dead end"),
    "gone": (ENDS, "dead end"),
    "journaled": (ENDS, "dead end"),
    "conditional": (ENDS, "dead end"),
    "given": (TWICE, "generation 1 starts again"),
    "after": (TWICE, "generation 1 starts again"),
    "replaced": (ENDS, "one schedule has made two jobs"),
    "births": (TWICE, "one schedule has made two jobs"),
    "mine": (ENDS, "one schedule has made two jobs"),
    "patience": (ENDS, "one schedule has made two jobs"),
}


@pytest.mark.parametrize(("bounds", "states"), list(STATES.items()))
def test_definitions_hold_in_every_interleaving_of_a_small_case(bounds: model.Bounds, states: int) -> None:
    assert model.check(bounds, NOTHING_LEFT_OUT) == states


@pytest.mark.parametrize("rule", model.RULES)
def test_each_rule_of_definitions_is_needed(rule: str) -> None:
    bounds, what = NEEDED[rule]
    with pytest.raises(model.Violation, match=what):
        model.check(bounds, {rule})


@pytest.mark.parametrize(
    ("bounds", "what"), [(REMOVED, "starts again"), (PAUSED, "it is confirmed that the job is \\+, and it is p")]
)
def test_who_acts_on_what_it_has_merely_seen_makes_jobs_again_and_confirms_what_is_not_so(
    bounds: model.Bounds, what: str
) -> None:
    with pytest.raises(model.Violation, match=what):
        model.check(bounds, {"proved", "wanted"})


@pytest.mark.slow
def test_definitions_hold_in_all_cases() -> None:
    assert model.verdict(NOTHING_LEFT_OUT) == "no violation in 140972 states"
