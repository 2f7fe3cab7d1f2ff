"""Counters: each message carries its sender and number, so that doubles, losses and order show in the state."""

from collections import defaultdict
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Backlogged
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.topic import Topic
from tenure.simulation.histories import Findings, Sent, judge_all
from tenure.simulation.stage import Outcome
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Counters", "Sendings"]


class Counter(Job):
    """Plain handlers."""

    seen: dict[str, list[int]] = {}

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        self.seen.setdefault(message[0], []).append(message[1])


class Pacer(Job):
    """Async handlers that really wait, for a moment."""

    seen: dict[str, list[int]] = {}

    async def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        await trio.lowlevel.checkpoint()
        self.seen.setdefault(message[0], []).append(message[1])


class Sendings:
    """What was published to which job by which sender."""

    def __init__(self) -> None:
        self.to: defaultdict[str, defaultdict[str, Sent]] = defaultdict(lambda: defaultdict(Sent))

    def message(self, job: str, sender: str) -> tuple[str, tuple[str, int]]:
        """One more message."""
        return job, (sender, self.to[job][sender].next())

    def told(self, batch: list[tuple[str, tuple[str, int]]], outcome: Outcome[None]) -> None:
        """What the publisher heard of a batch."""
        if outcome.done:
            stored = batch
        elif isinstance(outcome.error, Backlogged):
            unstored = outcome.error.unstored
            doubtful = {(to.name if isinstance(to, Topic) else to, *body) for to, body in unstored}
            stored = [(to, body) for to, body in batch if (to, *body) not in doubtful]
        else:
            stored = []
        for job, (sender, n) in stored:
            self.to[job][sender].acknowledged.add(n)


class Counters(Workload):
    """A few jobs, a few publishers, batches."""

    types: ClassVar = (JobType("counter", Counter), JobType("pacer", Pacer))
    publishers = 2

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"count{n}" for n in range(self.random.randint(4, 8))]
        for n, id in enumerate(self.jobs):
            await client.defining.schedule("counter" if n % 2 else "pacer", id, {})

    def drives(self) -> list[Drive]:
        return [self._publish] * self.publishers

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("publisher")
        while self.world.working:
            count = self.random.choice((4, 16, 32))
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(count)]
            outcome = await self.world.attempt(count, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.5, 2.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
        return found
