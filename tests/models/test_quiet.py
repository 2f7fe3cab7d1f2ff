"""The decision that an application is quiet, in every interleaving of small cases; and what is said meanwhile."""

from typing import Any

import pytest

from tenure.scheduler.quiet import ROUNDS, Sighting, Waiting, is_quiet, what_is_waited_for
from tests.models import quiet_model
from tests.models.quiet_model import Case


@pytest.mark.parametrize(("case", "states"), list(quiet_model.CASES.items()))
def test_what_is_called_quiet_was_quiet(case: Case, states: int) -> None:
    looked_at, decided = quiet_model.check(case)
    assert looked_at == states
    assert decided > 0


@pytest.mark.slow
@pytest.mark.parametrize(("case", "states"), list(quiet_model.SLOW_CASES.items()))
def test_the_same_in_larger_cases(case: Case, states: int) -> None:
    assert quiet_model.check(case)[0] == states


@pytest.mark.parametrize("what", quiet_model.LEFT_OUT)
def test_no_part_of_the_decision_can_be_left_out(what: str) -> None:
    decide, rounds, case = quiet_model.LEFT_OUT[what]
    with pytest.raises(quiet_model.Wrong):
        quiet_model.check(case, decide, rounds)


def seen(partition: int, **fields: Any) -> Sighting:
    return Sighting(**{"partition": partition, "epoch": 1, "node": "n", "swept": True, "print": b"", "jobs": 1,
                       "turns": 0, **fields})  # fmt: skip


def test_an_owner_that_has_not_looked_yet_or_is_new_proves_nothing() -> None:
    calm = [seen(0), seen(1)]
    assert is_quiet([calm] * ROUNDS)
    assert not is_quiet([calm] * (ROUNDS - 1))
    assert not is_quiet([[seen(0), seen(1, swept=False)], calm, calm])
    assert not is_quiet([calm, calm, [seen(0), seen(1, epoch=2)]])


def test_what_is_waited_for_is_said_in_a_line() -> None:
    busy = [
        seen(0, busy={"messages that wait": 2}, examples=[Waiting("order-1", "messages that wait")]),
        seen(1, busy={"messages that wait": 1, "running turns": 1}, examples=[Waiting("b", "running turns")] * 3),
    ]
    text = (
        "3 messages that wait, 1 running turns: order-1 (messages that wait), b (running turns), b (running turns), …"
    )
    assert what_is_waited_for([busy]) == text
    assert what_is_waited_for([]) == ""
    assert what_is_waited_for([[seen(0, swept=False)]]) == "1 partitions that have not looked yet"
    before, after = [seen(0, sent={0: 3})], [seen(0, sent={0: 3}, taken={0: 2})]
    assert what_is_waited_for([before, after]) == "messages on their way between partitions"
    before, after = [seen(0, turns=3)], [seen(0, print=b"x", turns=4)]
    assert what_is_waited_for([before, after]) == "turns that go on: 1 since the last look"
    assert what_is_waited_for([[seen(0)], [seen(0, epoch=2)]]) == "partitions that change hands"
