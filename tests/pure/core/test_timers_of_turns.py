"""Timers that ring while a turn runs, which asks for others: what it wished for is merged when it has succeeded."""

from collections.abc import Callable

import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.wire import Kind
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


class Ringing(Job):
    rings: list[str] = []

    def on_start(self, ctx: Context) -> None:
        ctx.cron(CRON)
        ctx.wake_in(90)

    def on_message(self, ctx: Context, message: int) -> None:
        FAILED.append(message)
        if len(FAILED) == 1:
            raise ValueError("not this time")

    def on_timeout(self, ctx: Context) -> None:
        self.rings.append(ctx.event)

    def on_cron(self, ctx: Context) -> None:
        self.rings.append(ctx.event)


FAILED: list[int] = []


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize(("misfire", "fired"), [("skip", 0), ("run_once", 1), ("catch_up", 20)])
async def test_what_comes_due_while_a_job_is_stopped_is_for_its_policy(
    bench: Bench, misfire: str, fired: int, is_paused: bool
) -> None:
    """Paused, or failed: nothing rings into its mailbox meanwhile, and what it has missed is dealt with at once."""
    FAILED.clear()
    opened = await bench.open(JobType("ringing", Ringing, misfire=misfire, retry=Retry(attempts_max=1)))
    await bench.define("a", "ringing")
    await rest(75)  # one full minute, and 45 s of the next
    if is_paused:
        await bench.define("a", "ringing", revision=2, wanted="paused")
    else:
        await bench.publish("a", 1)
    await rest(1200)
    assert [envelope.kind for envelope in opened.state.mail.get("a", ())] == [Kind.MESSAGE] * (not is_paused)
    await bench.define("a", "ringing", revision=3)
    await rest(1)
    rings = (await bench.state_of("a"))["rings"]
    assert rings.count("cron") == 1 + fired
    assert rings.count("timeout") == min(1, fired)
    await rest(60)
    assert (await bench.state_of("a"))["rings"] == [*rings, "cron"]
