"""Timers and crons: fired once for each due time, whoever runs the job and whatever the clocks say."""

import re
from itertools import pairwise
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings, judge_increasing
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Timing", "due_ms", "judge_crons", "judge_fires"]

FIRES = 12
MINUTE_MS = 60_000


def due_ms(ctx: Any) -> int:
    """The time that rang, by the name of its turn."""
    found = re.search(r"@(\d+)", ctx.turn_id)
    assert found is not None, ctx.turn_id
    return int(found[1])


class Alarm(Job):
    """Wakes again and again."""

    period_s: float
    fires: list[int] = []
    """The times that were due."""
    set_for: list[int] = []
    early: list[int] = []

    def on_start(self, ctx: Any) -> None:
        self._set(ctx)

    def on_timeout(self, ctx: Any) -> None:
        due = due_ms(ctx)
        self.fires.append(due)
        if round(ctx.now.timestamp() * 1000) < due:
            self.early.append(due)
        if len(self.fires) < FIRES:
            self._set(ctx)

    def _set(self, ctx: Any) -> None:
        self.set_for.append(round(ctx.now.timestamp() * 1000) + round(self.period_s * 1000))
        ctx.wake_in(self.period_s)


class Bell(Job):
    """Rings at every full minute of the node's clock."""

    rings: list[int] = []
    since: int = 0

    def on_start(self, ctx: Any) -> None:
        self.since = round(ctx.now.timestamp() * 1000)
        ctx.cron("* * * * *")

    def on_timeout(self, ctx: Any) -> None:
        self.rings.append(due_ms(ctx))


def judge_fires(id: str, fires: list[int], set_for: list[int], early: list[int], until_ms: int) -> Findings:
    """Each setting fires once, and never before it is due; those that everybody's clock has passed, all."""
    found = Findings()
    if fires != set_for[: len(fires)] or len(set_for) > len(fires) + 1:
        found.wrong.append(f"{id} was set for {set_for} and fired for {fires}")
    if early:
        found.wrong.append(f"{id} fired before it was due: {early}")
    if len(fires) < len(set_for) and set_for[-1] + 3000 < until_ms:
        found.waiting.append(f"{id} was due at {set_for[-1]}, and has not fired by {until_ms}")
    return found


def judge_crons(id: str, rings: list[int], since_ms: int, until_ms: int, *, catches_up: bool) -> Findings:
    """Full minutes only, each at most once, in order; all of them under `catch_up`."""
    found = judge_increasing(id, "the time it rang for", rings)
    if odd := [ring for ring in rings if ring % MINUTE_MS or ring <= since_ms]:
        found.wrong.append(f"{id} rang for what is no full minute after its start: {odd}")
    if catches_up and any(b - a != MINUTE_MS for a, b in pairwise(rings)):
        found.wrong.append(f"{id} left out minutes, and should have caught up: {rings}")
    if catches_up and (rings[-1] if rings else since_ms) + 2 * MINUTE_MS < until_ms:
        found.waiting.append(f"{id} has not caught up yet: {rings[-1:]} at {until_ms}")
    return found


class Timing(Workload):
    """Alarms with short periods, bells under each misfire policy."""

    types: ClassVar = (
        JobType("alarm", Alarm),
        JobType("bell-once", Bell),
        JobType("bell-skip", Bell, misfire="skip"),
        JobType("bell-all", Bell, misfire="catch_up"),
    )

    async def prepare(self, client: GridClient) -> None:
        self.alarms = [f"alarm{n}" for n in range(4)]
        for id in self.alarms:
            await client.defining.schedule("alarm", id, {"period_s": self.random.choice((0.3, 0.7, 1.3))})
        self.bells = [f"bell-{policy}" for policy in ("once", "skip", "all")]
        for id in self.bells:
            await client.defining.schedule(id, id, {})

    def drives(self) -> list[Drive]:
        return []

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        until_ms = self.world.slowest_clock_ms()
        read = await states(client, self.alarms + self.bells, found)
        for id, job in read.items():
            if id in self.alarms:
                found.add(judge_fires(id, job.fires, job.set_for, job.early, until_ms))
            else:
                found.add(judge_crons(id, job.rings, job.since, until_ms, catches_up=id == "bell-all"))
        return found
