"""Beside a sick job: one client sends to many jobs; one of them is paused or fails, and its mailbox is full. What is
for the others gets there all the same, and when it is well again, so does what was for it. In some seeds a topic has
filled it to the last bound there is."""

from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import JobType, Retry
from tenure.scheduler.topic import Topic
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.stage import current_world
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Counter, Sendings

__all__ = ["Beside"]

SICK = "patient0"
GOSSIP = 450
"""So many messages of a topic are more by far than a mailbox for six takes."""


class Mood:
    """Outside of the cluster: without it the sick one's turns fail."""

    is_bad = False


class Patient(Counter):
    """Works, unless it is sick."""

    def on_start(self, ctx: Any) -> None:
        if ctx.id == SICK:
            ctx.subscribe("gossip")

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        if message[0] == "gossip":
            return
        if ctx.id == SICK and current_world().outside(Mood).is_bad:
            raise RuntimeError("sick")
        super().on_message(ctx, message)


class Beside(Workload):
    """One is sick by being paused, or by failing."""

    types: ClassVar = (JobType("patient", Patient, retry=Retry(attempts_max=1)),)
    settings: ClassVar = {"mailbox_messages_max": 6}

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"patient{n}" for n in range(10)]
        self.mood, self.is_healed = self.world.outside(Mood), False
        for id in self.jobs:
            await client.defining.schedule("patient", id, {})
            await client.state(id)
        self.is_paused = self.random.random() < 0.5
        if self.is_paused:
            await client.defining.want(SICK, "paused")
        else:
            self.mood.is_bad = True

    def drives(self) -> list[Drive]:
        return [self._publish, self._gossip] if self.random.random() < 0.5 else [self._publish]

    async def _gossip(self, client: GridClient) -> None:
        gossip = [(Topic("gossip"), ("gossip", n)) for n in range(GOSSIP)]
        await self.world.attempt(1, lambda: client.publish_many(gossip, deadline_s=5.0))
        while self.world.working:
            await self.pause(1.0, 2.0)

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("friend")
        while self.world.working:
            for job in (SICK, SICK, *self.random.sample(self.jobs, 3)):
                batch = [self.sendings.message(job, sender)]
                outcome = await self.world.attempt(1, lambda batch=batch: client.publish_many(batch, deadline_s=2.0))  # type: ignore[misc]
                self.sendings.told(batch, outcome)
            await self.pause(0.2, 0.8)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        well = self.jobs if self.is_healed else [id for id in self.jobs if id != SICK]
        for id, job in (await states(client, well, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
        if not self.is_healed and not found.waiting:
            found.waiting.append(f"{SICK} is still sick")
            await self._heal(client, found)
        return found

    async def _heal(self, client: GridClient, found: Findings) -> None:
        self.mood.is_bad = False
        try:
            if self.is_paused:
                await client.defining.want(SICK, "running", deadline_s=5.0)
            elif (await client.directory.describe(SICK, deadline_s=5.0))["status"] == "failed":
                await client.directory.retry(SICK, deadline_s=5.0)
        except NotDone as error:
            found.waiting.append(str(error))
            await trio.lowlevel.checkpoint()
        else:
            self.is_healed = True
