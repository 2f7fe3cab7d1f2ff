"""Slow turns: handlers that take seconds, so that messages wait in mailboxes and are carried from record to record."""

from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Slow"]


class Sloth(Job):
    """Thinks before it counts."""

    seen: dict[str, list[int]] = {}

    async def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        await trio.sleep((message[1] % 4) * 0.15)
        self.seen.setdefault(message[0], []).append(message[1])


class Slow(Workload):
    """Few jobs, and more messages than they can take at once."""

    types: ClassVar = (JobType("sloth", Sloth),)

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"sloth{n}" for n in range(3)]
        for id in self.jobs:
            await client.defining.schedule("sloth", id, {})

    def drives(self) -> list[Drive]:
        return [self._publish]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("hurrier")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(4)]
            outcome = await self.world.attempt(4, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.5, 1.8)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
        return found
