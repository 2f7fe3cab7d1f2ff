"""Durable steps: what `ctx.once` gave to a turn, it gives again, however often the turn has to run."""

from collections import defaultdict
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.stage import current_world
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Steps"]


class Outside:
    """Where steps have their effect: it gives out numbers, and remembers who was given which."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def draw(self) -> int:
        """A number that nobody had before."""
        self.count += 1
        return self.count


class Walker(Job):
    """Two steps for each message."""

    seen: dict[str, list[int]] = {}
    drawn: list[tuple[int, int]] = []

    async def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        outside: Outside = current_world().outside(Outside)
        first = await ctx.once("first", outside.draw)
        outside.shown[ctx.turn_id, "first"].add(first)
        await trio.sleep(0.2)
        second = await ctx.once("second", outside.draw)
        outside.shown[ctx.turn_id, "second"].add(second)
        self.seen.setdefault(message[0], []).append(message[1])
        self.drawn.append((first, second))


class Steps(Workload):
    """Turns with steps, interrupted."""

    types: ClassVar = (JobType("walker", Walker),)

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"walker{n}" for n in range(3)]
        for id in self.jobs:
            await client.defining.schedule("walker", id, {})

    def drives(self) -> list[Drive]:
        return [self._publish]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("sender")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(2)]
            outcome = await self.world.attempt(2, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.3, 1.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        outside: Outside = self.world.outside(Outside)
        for (turn, name), numbers in outside.shown.items():
            if len(numbers) > 1:
                found.wrong.append(f"step {name} of turn {turn} had different results: {sorted(numbers)}")
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
        return found
