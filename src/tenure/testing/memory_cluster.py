"""A testing cluster in this process, in one trio run: on a memory grid, in virtual time where the clock is.

A killed node's grid connection is dead at once, and its tasks are cancelled. A paused node's calls take no
effect and return nothing until it is unpaused: it wakes up as a zombie.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager
from os import PathLike
from random import Random

import trio

from tenure.application import Source, load_application
from tenure.connect import within
from tenure.listeners import listening
from tenure.scheduler.assignment import assign
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import Cluster as Marker
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.errors import Mistake, NotDone
from tenure.scheduler.grid.memory import FaultyCluster, MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.tenure import Tenure
from tenure.testing.backend import Backend, Plan, known_to_clients, pick
from tenure.testing.fake_runs import FakeRun
from tenure.testing.memory_activities import MemoryActivities, open_activities
from tenure.testing.quiet import at_work, due_times_ms, unstarted, untaken

__all__ = ["MemoryBackend", "open_memory"]

PARTITIONS = 16
"""Few, as each is swept now and then, and virtual hours go by quickly."""

READY_TIMEOUT_S = 60.0
POLL_S = 0.02
SETTLE_TIMEOUT_S = 5.0
SETTLE_POLL_S = 0.001


class _RunningNode:
    """A node of this cluster, and how to end it."""

    def __init__(self, node: Node, grid: MemoryGrid) -> None:
        self.node, self.grid = node, grid
        self.scope = trio.CancelScope()
        self.paused = False
        self.ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self.scope:
                await self.node.run(task_status=task_status)
        finally:
            self.grid.close()
            self.ended.set()

    def is_ready(self) -> bool:
        """Does it serve what it is to serve?"""
        node = self.node
        me, owners = node.host.node, node.assignment.owners
        mine = [partition for partition, owner in enumerate(owners) if owner == me]
        if me in node.nodes and owners == assign(owners, node.grid.ownership(), node.nodes.values()):
            stands_still = {*node.lost, *node.bulkhead.parked, *node.host.unfit}
            return all(partition in node.tenures or partition in stands_still for partition in mine)
        return False


class MemoryBackend(Backend):
    """Nodes as tasks, members in memory."""

    def __init__(self, plan: Plan, nursery: trio.Nursery) -> None:
        self.plan = plan
        self.activities: MemoryActivities
        self.registry = load_application(plan.app, apart=True)
        self._clock = _clock(plan)
        self._ahead_ms = 0
        self._held_ms: int | None = None
        """What the clocks show while they are advanced."""
        self.grid_cluster = _grid_cluster(plan)
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._marker: Marker | None = None
        self._nodes: dict[int, _RunningNode] = {}
        self._nodes_ever = 0

    def now_ms(self) -> int:
        return self._clock() + self._ahead_ms if self._held_ms is None else self._held_ms

    async def advance(self, seconds: float) -> None:
        if not seconds >= 0:
            raise Mistake(f"clocks go on, by a number of seconds, not {seconds!r}")
        # Meanwhile they show what we say, however long turns take: so it is exactly so much in the end.
        now_ms = self._held_ms = self.now_ms()
        end_ms, tried = now_ms + round(seconds * 1000), set[Hashable]()
        try:
            await self._settle(tried, scheduled=True)
            while now_ms < end_ms:
                coming = (due_ms for tenure in self._tenures() for due_ms in due_times_ms(tenure) if due_ms > now_ms)
                due_ms = min([end_ms, *coming])
                self._go_on(due_ms - now_ms)
                now_ms = due_ms
                await self._settle(tried)
        finally:
            self._ahead_ms = self._held_ms - self._clock()
            self._held_ms = None

    def _go_on(self, by_ms: int) -> None:
        assert self._held_ms is not None
        self._held_ms += by_ms
        for tenure in self._tenures():
            tenure.alarms.hasten(by_ms / 1000)
            tenure.wake()

    async def _settle(self, tried: set[Hashable], *, scheduled: bool = False) -> None:
        """What is due now is done, or at least begun: its node may be paused, its turn may take long. What was waited
        for in vain is not waited for again."""
        with trio.move_on_after(SETTLE_TIMEOUT_S):
            while not tried.issuperset(self._unsettled(scheduled)):  # noqa: ASYNC110  # in virtual time, mostly
                await trio.sleep(SETTLE_POLL_S)
            return
        tried.update(self._unsettled(scheduled))

    def _unsettled(self, scheduled: bool) -> Iterator[Hashable]:
        now_ms = self.now_ms()
        for tenure in self._tenures():
            yield from at_work(tenure)
            yield from untaken(tenure, self._entries(Map.INBOX, tenure.partition))
            if scheduled:
                yield from unstarted(tenure, self._entries(Map.JOBS, tenure.partition))
            if any(due_ms <= now_ms for due_ms in due_times_ms(tenure)):
                yield tenure.partition, "due", now_ms

    def _entries(self, map: Map, partition: int) -> Mapping[bytes, bytes]:
        side = self.grid_cluster.largest()
        row = side.rows[partition]
        shard = side.members[row[0]].shards.get(partition) if row else None
        return shard.entries[map] if shard else {}

    def _tenures(self) -> list[Tenure]:
        return [tenure for running in self._nodes.values() for tenure in running.node.tenures.values()]

    async def form(self) -> None:
        """Create what a new cluster needs."""
        grid = self.grid_cluster.connect()
        formation = f"testing-{self.plan.seed}"
        if self.plan.activities == "real":
            # It names processes, too: those of another test that runs beside this one must not be taken for ours.
            formation += f"-{secrets.token_hex(4)}"
        self._marker = await find_or_form(grid, formation)
        grid.close()

    @asynccontextmanager
    async def open_client(
        self, registry: Registry | None, settings: ClientSettings | None
    ) -> AsyncIterator[GridClient]:
        grid = self.grid_cluster.connect()
        registry = known_to_clients(self.plan.app, self.registry) if registry is None else registry
        try:
            async with open_client(grid, settings=settings, registry=registry, now_ms=self.now_ms) as client:
                yield client
        finally:
            grid.close()

    @asynccontextmanager
    async def _open_within(
        self, registry: Registry | None, settings: ClientSettings | None
    ) -> AsyncIterator[GridClient]:
        """For handlers."""
        if trio.lowlevel.current_trio_token() is not self._token:
            raise Mistake(
                'this handler runs in a testing cluster with grid="memory", which is in the thread of its event loop: '
                'use tenure.Client in an async handler there, or grid="hazelcast" for handlers that block'
            )
        async with self.open_client(registry, settings) as client:
            yield client

    # -- nodes ------------------------------------------------------------------------------------

    async def nodes(self) -> list[int]:
        self._tidy()
        return sorted(self._nodes)

    def _tidy(self) -> None:
        """Nodes that were told to go, by whoever, have gone."""
        self._nodes = {number: running for number, running in self._nodes.items() if not running.ended.is_set()}

    async def add_node(self, app: Source = None, python: str | PathLike[str] | None = None) -> int:
        if python is not None:
            raise Mistake('another interpreter is for grid="hazelcast": these nodes live in this process')
        number = self._start_number()
        running = await self._start(number, self.registry if app is None else load_application(app, apart=True))
        await self._ready([running])
        return number

    async def add_nodes(self, count: int) -> None:
        """The first ones, all at once."""
        started = [await self._start(self._start_number(), self.registry) for _ in range(count)]
        await self._ready(started)

    async def kill(self, node: int) -> None:
        running = pick(self._nodes, node, "node")
        del self._nodes[node]
        running.grid.kill()
        running.scope.cancel()
        await running.ended.wait()

    async def pause(self, node: int) -> None:
        running = pick(self._nodes, node, "node")
        running.paused = True
        running.grid.freeze()
        await trio.lowlevel.checkpoint()

    async def unpause(self, node: int) -> None:
        running = pick(self._nodes, node, "node")
        running.paused = False
        running.grid.thaw()
        await trio.lowlevel.checkpoint()

    async def drain(self, node: int) -> None:
        running = pick(self._nodes, node, "node")
        if running.paused:
            raise Mistake(f"node {node} is paused, and can't drain before it is unpaused")
        await running.node.drain()
        await running.ended.wait()
        self._nodes.pop(node, None)

    def end(self) -> None:
        """What is left ends at once."""
        for running in self._nodes.values():
            running.grid.kill()
            running.scope.cancel()

    def _start_number(self) -> int:
        number = self._nodes_ever
        self._nodes_ever += 1
        return number

    async def _start(self, number: int, registry: Registry) -> _RunningNode:
        assert self._marker is not None
        grid = self.grid_cluster.connect()
        random = Random(f"{self.plan.seed}/{number}")
        marker = self._marker
        name = f"node-{number}"
        host = Host(grid, name, registry, self.now_ms, marker.formation, marker.incarnation, self.plan.settings, random)
        host.launchers, host.has_clock_of_all = self.activities.launchers, True
        running = self._nodes[number] = _RunningNode(Node(host, listening, name=name), grid)
        with within(self._open_within):
            await self._nursery.start(running.run)
        return running

    async def _ready(self, started: list[_RunningNode]) -> None:
        with trio.move_on_after(READY_TIMEOUT_S):
            while not all(running.is_ready() for running in started):  # noqa: ASYNC110  # in virtual time, mostly
                await trio.sleep(POLL_S)
            return
        raise NotDone(f"the nodes did not come up within {READY_TIMEOUT_S:g} s")

    async def launched(self) -> FakeRun:
        return await self.activities.launched()

    # -- members ----------------------------------------------------------------------------------

    async def members(self) -> list[int]:
        return sorted(_member_numbers(self.grid_cluster))

    async def add_member(self) -> int:
        await trio.lowlevel.checkpoint()
        return int(self.grid_cluster.add_member()[1:])

    async def kill_member(self, member: int) -> None:
        self.grid_cluster.kill_member(pick(_member_numbers(self.grid_cluster), member, "member"))
        await trio.lowlevel.checkpoint()

    async def remove_member(self, member: int) -> None:
        self.grid_cluster.leave_member(pick(_member_numbers(self.grid_cluster), member, "member"))
        await trio.lowlevel.checkpoint()


def _member_numbers(cluster: MemoryCluster) -> dict[int, str]:
    return {int(id[1:]): id for id in cluster.members}


def _grid_cluster(plan: Plan) -> MemoryCluster:
    partitions = PARTITIONS if plan.partitions is None else plan.partitions
    if plan.faults is None:
        return MemoryCluster(partitions=partitions, members=plan.members, backups=plan.backups, seed=plan.seed)
    return FaultyCluster(
        faults=plan.faults, partitions=partitions, members=plan.members, backups=plan.backups, seed=plan.seed
    )


def _clock(plan: Plan) -> Callable[[], int]:
    """Wall-clock time that goes on as trio's does."""
    began = trio.current_time()
    start_ms = time.time_ns() // 1_000_000 if plan.start is None else round(plan.start.timestamp() * 1000)
    return lambda: start_ms + round((trio.current_time() - began) * 1000)


@asynccontextmanager
async def open_memory(plan: Plan) -> AsyncIterator[MemoryBackend]:
    """A running cluster; what is left of it ends at once."""
    async with trio.open_nursery() as nursery:
        backend = MemoryBackend(plan, nursery)
        is_fake = plan.activities != "real"
        async with open_activities(backend.grid_cluster, backend.now_ms, fake=is_fake) as backend.activities:
            try:
                await backend.form()
                await backend.add_nodes(plan.nodes)
                yield backend
            finally:
                backend.end()
                nursery.cancel_scope.cancel()
