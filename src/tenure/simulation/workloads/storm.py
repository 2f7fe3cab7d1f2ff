"""A publish storm: publishers time out, crash, and publish again under the same id until they are told."""

from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings, Sent, judge_sender
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Storm"]


class Ledger(Job):
    """Writes down what it gets."""

    entries: list[int] = []

    def on_message(self, ctx: Any, message: int) -> None:
        self.entries.append(message)


class _Publisher:
    """What survives a publisher's crash: what it has not been told to be stored."""

    def __init__(self) -> None:
        self.doubtful: list[tuple[str, int]] = []


class Storm(Workload):
    """Every message is published until it is acknowledged, by whichever process."""

    types: ClassVar = (JobType("ledger", Ledger),)

    async def prepare(self, client: GridClient) -> None:
        self.jobs = [f"ledger{n}" for n in range(4)]
        self.sent = {id: Sent() for id in self.jobs}
        self.publishers = [_Publisher() for _ in range(2)]
        for id in self.jobs:
            await client.defining.schedule("ledger", id, {})

    def drives(self) -> list[Drive]:
        return [lambda client, publisher=publisher: self._publish(client, publisher) for publisher in self.publishers]  # type: ignore[misc]

    async def _publish(self, client: GridClient, publisher: _Publisher) -> None:
        while self.world.working or publisher.doubtful:
            batch = publisher.doubtful
            if self.world.working:
                jobs = self.random.choices(self.jobs, k=self.random.choice((3, 12, 28)))
                batch += [(job, self.sent[job].next()) for job in jobs]
            ids = [f"{job} {n}" for job, n in batch]
            deadline_s = self.random.choice((0.02, 0.5, 5.0))
            outcome = await self.world.attempt(
                len(batch),
                lambda batch=batch, ids=ids, limit=deadline_s: client.publish_many(batch, ids=ids, deadline_s=limit),  # type: ignore[misc]
            )
            if outcome.done:
                for job, n in batch:
                    self.sent[job].acknowledged.add(n)
                publisher.doubtful = []
            await self.pause(0.5, 2.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.jobs, found)).items():
            # What is published again comes behind what was published since: there is no order to keep.
            found.add(judge_sender(id, job.entries, self.sent[id], ordered=False))
        return found
