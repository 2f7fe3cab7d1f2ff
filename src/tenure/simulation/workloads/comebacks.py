"""Comebacks: clients that are silent until their lanes are forgotten, and publish again, some at that very moment."""

from typing import ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import JobType
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.plan import Calls
from tenure.simulation.strikes import owner_of_the_forgotten, slow_commits
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Counter, Sendings

__all__ = ["Comebacks"]

LIFETIME_S = 1.0
GUESTS = 6


class Host(Counter):
    """Counts whom it has seen."""


class Comebacks(Workload):
    """Guests who come, leave, and come back. Commits are in flight as they do."""

    types: ClassVar = (JobType("host", Host),)
    settings: ClassVar = {"lane_lifetime_s": LIFETIME_S, "sweep_s": 0.5, "definitions_sweep_s": 20.0}
    calls: ClassVar = Calls(0.3, (0.005, 0.02), 0.005)
    strikes: ClassVar = (owner_of_the_forgotten, slow_commits)

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"host{n}" for n in range(3)]
        self.called: dict[bytes, trio.Event] = {}
        self.world.cluster.probed.append(self._probed)
        for id in self.jobs:
            await client.defining.schedule("host", id, {})

    def _probed(self, owner: str, partition: int, key: bytes) -> None:
        if (event := self.called.get(key[:8])) is not None:
            event.set()

    def drives(self) -> list[Drive]:
        return [*[self._visit] * GUESTS, self._stay]

    async def _stay(self, client: GridClient) -> None:
        """A regular, so that there is always something to commit."""
        name = self.world.name("regular")
        while self.world.working:
            batch = [self.sendings.message(job, name) for job in self.jobs]
            outcome = await self.world.attempt(len(batch), lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await trio.sleep(0.1)

    async def _visit(self, client: GridClient) -> None:
        name, job = self.world.name("guest"), self.random.choice(self.jobs)
        while self.world.working:
            batch = [self.sendings.message(job, name) for _ in range(self.random.choice((1, 1, 2)))]
            outcome = await self.world.attempt(len(batch), lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            if self.random.random() < 0.3:
                await self.pause(0.1, 0.6)
                continue
            self.called[client.sender] = trio.Event()
            with trio.move_on_after(self.random.uniform(2.0, 4.0) * LIFETIME_S):
                await self.called[client.sender].wait()
            await trio.sleep(self.random.choice((0.0, self.random.uniform(0.0, 0.03))))

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
        return found
