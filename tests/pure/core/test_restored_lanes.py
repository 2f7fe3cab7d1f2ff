"""A snapshot is restored over a living cluster, and a client's write lands after it: nobody is harmed by that."""

from random import Random

import pytest
import trio
from msgspec import Raw, msgpack

from tenure.listeners import listening
from tenure.scheduler.client import open_client
from tenure.scheduler.cluster import find, find_or_form
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Backlogged
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.keys import partition_sender, slot_key
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.coordinator import take_snapshot
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory
from tenure.scheduler.wire import Batch, Definition, Envelope, decode, encode

CLIENT = b"\x01clientA"
MINUTE_MS = 60_000
LAST = 99


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)
        if message == LAST:
            ctx.finish()


REGISTRY = Registry(JobType("counter", Counter))


def now_ms() -> int:
    return 1_700_000_000_000 + round(trio.current_time() * 1000)


class World:
    """Nodes on a faulty grid, and a snapshot with one job."""

    def __init__(self, nursery: trio.Nursery, **settings: int) -> None:
        self.settings = NodeSettings(**settings)
        self.nursery, self.faults, self.ended = nursery, Faults(), list[str]()
        self.grids: dict[str, FaultyGrid] = {}
        self.living: list[trio.CancelScope] = []
        self.cluster = FaultyCluster(faults=self.faults, partitions=1, members=2)
        self.store = MEMORIES["memory:restored-lanes"] = Memory()

    async def begin(self) -> None:
        await find_or_form(self.cluster.connect(), "f1")
        for name in ("node-0", "node-1"):
            self.nursery.start_soon(self.node, name)
        await trio.sleep(3)
        async with open_client(self.cluster.connect(), registry=REGISTRY, now_ms=now_ms) as client:
            await client.defining.schedule("counter", "a", {})
            await client.publish("a", 0)
            await trio.sleep(1)
        await self.save()

    async def save(self) -> None:
        await take_snapshot(self.cluster.connect(), "memory:restored-lanes", self.store, now_ms)

    async def node(self, name: str) -> None:
        grid = self.grids[name] = self.cluster.connect()
        found = await find(grid)
        assert found is not None
        host = Host(
            grid,
            name,
            REGISTRY,
            now_ms,
            found.formation,
            found.incarnation,
            settings=self.settings,
            random=Random(name),
        )
        host.report = lambda text: None
        try:
            with trio.CancelScope() as scope:
                self.living.append(scope)
                await Node(host, listening, name=name).run()
        finally:
            self.ended.append(name)

    def kill(self) -> None:
        """All nodes."""
        for scope in self.living:
            scope.cancel()

    async def restore(self) -> None:
        await restore_snapshot(self.cluster.connect(), self.store, now_ms, RestoreOptions(replace=True))

    async def until_swept(self, sender: bytes = CLIENT) -> None:
        """Until no slot of this sender is left."""
        grid = self.cluster.connect()
        with trio.fail_after(120):
            while await self._left(grid, sender):  # noqa: ASYNC110 (only reading shows it)
                await trio.sleep(1)

    async def _left(self, grid: FaultyGrid, sender: bytes) -> bool:
        return any([entry.key.startswith(sender) async for page in grid.scan(Map.INBOX, 0) for entry in page])


async def published(client_publish: object, *args: object) -> str:
    try:
        await client_publish(*args, deadline_s=60)  # type: ignore[operator]
    except Backlogged:
        return "in doubt"
    return "stored"


@pytest.mark.parametrize("ahead_ms", [0, MINUTE_MS])
@pytest.mark.parametrize("begins", ["before", "while it is noticed"])
async def test_a_write_that_lands_after_a_restore_harms_nobody_and_its_client_goes_on(
    ahead_ms: int, begins: str
) -> None:
    """Its lane was begun in the cluster that was, and the slots before it are gone."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        grid, random = world.cluster.connect(), world.cluster.random
        async with open_client(grid, registry=REGISTRY, now_ms=lambda: now_ms() + ahead_ms, sender=CLIENT) as client:
            if begins == "before":
                await client.publish("a", 1)
            else:
                await client.allegiance.renew()
            nursery.start_soon(world.restore)
            await trio.sleep(0.3)
            await client.publish("a", 2)
            world.faults.once(Fault.LATE_UNKNOWN, map=Map.INBOX, connection=grid, times=1)
            random.random, dice = (lambda: 0.9), random.random  # type: ignore[method-assign]  # it lands 14.6 s later
            nursery.start_soon(published, client.publish, "a", 3)
            await trio.sleep(0.01)
            random.random = dice  # type: ignore[method-assign]
            await trio.sleep(20)
            await client.publish("a", 4, deadline_s=20)
            await trio.sleep(10)
            assert world.ended == []
            assert (await client.state("a")).seen in ([0, 3, 4], [0, 4])
            await world.until_swept()
        nursery.cancel_scope.cancel()


async def test_a_whole_lane_that_lands_after_a_restore_has_no_effect_there() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        await world.restore()
        grid = world.cluster.connect()
        for n in range(3):  # of a client whose clock is a day ahead
            batch = Batch([Envelope("a", Raw(msgpack.encode(7)))], incarnation=1)
            await grid.set(Map.INBOX, 0, slot_key(CLIENT, now_ms() + 1440 * MINUTE_MS, n), encode(batch))
        await trio.sleep(30)
        await world.until_swept()
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            assert (await client.state("a")).seen == [0]
        nursery.cancel_scope.cancel()


async def test_what_was_stored_before_a_restore_is_gone_after_it() -> None:
    """Also what a client of an older version wrote, which does not say in what cluster it did; nobody had taken it."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        world.kill()
        grid = world.cluster.connect()
        slot = slot_key(CLIENT, now_ms() + 1440 * MINUTE_MS, 0)  # its clock is a day ahead
        await grid.set(Map.INBOX, 0, slot, encode(Batch([Envelope("a", Raw(msgpack.encode(7)))])))
        await world.restore()
        nursery.start_soon(world.node, "node-2")
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            with trio.fail_after(60):
                assert (await client.state("a")).seen == [0]
            await trio.sleep(10)
            assert (await client.state("a")).seen == [0]
        nursery.cancel_scope.cancel()


