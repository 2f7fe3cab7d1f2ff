"""Errands: activities on two machines, whose nodes are killed, frozen and cut off, and which die themselves. Never two
are at work for one activity, its end is reported once, as it was, and none is forgotten, in restored clusters neither.
"""

from collections import Counter, defaultdict
from typing import Any, ClassVar, NamedTuple

import trio

from tenure.jobs.uplink import ClientUplink
from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.activities_wire import Report
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import Job, JobType, Registry, Retry
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory
from tenure.simulation.histories import Findings
from tenure.simulation.processes import run_client
from tenure.simulation.restored import judge_snapshot
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.testing.fake_runs import FakeRun, FakeRuns

__all__ = ["Errands", "judge_errands"]

KIND = "errand"
ATTEMPTS_MAX = 10_000


class Foreman(Job):
    """Sends on errands, calls back, and hears how they ended."""

    asked: list[int] = []
    ended: list[tuple[int, str, str]] = []
    """(errand, how it ended, what it brought)"""

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        what, n = message
        if what == "stop":
            ctx.cancel_activity(f"errand{n}")
            return
        self.asked.append(n)
        ctx.start_activity(
            f"errand{n}",
            {"n": n},
            kind=KIND,
            retry=Retry(attempts_max=ATTEMPTS_MAX, first_delay_s=0.2, delay_max_s=0.5),
            heartbeat_s=1.0,
            orphan_after_s=4.0,
            cancel_deadline_s=1.0,
        )

    def on_activity(self, ctx: Any, event: Any) -> None:
        self.ended.append((int(event.name.removeprefix("errand")), event.status, str(event.result)))


def judge_errands(
    id: str, job: Foreman, ordered: set[int], acknowledged: set[int], stopped: set[int], brought: dict[int, set[str]]
) -> Findings:
    """Each errand that was ordered is asked for once at most, and ends once; with what one of its runs has brought, or
    cancelled, if anybody wanted that."""
    found = Findings()
    if len(set(job.asked)) < len(job.asked) or set(job.asked) - ordered:
        found.wrong.append(f"{id} was asked for {sorted(ordered)}, and heard {job.asked}")
    if twice := sorted(n for n, times in Counter(n for n, _, _ in job.ended).items() if times > 1):
        found.wrong.append(f"{id}: errands that ended twice: {twice}")
    for n, status, result in job.ended:
        if status == "succeeded" and result not in brought.get(n, ()):
            found.wrong.append(f"{id}: errand {n} brought {result!r}, and its runs {sorted(brought.get(n, ()))}")
        elif status not in ("succeeded", "cancelled") or (status == "cancelled" and n not in stopped):
            found.wrong.append(f"{id}: errand {n} {status}, and nobody wanted that")
    if missing := sorted((acknowledged | set(job.asked)) - {n for n, _, _ in job.ended}):
        found.waiting.append(f"{id}: errands without an end: {missing}")
    return found


class Orders:
    """What was wanted of one foreman."""

    def __init__(self) -> None:
        self.ordered: set[int] = set()
        self.acknowledged: set[int] = set()
        self.stopped: set[int] = set()


class _Machine(FakeRuns):
    """Sees when work begins."""

    def __init__(self, workload: "Errands", place: str) -> None:
        super().__init__(workload.report, workload.world.nursery, place=place)
        self._workload = workload

    def started(self, run: FakeRun) -> None:
        self._workload.begins(run)
        super().started(run)

    def stopped(self, run: FakeRun) -> None:
        if self._workload.at_work.get(run.run.id) is run:
            del self._workload.at_work[run.run.id]
        super().stopped(run)


class _Taken(NamedTuple):
    name: str
    acknowledged: dict[str, set[int]]
    """Before it was begun."""


