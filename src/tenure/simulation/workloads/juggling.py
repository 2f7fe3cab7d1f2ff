"""Juggling: handlers that wait, and set timers meanwhile; and timers that ring as such a turn is under way."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.simulation.histories import Findings, judge_increasing
from tenure.simulation.stage import current_world
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.timing import due_ms

__all__ = ["Juggling", "judge_rings"]

LONG_AGO_MS = 1_600_000_000_000
LATE_MS = 3000
TRIES = 2


class Juggler(Job):
    """Does with its timers what it is told, and takes its time."""

    rings: list[tuple[str, int]] = []
    """(timeout or cron, the time that was due)"""
    turns: list[str] = []
    asked: list[int] = []
    """The times that it asked to be woken at; 0 for asking not to be."""

    def on_start(self, ctx: Any) -> None:
        ctx.cron("* * * * *")

    def on_timeout(self, ctx: Any) -> None:
        self.rings.append((ctx.event, due_ms(ctx)))
        self.turns.append(ctx.turn_id)

    async def on_message(self, ctx: Any, message: tuple[str, float, float]) -> None:
        await trio.sleep(message[2] / 2)
        self.act(ctx, message)
        await trio.sleep(message[2])

    def act(self, ctx: Any, message: tuple[str, float, float]) -> None:
        """One message's wish."""
        what, delay_s, _ = message
        self.turns.append(ctx.turn_id)
        if what == "wake":
            self.asked.append(round(ctx.now.timestamp() * 1000) + round(delay_s * 1000))
            ctx.wake_in(delay_s)
        elif what == "cron":
            ctx.cron("* * * * *")
        elif what == "past":
            self.asked.append(LONG_AGO_MS)
            ctx.wake_at(datetime.fromtimestamp(LONG_AGO_MS / 1000, UTC))
        elif what == "cancel":
            self.asked.append(0)
            ctx.cancel_wake()
            ctx.cron("* * * * *")


class Restarter(Juggler):
    """Sets its cron again wherever it wakes up."""

    def on_resume(self, ctx: Any) -> None:
        ctx.cron("* * * * *")


class Mule(Juggler):
    """Works in a thread."""

    def on_message(self, ctx: Any, message: tuple[str, float, float]) -> None:  # type: ignore[override]
        self.act(ctx, message)


class Tries:
    """Outside: how often each message's turn was begun; those of a job's timers count together."""

    def __init__(self) -> None:
        self.begun: Counter[tuple[str, float]] = Counter()


class Donkey(Mule):
    """Works in a thread, and may not take long; to wait for a thread is no work."""

    def on_message(self, ctx: Any, message: tuple[str, float, float]) -> None:  # type: ignore[override]
        current_world().outside(Tries).begun[ctx.id, message[1]] += 1
        self.act(ctx, message)

    def on_timeout(self, ctx: Any) -> None:
        current_world().outside(Tries).begun[ctx.id, 0.0] += 1
        super().on_timeout(ctx)


def judge_rings(id: str, rings: list[tuple[str, int]], turns: list[str], asked: list[int], until_ms: int) -> Findings:
    """A timer rings once for each time that it was set for, a cron once for each minute, and no two turns have one
    name; the last wish counts."""
    found = judge_increasing(id, "the minute it rang for", (due for event, due in rings if event == "cron"))
    timeouts = Counter(due for event, due in rings if event == "timeout")
    for due, times in timeouts.items():
        if times > asked.count(due):
            found.wrong.append(f"{id} was set {asked.count(due)} times for {due}, and woke {times} times for it")
    if twice := [name for name, times in Counter(turns).items() if times > 1]:
        found.wrong.append(f"{id}: two turns are called {twice[:3]}")
    if asked and asked[-1] and timeouts[asked[-1]] == 0 and asked[-1] + LATE_MS < until_ms:
        found.waiting.append(f"{id} was to be woken at {asked[-1]}, and was not by {until_ms}")
    return found


class Juggling(Workload):
    """Jobs that are told to set, replace and cancel timers, at moments when they may ring."""

    types: ClassVar = (
        JobType("juggler", Juggler),
        JobType("restarter", Restarter),
        JobType("mule", Mule, blocking=True),
        JobType("donkey", Donkey, blocking=True, timeout_s=2.2, retry=Retry(attempts_max=TRIES, first_delay_s=0.1)),
    )
    settings: ClassVar = {"blocking_threads_max": 1}

    async def prepare(self, client: GridClient) -> None:
        self.told = 0
        self.jobs = {f"{type.name}{n}": type.name for type in self.types for n in range(4 if type.timeout_s else 2)}
        for id, type in self.jobs.items():
            await client.defining.schedule(type, id, {})

    def drives(self) -> list[Drive]:
        return [self._tell] * 2

    async def _tell(self, client: GridClient) -> None:
        while self.world.working:
            job = self.random.choice(list(self.jobs))
            what = self.random.choice(("wake", "wake", "wake", "cron", "cron", "past", "cancel"))
            self.told += 1  # no two messages are the same
            delay_s = round(self.random.uniform(0.2, 1.5), 2) + self.told * 1e-6
            message = (what, delay_s, round(self.random.choice((0.0, 0.4, 1.2)), 1))
            await self.world.attempt(1, lambda job=job, message=message: client.publish(job, message))  # type: ignore[misc]
            await self.pause(0.1, 0.6)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        until_ms = self.world.slowest_clock_ms()
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_rings(id, job.rings, job.turns, job.asked, until_ms))
        for id in (id for id, type in self.jobs.items() if type == "donkey"):
            await self._look_after(client, id, found)
        return found

    async def _look_after(self, client: GridClient, id: str, found: Findings) -> None:
        """One may fail for being slow, where its node slept; not for waiting."""
        begun = self.world.outside(Tries).begun
        try:
            about = await client.directory.describe(id, deadline_s=5.0)
            if about["status"] == "failed":
                message = about["first_waiting"]["message"]
                times = begun[id, message[1] if message else 0.0]
                found.waiting.append(f"{id} has failed: {about['error']}")
                if times < TRIES:
                    found.wrong.append(f"{id} failed in a turn that was begun {times} times: {about['error']}")
                await client.directory.retry(id, deadline_s=5.0)
        except NotDone as error:
            found.waiting.append(str(error))