async def test_what_was_stored_for_a_job_that_is_full_is_in_a_snapshot() -> None:
    """It waits in the inbox, and what comes behind a gap in its lane was not acknowledged."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, mailbox_messages_max=2)
        await world.begin()
        grid, lane = world.cluster.connect(), now_ms()
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            await client.defining.want("a", "paused")
            for n in (0, 1, 2, 3, 5):  # of an older version, which can't hold back what is for this job
                batch = Batch([Envelope("a", Raw(msgpack.encode(n + 1)))])
                await grid.set(Map.INBOX, 0, slot_key(CLIENT, lane, n), encode(batch))
            await trio.sleep(5)
            assert await world._left(grid, CLIENT), "they are not taken"
            await world.save()
            await world.restore()
            await client.defining.want("a", "running")
            assert (await client.state("a")).seen == [0, 1, 2, 3, 4]
        nursery.cancel_scope.cancel()


async def test_what_a_partition_sent_before_a_restore_and_lands_after_it_has_no_effect_there() -> None:
    """One that the restored cluster has not: nobody sends in its lane any more."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        await world.restore()
        grid, sender = world.cluster.connect(), partition_sender(7)
        for n in range(3):
            await grid.set(Map.INBOX, 0, slot_key(sender, 1, n), encode(Batch([Envelope("a", Raw(msgpack.encode(7)))])))
        await trio.sleep(30)
        await world.until_swept(sender)
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            assert (await client.state("a")).seen == [0]
        nursery.cancel_scope.cancel()


async def test_clients_say_in_their_slots_which_incarnation_they_write_to() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        await world.restore()
        grid, said = world.cluster.connect(), []
        write = grid.set

        async def set(map: Map, partition: int, key: bytes, value: bytes) -> None:
            if map is Map.INBOX:
                said.append(decode(value, Batch).incarnation)
            await write(map, partition, key, value)

        grid.set = set  # type: ignore[method-assign]
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            await client.publish("a", 1)
            await client.publish("a", 2)
        assert said == [2, 2]
        nursery.cancel_scope.cancel()


async def test_an_owner_that_was_frozen_over_a_restore_removes_no_job_of_the_restored_cluster() -> None:
    """It had looked at the definition of a job that has asked for its end, and was about to change it."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.begin()
        grid = world.cluster.connect()
        grids, frozen = [grid, *world.grids.values()], trio.Event()
        for each in grids:
            freeze_before_change(each, frozen)
        async with open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
            await client.publish("a", LAST)
            with trio.fail_after(60):
                await frozen.wait()
            await world.restore()
            nursery.start_soon(world.node, "node-2")
            await trio.sleep(20)
            for each in grids:
                each.thaw()
            await trio.sleep(5)
            after = await definition(world)
            assert (after.wanted, after.revision, after.incarnation) == ("running", 1, 2)
        async with open_client(world.cluster.connect(), registry=REGISTRY, now_ms=now_ms) as client:
            assert (await client.state("a")).seen == [0]
        nursery.cancel_scope.cancel()


def freeze_before_change(grid: FaultyGrid, frozen: trio.Event) -> None:
    """The first compare-and-set that would change a definition is held up, and all that comes after it."""
    replace = grid.replace_if_same

    async def replace_if_same(map: Map, partition: int, key: bytes, old: bytes, new: bytes) -> bool:
        if map is Map.JOBS and old != new and not frozen.is_set():
            frozen.set()
            grid.freeze()
        return await replace(map, partition, key, old, new)

    grid.replace_if_same = replace_if_same  # type: ignore[method-assign]


async def definition(world: World) -> Definition:
    stored = await world.cluster.connect().get(Map.JOBS, 0, b"a")
    assert stored is not None
    return decode(stored, Definition)