class Errands(Workload):
    """Foremen who send on errands, and the errands' lives."""

    types: ClassVar = (JobType("foreman", Foreman),)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.uplinks = [ClientUplink(), ClientUplink()]
        """The first one may be killed."""
        self.at_work: dict[str, FakeRun] = {}
        self.launched: set[str] = set()
        self.brought: defaultdict[str, dict[int, set[str]]] = defaultdict(dict)
        self.machines = [_Machine(self, f"machine{n}") for n in range(len(world.machines))]
        for machine, launchers in zip(self.machines, world.machines, strict=True):
            launchers[KIND] = machine

    def begins(self, run: FakeRun) -> None:
        """One is at work."""
        tag, id = run.run.tag, run.run.id
        if tag in self.launched:
            self.world.violate(f"{tag} of {run.run.job} was begun twice")
        if (other := self.at_work.get(id)) is not None:
            self.world.violate(f"{tag} of {run.run.job} begins as {other.run.tag} is at work")
        self.launched.add(tag)
        self.at_work[id] = run

    async def report(self, job: str, report: Report) -> str:
        """By the client that may be killed, if it is there."""
        uplink = next((each for each in self.uplinks if each.client is not None), self.uplinks[1])
        try:
            return await uplink.report(job, report)
        except trio.ClosedResourceError as error:
            raise NotDone("who carries reports was killed") from error

    async def prepare(self, client: GridClient) -> None:
        self.orders = {f"foreman{n}": Orders() for n in range(2)}
        self.count = 0
        self.url = f"memory:errands {self.world.seed}"
        self.store = MEMORIES[self.url] = Memory()
        self.taken: list[_Taken] = []
        self.judged: set[str] = set()
        for id in self.orders:
            await client.defining.schedule("foreman", id, {})
        self.world.nursery.start_soon(run_client, self.world, lambda client: self._carry(client, self.uplinks[1]))
        self.world.nursery.start_soon(self._live)

    async def _carry(self, client: GridClient, uplink: ClientUplink) -> None:
        uplink.client = client
        uplink.connected.set()
        try:
            # For as long as there is work, and the last one to the end of the run.
            while self.world.working or uplink is self.uplinks[1]:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.5)
        finally:
            uplink.client, uplink.connected = None, trio.Event()

    async def _live(self) -> None:
        """What becomes of those that are at work."""
        while True:
            await self.pause(0.1, 0.5)
            for run in list(self.at_work.values()):
                how = self.random.random() if self.world.working else 1.0
                if how < 0.03:
                    run.die()
                elif how < 0.06:
                    run.fail("IOError: disk")
                elif how < 0.12:
                    run.cut_off = not run.cut_off
                    run.is_stubborn = self.random.random() < 0.5
                elif how < 0.3:
                    run.tell(progress=[1, 2])
                elif how > 0.8:
                    run.cut_off = False
                    self._succeed(run)

    def _succeed(self, run: FakeRun) -> None:
        self.brought[run.run.job].setdefault(run.run.work["n"], set()).add(run.run.tag)
        run.succeed(run.run.tag)

    def drives(self) -> list[Drive]:
        return [self._order, self._save, lambda client: self._carry(client, self.uplinks[0])]

    async def _order(self, client: GridClient) -> None:
        while self.world.working:
            id = self.random.choice(list(self.orders))
            orders = self.orders[id]
            self.count, n = self.count + 1, self.count
            orders.ordered.add(n)
            if (await self.world.attempt(1, lambda id=id, n=n: client.publish(id, ("go", n)))).done:  # type: ignore[misc]
                orders.acknowledged.add(n)
            if self.random.random() < 0.2:
                stopped = self.random.choice(sorted(orders.ordered))
                orders.stopped.add(stopped)
                await self.world.attempt(1, lambda id=id, n=stopped: client.publish(id, ("stop", n)))  # type: ignore[misc]
            await self.pause(0.3, 2.0)

    async def _save(self, client: GridClient) -> None:
        await self.pause(2.0, 6.0)
        while self.world.working and not self.taken:
            before = {id: set(orders.acknowledged) for id, orders in self.orders.items()}
            outcome = await self.world.attempt(
                1,
                lambda: take_snapshot(
                    client.grid, self.url, self.store, client.now_ms, SnapshotOptions(deadline_s=15.0)
                ),
            )
            if outcome.result is not None:
                self.taken.append(_Taken(outcome.result.manifest.name, before))
            await self.pause(1.0, 3.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.orders, found)).items():
            orders = self.orders[id]
            found.add(judge_errands(id, job, orders.ordered, orders.acknowledged, orders.stopped, self.brought[id]))
        if self.at_work:
            found.waiting.append(f"still at work: {sorted(run.run.tag for run in self.at_work.values())}")
        there = set(await Catalog(self.store).names())
        for taken in self.taken:
            if taken.name in there - self.judged:
                self.judged.add(taken.name)
                found.add(await self._restore(taken))
        return found

    async def _restore(self, taken: _Taken) -> Findings:
        """In another cluster, whose machine knows nothing of what ran before."""
        elsewhere = Elsewhere(self)

        async def judge(client: GridClient) -> Findings:
            elsewhere.uplink.client = client
            elsewhere.work()
            found = Findings()
            try:
                jobs = await states(client, self.orders, found)
            except NotDone as error:
                return Findings(waiting=[str(error)])
            for id, job in jobs.items():
                orders = self.orders[id]
                found.add(
                    judge_errands(id, job, orders.ordered, taken.acknowledged[id], orders.stopped, self.brought[id])
                )
            return found

        launchers: dict[str, Launcher] = {KIND: elsewhere.runs}
        return await judge_snapshot(
            self.world, self.store, taken.name, Registry(*self.types), judge, partitions=3, launchers=launchers
        )


class Elsewhere:
    """The machine of a restored cluster."""

    def __init__(self, workload: Errands) -> None:
        self.uplink = ClientUplink()
        self.runs = FakeRuns(self.uplink.report, workload.world.nursery, place="elsewhere")
        self._workload = workload

    def work(self) -> None:
        """All that is at work succeeds."""
        for run in list(self.runs.working):
            self._workload._succeed(run)
