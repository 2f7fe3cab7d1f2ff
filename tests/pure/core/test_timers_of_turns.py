"""Timers that ring while a turn runs, which asks for others: what it wished for is merged when it has succeeded."""

from collections.abc import Callable

import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType, Retry
from tests.pure.core.bench import Bench, rest

CRON = "* * * * *"
WISHES: dict[str, Callable[[Context], None]] = {
    "nothing": lambda ctx: None,
    "due set": lambda ctx: ctx.wake_in(3600),
    "cron set": lambda ctx: ctx.cron(CRON),
    "another cron set": lambda ctx: ctx.cron("0 0 1 1 *"),
    "cleared": lambda ctx: ctx.cancel_wake(),
    "cleared and set": lambda ctx: set_anew(ctx),
}
BEFORE: dict[str, Callable[[Context], None]] = {
    "due": lambda ctx: ctx.wake_in(40),
    "cron": lambda ctx: ctx.cron(CRON),
    "both": lambda ctx: set_both(ctx),
}


def set_anew(ctx: Context) -> None:
    ctx.cancel_wake()
    ctx.cron(CRON)


def set_both(ctx: Context) -> None:
    ctx.wake_in(40)
    ctx.cron(CRON)


class Armed(Job):
    """Its timers come due while its message's turn runs."""

    before: str
    wish: str
    rings: list[str] = []

    def on_start(self, ctx: Context) -> None:
        BEFORE[self.before](ctx)

    async def on_message(self, ctx: Context, message: int) -> None:
        WISHES[self.wish](ctx)
        await trio.sleep(20)
        if message and ctx.attempt == 1:
            raise ValueError("fails once, behind its wishes")

    def on_timeout(self, ctx: Context) -> None:
        self.rings.append(ctx.turn_id.rpartition("/")[2])


@pytest.mark.parametrize("fails", [0, 1])
@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("before", BEFORE)
async def test_what_comes_due_while_a_turn_runs_rings_once(bench: Bench, before: str, wish: str, fails: int) -> None:
    await bench.open(JobType("armed", Armed, retry=Retry(attempts_max=2, first_delay_s=1.0)))
    await bench.define("a", "armed", before=before, wish=wish)
    await rest(30)  # the full minute is 40 s after the start, and so is what rings once
    await bench.publish("a", fails)
    await rest(90)
    rings = (await bench.state_of("a"))["rings"]
    assert len(set(rings)) == len(rings)
    crons = [ring for ring in rings if ring.startswith("cron")]
    assert len(rings) - len(crons) == (before != "cron")
    if before == "due":
        # What is armed at 30 s rings for the minute that came meanwhile, when its turn has ended.
        assert len(crons) == ((2 - fails) if wish in ("cron set", "cleared and set") else 0)
    else:
        assert len(crons) == (1 if wish in ("another cron set", "cleared") else 2)


class Hourly(Job):
    """Arms its cron again where it goes on."""

    rings: list[str] = []

    def on_start(self, ctx: Context) -> None:
        ctx.cron("0 * * * *")

    def on_resume(self, ctx: Context) -> None:
        ctx.cancel_wake()
        ctx.cron("0 * * * *")

    def on_timeout(self, ctx: Context) -> None:
        self.rings.append(ctx.turn_id)


async def test_what_has_rung_by_one_clock_does_not_ring_again_by_one_that_is_behind(bench: Bench) -> None:
    first = await bench.open(JobType("hourly", Hourly))
    await bench.define("a", "hourly")
    bench.skew_ms = 5000
    await rest(2796)  # the full hour is 2,800 s after the start, and 5 s sooner by this clock
    assert len((await bench.state_of("a"))["rings"]) == 1
    await first.close()
    bench.skew_ms = 0
    await bench.open(JobType("hourly", Hourly))
    await rest(20)
    assert len((await bench.state_of("a"))["rings"]) == 1
    await rest(3600)
    assert len((await bench.state_of("a"))["rings"]) == 2
