"""Upgrading: nodes of an older version, which reads one format, are replaced by newer ones, which read two, in the
middle of work; some are replaced back. When all are new, the newer format is declared, and written from then on."""

from typing import ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, UpgradeUnfinished
from tenure.scheduler.formats import FIRST
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.upgrades import finalize
from tenure.simulation.formats import NEWER
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.stage import World
from tenure.simulation.strikes import rolling
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Counter, Sendings

__all__ = ["Upgrading"]


class Veteran(Counter):
    """Counts, through all versions."""

    def on_message(self, ctx: object, message: tuple[str, int]) -> None:
        super().on_message(ctx, message)
        if message[1] % 4 == 0:
            ctx.send(f"pupil of {ctx.id}", (ctx.id, len(self.seen[message[0]])))  # type: ignore[attr-defined]


class Upgrading(Workload):
    """Publishers, and somebody who declares the newer format as soon as that is allowed."""

    types: ClassVar = (JobType("veteran", Veteran), JobType("pupil", Counter))
    strikes: ClassVar = (rolling,)
    alone: ClassVar = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.starts_older = True

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.world.starts_older = False  # from now on
        self.jobs = [f"veteran{n}" for n in range(4)]
        self.is_declared = False
        for id in self.jobs:
            await client.defining.schedule("veteran", id, {})
            await client.defining.schedule("pupil", f"pupil of {id}", {})

    def drives(self) -> list[Drive]:
        return [self._publish, self._publish, self._declare]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("recruit")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(3)]
            outcome = await self.world.attempt(3, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.1, 0.6)

    async def _declare(self, client: GridClient) -> None:
        while self.world.working and not self.is_declared:
            await self.pause(0.2, 1.0)
            await self._try_to_declare(client)

    async def _try_to_declare(self, client: GridClient) -> None:
        try:
            self.is_declared = (await finalize(client.grid, deadline_s=5.0)).declared == NEWER.number
        except UpgradeUnfinished:
            return
        except NotDone:
            self.world.is_newer_only = True  # it may have been declared
            return
        if self.is_declared:
            self.world.is_newer_only = True
            self.world.trace.tell("operator", f"has declared format {NEWER.number}")

    def _older(self) -> list[str]:
        """Nodes of the older version that are there."""
        return [name for name in self.world.clocks if self.world.reads[name] == (FIRST,)]

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        pupils = [f"pupil of {id}" for id in self.jobs]
        read = await states(client, [*self.jobs, *pupils], found)
        for id in self.jobs:
            if id in read:
                found.add(judge_all(id, read[id].seen, self.sendings.to[id]))
            if id in read and (pupil := read.get(f"pupil of {id}")) is not None:
                told = sum(n % 4 == 0 for numbers in read[id].seen.values() for n in numbers)
                heard = len(pupil.seen.get(id, []))
                if heard != told:
                    found.waiting.append(f"the pupil of {id} has heard {heard} of {told}")
        if not self.is_declared and not self._older():
            found.waiting.append(f"format {NEWER.number} is not declared")
            await self._try_to_declare(client)
            await trio.lowlevel.checkpoint()
        elif self.is_declared and self.world.cluster.marker().format != NEWER.number:
            found.wrong.append(f"format {NEWER.number} was declared, and is no more")
        return found
