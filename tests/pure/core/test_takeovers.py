"""What one owner leaves to the next: timers that are set, events that have rung, retries, steps; all as committed."""

from typing import ClassVar

import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Retry
from tests.pure.core.bench import Bench, Opened, rest


class Worker(Job):
    """Does what its messages say, and keeps what it has done."""

    log: list[str] = []
    begun: ClassVar[list[str]] = []
    """By all nodes, committed or not."""

    async def on_message(self, ctx: Context, message: str) -> None:
        self.begun.append(message)
        self.log.append(message)
        if message == "fails" and len(self.begun) < 3:
            raise ValueError("not yet")
        if message == "wakes":
            ctx.wake_in(30)
        if message == "steps":
            await ctx.once("step", lambda: self.begun.append("step done"))
            self.begun.append("step known")
            await trio.sleep(20)

    async def on_timeout(self, ctx: Context) -> None:
        self.begun.append("rung")
        self.log.append("rung")
        await trio.sleep(20)


class Resumed(Worker):
    def on_resume(self, ctx: Context) -> None:
        self.log.append("resumed")


WORKER = JobType("worker", Worker, retry=Retry(attempts_max=5, first_delay_s=20.0, delay_max_s=20.0))


RESUMED = JobType("resumed", Resumed)


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    Worker.begun.clear()


async def opened(bench: Bench, *messages: str) -> Opened:
    found = await bench.open(WORKER)
    if messages:
        await bench.define("a", "worker")
        await bench.publish("a", *messages)
        await rest(1)
    return found


async def log(bench: Bench) -> list[str]:
    found: list[str] = (await bench.state_of("a"))["log"]
    return found


async def test_a_timer_that_was_set_rings_under_the_next_owner(bench: Bench) -> None:
    first = await opened(bench, "wakes")
    await first.kill()
    await opened(bench)
    await rest(60)
    assert await log(bench) == ["wakes", "rung"]


async def test_what_has_rung_does_not_ring_again_though_its_turn_was_cut_off(bench: Bench) -> None:
    first = await opened(bench, "wakes")
    await rest(35)
    assert Worker.begun == ["wakes", "rung"]
    await first.kill()
    await opened(bench)
    await rest(120)
    assert Worker.begun == ["wakes", "rung", "rung"]
    assert await log(bench) == ["wakes", "rung"]


@pytest.mark.parametrize("by_the_next", [True, False])
async def test_what_has_failed_is_tried_again_and_leaves_nothing_in_the_state(bench: Bench, by_the_next: bool) -> None:
    first = await opened(bench, "fails")
    await rest(25)
    assert len(Worker.begun) == 2
    if by_the_next:
        await first.kill()
        await opened(bench)
    await rest(25)
    assert await log(bench) == ["fails"]
    assert len(Worker.begun) == 3


async def test_a_step_is_done_before_anybody_goes_on_with_it(bench: Bench) -> None:
    """Else a turn could act upon what the next owner would do differently."""
    await bench.open(WORKER)
    await bench.define("a", "worker")
    await bench.publish("a", "")
    await rest(1)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.JOURNAL, times=10_000)
    await bench.publish("a", "steps")
    await rest(10)
    assert Worker.begun == ["", "steps", "step done"]
    bench.faults.end()
    await rest(10)
    assert Worker.begun == ["", "steps", "step done", "step known"]


async def test_a_step_that_was_done_is_known_to_the_next_owner_also_behind_another_event(bench: Bench) -> None:
    """That the job was resumed comes before the turn that was cut off."""
    first = await bench.open(RESUMED)
    await bench.define("a", "resumed")
    await bench.publish("a", "steps", "")
    await rest(5)
    await first.kill()
    second = await bench.open(RESUMED)
    await rest(60)
    assert Worker.begun == ["steps", "step done", "step known", "steps", "step known", ""]
    assert await log(bench) == ["resumed", "steps", ""]
    assert second.state.steps == {}
