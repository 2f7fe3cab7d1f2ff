"""A failed turn is tried again after the delay that was meant, whatever wall clocks do meanwhile."""

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType, Retry
from tests.pure.core.bench import Bench, rest

DELAY_S = 5.0
THREE_MINUTES_MS = 180_000


class Clumsy(Job):
    done_s: float = 0.0

    def on_message(self, ctx: Context, message: int) -> None:
        if ctx.attempt < 2:
            raise ValueError("not this time")
        self.done_s = trio.current_time()


CLUMSY = JobType("clumsy", Clumsy, retry=Retry(attempts_max=4, first_delay_s=DELAY_S, delay_max_s=DELAY_S))


async def failed_once(bench: Bench) -> float:
    """When its first turn failed."""
    await bench.define("a", "clumsy")
    await bench.publish("a", 1)
    await trio.sleep(1.0)
    assert (await bench.state_of("a"))["done_s"] == 0.0
    return trio.current_time() - 1.0


@pytest.mark.parametrize("jump_ms", [-THREE_MINUTES_MS, THREE_MINUTES_MS])
async def test_a_clock_that_jumps_neither_delays_a_retry_nor_hastens_it(jump_ms: int, bench: Bench) -> None:
    await bench.open(CLUMSY)
    failed_s = await failed_once(bench)
    bench.skew_ms += jump_ms
    await trio.sleep(2 * DELAY_S)
    assert DELAY_S * 0.4 < (await bench.state_of("a"))["done_s"] - failed_s < DELAY_S * 1.6


async def test_a_successor_whose_clock_is_behind_does_not_wait_for_longer_than_was_meant(bench: Bench) -> None:
    first = await bench.open(CLUMSY)
    await failed_once(bench)
    await first.kill()
    bench.skew_ms -= THREE_MINUTES_MS
    await bench.open(CLUMSY)
    opened_s = trio.current_time()
    await trio.sleep(2 * DELAY_S)
    assert 0 < (await bench.state_of("a"))["done_s"] - opened_s < DELAY_S * 1.6


async def test_a_successor_does_not_wait_anew(bench: Bench) -> None:
    first = await bench.open(CLUMSY)
    await failed_once(bench)
    await first.kill()
    await trio.sleep(2 * DELAY_S)
    await bench.open(CLUMSY)
    opened_s = trio.current_time()
    await trio.sleep(DELAY_S)
    assert 0 < (await bench.state_of("a"))["done_s"] - opened_s < 1.0


# -- of paused jobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("skip", [False, True])
async def test_a_job_that_is_paused_stays_so_and_tries_when_it_is_resumed(bench: Bench, skip: bool) -> None:
    await bench.open(CLUMSY)
    await failed_once(bench)
    await bench.define("a", "clumsy", revision=2, wanted="paused")
    await rest(1)
    assert (await bench.command("retry", "a", skip=skip)).ok
    await rest(100)
    found = msgspec.msgpack.decode((await bench.command("describe", "a")).body)
    assert (found["status"], found["failure"], found["waiting"]) == ("paused", None, 0 if skip else 1)
    assert (await bench.state_of("a"))["done_s"] == 0.0
    await bench.publish("a", 2)
    await bench.define("a", "clumsy", revision=3, wanted="running")
    await rest(3 * DELAY_S)
    assert (await bench.state_of("a"))["done_s"] > 100
