"""Time that callers give, and time that has gone by."""

import math

import pytest
import trio

from tenure.scheduler.deadline import checked_limit, deadline
from tenure.scheduler.elapsed import Elapsed
from tenure.scheduler.errors import Mistake, NotDone


async def test_what_takes_longer_is_not_known_to_be_done() -> None:
    with pytest.raises(NotDone, match=r"lifting it was not known to be done within 2\.0 s; it may still happen"):
        with deadline(2.0, "lifting it"):
            await trio.sleep(3)
    assert trio.current_time() == pytest.approx(2, abs=0.01)
    with deadline(2.0, "lifting it"):
        await trio.sleep(1)


@pytest.mark.parametrize("limit_s", [-1, -0.001, math.nan])
def test_what_is_no_time_to_wait_is_refused(limit_s: float) -> None:
    with pytest.raises(Mistake, match="from 0 on"):
        checked_limit(limit_s)


@pytest.mark.parametrize("limit_s", [0, 0.5, math.inf])
def test_any_other_is_taken(limit_s: float) -> None:
    assert checked_limit(limit_s) == limit_s


async def test_time_that_a_machine_slept_counts_and_small_leaps_of_its_clock_do_not() -> None:
    wall_ms = 1_700_000_000_000
    elapsed = Elapsed(lambda: wall_ms)
    began_s = elapsed.now_s()
    assert began_s == trio.current_time()
    for leap_ms, counts_s in ((0, 0), (900, 0), (3_600_000, 3600), (-3_600_000, 0), (500, 0), (1500, 1.5), (5000, 5)):
        before_s = elapsed.now_s()
        await trio.sleep(2)
        wall_ms += 2000 + leap_ms
        assert elapsed.now_s() - before_s == pytest.approx(2 + counts_s, abs=0.01)
    assert elapsed.now_s() - began_s == pytest.approx(14 + 3606.5, abs=0.01)
