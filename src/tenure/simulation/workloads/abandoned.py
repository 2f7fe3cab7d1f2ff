"""Abandoned lives: who removes, pauses or resumes a job dies before it is told what came of it, and asks nobody again.

Whether the change took place or not, the cluster must be of one mind about it.
"""

from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import JobRemoved, UnknownJob
from tenure.scheduler.jobtype import JobType
from tenure.simulation.strikes import weak_definitions
from tenure.simulation.workloads.base import Drive
from tenure.simulation.workloads.lifecycle import Lifecycle, Mayfly

__all__ = ["Abandoned"]


class Orphan(Mayfly):
    """As others that live for a while."""


class Abandoned(Lifecycle):
    """Whoever comes after one that died finds out whether the job lives, and goes on with it if it does."""

    types: ClassVar[tuple[JobType, ...]] = (JobType("orphan", Orphan), *Lifecycle.types)
    strikes: ClassVar = (weak_definitions,)
    alone: ClassVar = True
    type_name, prefix, count = "orphan", "orphan", 3

    def drives(self) -> list[Drive]:
        return [lambda client, id=id: self._mind(client, id) for id in self.sent]  # type: ignore[misc]

    async def _mind(self, client: GridClient, id: str) -> None:
        sent, attempt, defining = self.sent[id], self.world.attempt, client.defining
        while self.world.working:
            if not sent.lives or not await self._lives(client, id):
                sent.lives += 1
                await self._insist(lambda: defining.schedule(self.type_name, id, {"life": sent.lives}, deadline_s=5.0))
            for _ in range(self.random.randint(1, 3)):
                await self._say(client, id)
                await self.pause(0.1, 0.5)
            wanted = self.random.choice(("removed", "removed", "paused", "paused", "running"))
            try:
                done = (await attempt(1, lambda wanted=wanted: defining.want(id, wanted, deadline_s=4.0))).done  # type: ignore[misc]
            except UnknownJob:
                continue
            if wanted == "removed" and done:
                sent.removed.add(sent.lives)
            if wanted == "paused" and self.random.random() < 0.5:
                await self._resume(client, id)
        await self._resume(client, id)
        await self._say(client, id)

    async def _say(self, client: GridClient, id: str) -> None:
        try:
            await self._one_message(client, id, self.sent[id].lives)
        except (UnknownJob, JobRemoved):
            pass  # a removal that nobody was told of

    async def _lives(self, client: GridClient, id: str) -> bool:
        """Does it, as far as the cluster says? It is told to run, so that it can answer."""
        while True:
            try:
                await self._resume(client, id)
                outcome: Any = await self.world.attempt(1, lambda: client.state(id, deadline_s=5.0))
                if outcome.done:
                    return True
            except UnknownJob:
                return False

    async def _resume(self, client: GridClient, id: str) -> None:
        try:
            await self._insist(lambda: client.defining.want(id, "running", deadline_s=4.0))
        except UnknownJob:
            pass
