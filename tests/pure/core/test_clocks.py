"""One node's clock that is ahead of all others forgets nothing that was to be kept."""

import pytest

from tenure.scheduler.clocks import APART_MS, Clocks
from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType
from tests.pure.core.bench import Bench, Opened, rest

YEAR_MS = 365 * 86_400_000
NOW_MS = 2_000_000_000_000


@pytest.mark.parametrize(
    ("others_ms", "ahead_ms"),
    [
        ([], 0),
        ([NOW_MS - APART_MS], 0),
        ([NOW_MS - 2 * APART_MS], 2 * APART_MS),
        ([NOW_MS + YEAR_MS], 0),
        ([NOW_MS - YEAR_MS, NOW_MS - 1000], 0),
        ([NOW_MS - YEAR_MS, NOW_MS - YEAR_MS + 1000], YEAR_MS - 1000),
        ([NOW_MS - YEAR_MS, NOW_MS - YEAR_MS + 1000, NOW_MS - YEAR_MS + 2000], YEAR_MS - 1000),
        ([NOW_MS - YEAR_MS, NOW_MS + YEAR_MS], 0),
    ],
)
def test_it_goes_by_most_clocks_or_by_the_one_that_is_behind(others_ms: list[int], ahead_ms: int) -> None:
    clocks = Clocks(lambda: NOW_MS)
    clocks.compare(others_ms)
    assert clocks.ahead_ms == ahead_ms
    assert clocks.past_ms() == NOW_MS - ahead_ms


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)


COUNTER = JobType("counter", Counter, remember_s=60)


async def a_letter_and_an_id(bench: Bench) -> Opened:
    opened = await bench.open(COUNTER)
    await bench.define("a", "counter")
    await bench.publish("nobody", 1)
    await bench.publish("a", 1, id="x")
    await rest(3)
    assert (len(opened.state.dead), opened.state.remembered_count) == (1, 1)
    return opened


async def test_a_new_owner_whose_clock_is_a_year_ahead_keeps_letters_and_ids(bench: Bench) -> None:
    opened = await a_letter_and_an_id(bench)
    await opened.kill()
    bench.skew_ms = YEAR_MS
    again = await bench.open(COUNTER)
    again.tenure.host.clocks.compare([bench.now_ms() - YEAR_MS])
    await rest(30)
    await again.tenure.remembering.expire()
    await bench.publish("a", 1, id="x")
    assert (await bench.state_of("a"))["seen"] == [1]
    assert (len(again.state.dead), again.state.remembered_count) == (1, 1)
    await rest(30)
    await again.tenure.remembering.expire()
    assert (len(again.state.dead), again.state.remembered_count) == (1, 0), "this one's time is over"


async def test_a_clock_that_leaps_is_compared_with_others_before_anything_expires(bench: Bench) -> None:
    opened = await a_letter_and_an_id(bench)
    clocks, sweeps = opened.tenure.host.clocks, opened.tenure.dead_letters
    sweeps.sweep()
    bench.skew_ms = YEAR_MS
    sweeps.sweep()
    clocks.compare([bench.now_ms() - YEAR_MS])
    sweeps.sweep()
    await rest(1)
    assert len(opened.state.dead) == 1


async def test_a_letter_of_a_clock_that_was_ahead_keeps_no_others(bench: Bench) -> None:
    bench.skew_ms = YEAR_MS
    opened = await bench.open(COUNTER, dead_letters_keep_s=10)
    await bench.publish("nobody", 1)
    await rest(1)
    bench.skew_ms = 0
    await bench.publish("nobody", 2)
    await rest(60)
    assert [letter.at_ms > bench.now_ms() for letter in opened.state.dead.values()] == [True]
