"""Backups: snapshots of accounts that send to each other, taken amid faults, each restored into a world of its own.

What was restored must be a consistent cut: once quiet, each gift that was given is taken, once and in order, nothing is
gained or lost, and what was acknowledged before the snapshot began is carried out.
"""

from typing import Any, ClassVar, NamedTuple

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, TenureError, UnknownJob
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory
from tenure.simulation.histories import Findings
from tenure.simulation.restored import judge_snapshot
from tenure.simulation.workloads.base import Drive, states
from tenure.simulation.workloads.transfers import Account, Transfers, judge_accounts

__all__ = ["Backups", "judge_leavers"]

GATE, LEAVERS = "gate", 10
RESTORED_MAX = 2
"""So many of a seed's snapshots are looked at: to restore one costs as much as the rest of the seed."""


class Saver(Account):
    """An account under a type of its own, so that two workloads don't mix."""


class Leaver(Job):
    """Ends itself when it is told to go."""

    told: int = 0

    def on_message(self, ctx: Any, message: str) -> None:
        self.told += 1
        ctx.finish()

    def on_stop(self, ctx: Any) -> None:
        ctx.send(GATE, (ctx.id, self.told))


class Gate(Job):
    """Who has gone, and how often each was told to."""

    gone: list[tuple[str, int]] = []

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        self.gone.append(message)


def judge_leavers(living: dict[str, Leaver | None], gone: list[tuple[str, int]], told: set[str]) -> Findings:
    """Each is there, or has gone because it was told to; those that were told, have gone."""
    found = Findings()
    if untold := [id for id, times in gone if not times]:
        found.wrong.append(f"nobody told them to go, and they have gone: {untold}")
    left = [id for id, _ in gone]
    if len(set(left)) < len(left):
        found.wrong.append(f"they have gone twice: {sorted(left)}")
    for id, job in living.items():
        if job is not None and id in left:
            found.wrong.append(f"{id} has gone, and is there")
        elif job is None and id not in left:
            found.waiting.append(f"{id} is not there, and has not gone")
        elif job is not None and id in told:
            found.waiting.append(f"{id} was told to go, and is there")
    return found


class _Taken(NamedTuple):
    name: str
    acknowledged: frozenset[int]
    """Before it was begun."""
    told: frozenset[str]
    """Leavers that were told to go before that."""


class Backups(Transfers):
    """Accounts, and somebody who takes snapshots of them."""

    types: ClassVar = (JobType("saver", Saver), JobType("leaver", Leaver), JobType("gate", Gate))
    type_name, prefix = "saver", "saver"

    async def prepare(self, client: GridClient) -> None:
        await super().prepare(client)
        self.url = f"memory:simulation {self.world.seed}"
        self.store = MEMORIES[self.url] = Memory()
        self.leavers = [f"leaver{n}" for n in range(LEAVERS)]
        self.told: set[str] = set()
        self.saving = False
        await client.defining.schedule("gate", GATE, {})
        for id in self.leavers:
            await client.defining.schedule("leaver", id, {})
        self.taken: list[_Taken] = []
        self.judged: set[str] = set()

    def drives(self) -> list[Drive]:
        return [self._order, self._save, self._let_go]

    async def _let_go(self, client: GridClient) -> None:
        for id in self.leavers:
            # While a snapshot is taken: some behind their partition's cut.
            while self.world.working and not self.saving:  # noqa: ASYNC110
                await trio.sleep(0.1)
            await self.pause(0.0, 0.5)
            if not self.world.working:
                return
            if (await self.world.attempt(1, lambda id=id: client.publish(id, "go"))).done:  # type: ignore[misc]
                self.told.add(id)

    async def _save(self, client: GridClient) -> None:
        while self.world.working:
            await self.pause(0.5, 3.0)
            self.store.slow_s = self.random.choice((0.0, 0.0, 0.1, 0.5))
            before, told = frozenset(self.acknowledged), frozenset(self.told)
            options = SnapshotOptions(keep=self.random.choice((0, 0, 2)), deadline_s=self.random.choice((4.0, 15.0)))
            self.saving = True
            self.world.faults.once(Fault.SLOW, map=Map.JOBS, times=self.random.choice((0, 4, 8)))
            outcome = await self.world.attempt(
                1,
                lambda options=options: take_snapshot(client.grid, self.url, self.store, client.now_ms, options),  # type: ignore[misc]
            )
            self.saving = False
            if outcome.result is not None:
                self.taken.append(_Taken(outcome.result.manifest.name, before, told))
                self.world.trace.tell("snapshot", f"{len(self.taken)} of {outcome.result.manifest.jobs} jobs")

    async def examine(self, client: GridClient) -> Findings:
        found = await super().examine(client)
        found.add(await self._examine_leavers(client, self.told))
        self.store.slow_s = 0.0
        there = set(await Catalog(self.store).names())
        for number, taken in enumerate(self.taken):
            if taken.name in there - self.judged and len(self.judged) < RESTORED_MAX:
                self.judged.add(taken.name)
                found.add(await self._restore(taken, partitions=2 + number % 7))
        return found

    async def _restore(self, taken: _Taken, partitions: int) -> Findings:
        async def judge(client: GridClient) -> Findings:
            found = Findings()
            accounts: dict[str, Any] = {}
            try:
                accounts = await states(client, self.jobs, found)
            except TenureError as error:
                found.waiting.append(str(error))
            if len(accounts) == len(self.jobs):
                found.add(judge_accounts(accounts, self.ordered, set(taken.acknowledged)))
            found.add(await self._examine_leavers(client, set(taken.told)))
            return found

        registry = Registry(*self.types)
        return await judge_snapshot(self.world, self.store, taken.name, registry, judge, partitions=partitions)

    async def _examine_leavers(self, client: GridClient, told: set[str]) -> Findings:
        found = Findings()
        living: dict[str, Leaver | None] = {}
        for id in self.leavers:
            try:
                living[id] = await client.state(id, deadline_s=5.0)
            except UnknownJob:
                living[id] = None
            except NotDone as error:
                found.waiting.append(str(error))
        if GATE in (read := await states(client, [GATE], found)):
            found.add(judge_leavers(living, read[GATE].gone, told))
        return found
