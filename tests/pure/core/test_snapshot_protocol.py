"""Snapshots between coordinators and owners: what either does when the other has forgotten, or is gone."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace

from tenure.listeners import listening
from tenure.scheduler import wire
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster, find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid, Map, Unknown
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import partition_of
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots import part
from tenure.scheduler.snapshots.calls import exported
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, Taken, _Coordinator, take_snapshot
from tenure.scheduler.snapshots.desk import COORDINATOR_GONE_S, SCANS_AT_ONCE
from tenure.scheduler.snapshots.errors import (
    NotRestorable,
    SnapshotDamaged,
    SnapshotFailed,
    SnapshotUnderWay,
    StoreFailed,
    UnknownSnapshot,
)
from tenure.scheduler.snapshots.form import Bucket, RestoreNote, manifest_path, note_path
from tenure.scheduler.snapshots.request import CHANNEL, CUT, REQUEST, Channel, Cut, Phase, Request
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.stores import Memory, Missing, Stored, open_store
from tenure.scheduler.wire import decode, encode
from tests.pure.core.bench import Bench, P

SERIAL = itertools.count()


class Plain(Job):
    n: int = 0

    def on_message(self, ctx: Any, message: int) -> int:
        self.n += message
        return self.n


class Large(Job):
    def on_message(self, ctx: Any, message: list[Any]) -> None:
        pass


REGISTRY = Registry(JobType("plain", Plain), JobType("large", Large))


class World:
    def __init__(self, cluster: MemoryCluster, node: Node, client: GridClient) -> None:
        self.cluster, self.node, self.client, self.grid = cluster, node, client, client.grid
        self.url = f"memory:protocol-{next(SERIAL)}"
        store = open_store(self.url)
        assert isinstance(store, Memory)
        self.store = store

    async def take(self, **options: Any) -> Any:
        return (await self.try_to_take(**options)).manifest

    async def try_to_take(self, **options: Any) -> Taken:
        return await take_snapshot(self.grid, self.url, self.store, self.client.now_ms, SnapshotOptions(**options))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    cluster = MemoryCluster(partitions=3)

    def now_ms() -> int:
        return 1_700_000_000_000 + round(trio.current_time() * 1000)

    grid = cluster.connect()
    formed = await find_or_form(grid, "protocol")
    host = Host(cluster.connect(), "node", REGISTRY, now_ms, formed.formation, formed.incarnation, random=Random(1))
    node = Node(host, listening)
    async with trio.open_nursery() as nursery, open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
        await nursery.start(node.run)
        await client.defining.schedule("plain", "a", {})
        await client.ask("a", 1)
        yield World(cluster, node, client)
        nursery.cancel_scope.cancel()


async def test_numbers_grow_also_when_the_request_was_lost(autojump_clock: Any) -> None:
    async with world() as here:
        await here.take()
        await here.take()
        stored = await here.grid.get(Map.NODES, 0, REQUEST)
        assert stored is not None
        assert (decode(stored, Request).number, decode(stored, Request).phase) == (2, Phase.ENDED)
        await here.grid.delete(Map.NODES, 0, REQUEST)
        await here.take(deadline_s=30)
        assert len(await Catalog(here.store).names()) == 3
        cuts = {tenure.state.cut for tenure in here.node.tenures.values()}
        assert len(cuts) == 1
        assert min(cuts) > 2


async def test_a_tenure_that_began_after_the_cut_says_that_it_can_not_finish_it(autojump_clock: Any) -> None:
    async with world() as here:
        here.store.slow_s = 5.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.take)
            await trio.sleep(2)  # cut, and being written
            here.node.drop([1])
            here.store.slow_s = 0.0
            with trio.fail_after(5):
                while "another owner" not in decode(await here.grid.get(Map.HEADS, 1, CUT) or b"", Cut).failure:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        # The coordinator has begun anew, and come to its end.
        assert len(await Catalog(here.store).names()) == 1
        assert (await Catalog(here.store).verify()).problems == []


@pytest.mark.parametrize("heard", [True, False])
async def test_an_owner_that_lost_its_partition_stores_no_part_without_what_its_successor_took(
    autojump_clock: Any, bench: Bench, heard: bool
) -> None:
    type = JobType("plain", Plain)
    first = await bench.open(type, hints=False, sweep_s=100.0)
    await bench.define("a", "plain")
    first.tenure.sweep_soon()
    await trio.sleep(2)
    desk = first.tenure.host.snapshots
    for _ in range(SCANS_AT_ONCE):  # so busy is it
        desk.scans.acquire_nowait()
    slot = await bench.send(bench.message("a", 10))  # stored, and the first owner has not heard of it
    request = Request(1, "attempt", f"memory:protocol-{next(SERIAL)}")
    desk.hear(encode(request))
    first.tenure.cutting.hear()
    await trio.sleep(0.2)
    assert first.state.cut == 1
    second = await bench.open(type)
    if heard:  # or it says nothing in time
        second.tenure.host.snapshots.hear(encode(request))
    await trio.sleep(0.5)
    assert (await bench.state_of("a"), slot in await bench.keys(Map.INBOX)) == ({"n": 10}, False)
    for _ in range(SCANS_AT_ONCE):
        desk.scans.release()
    desk.hear(encode(replace(request, phase=Phase.COLLECTING)))
    await trio.sleep(1)
    assert not first.over  # it still knows of nobody else
    said = decode(await bench.grid().get(Map.HEADS, P, CUT) or b"", Cut)
    assert (said.part, "another owner" in said.failure) == ("", True)


async def test_what_an_owner_said_and_arrives_late_changes_nothing(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here, trio.open_nursery() as nursery:
        grid: Any = here.node.host.grid
        landed = list[float]()

        def once_late(name: str) -> None:
            real = getattr(grid, name)

            async def call(map: Map, partition: int, key: bytes, *values: bytes, **options: Any) -> Any:
                if (map, partition, key) != (Map.HEADS, 1, CUT) or landed:
                    return await real(map, partition, key, *values, **options)
                landed.append(0.0)
                nursery.start_soon(land, partial(real, map, partition, key, *values, **options))
                raise Unknown("the answer is late")

            monkeypatch.setattr(grid, name, call)

        async def land(write: Any) -> None:
            while not decode(await here.grid.get(Map.HEADS, 1, CUT) or b"", Cut).part:  # noqa: ASYNC110
                await trio.sleep(0.001)
            await write()
            landed.append(trio.current_time())

        await here.grid.set(Map.HEADS, 1, CUT, encode(Cut(0)))
        for name in ("set", "put_if_absent", "replace_if_same"):
            once_late(name)
        assert (await here.take(deadline_s=30)).jobs == 1
        assert len(landed) == 2


async def test_a_channel_that_arrives_late_changes_nothing(autojump_clock: Any) -> None:
    async with world() as here:
        grid, numbers = here.grid, list[int]()

        async def change(**changes: Any) -> None:
            pass

        async def tell(number: int) -> None:
            coordinator: Any = _Coordinator(grid, here.url, here.store, Catalog(here.store), here.client.now_ms)
            coordinator._request = Request(number, "attempt", here.url)
            coordinator.cuts = {0: Cut(number, numbered={1: number}), 1: Cut(number), 2: Cut(number)}
            coordinator._change = change
            await coordinator._tell_channels()
            numbers.append(decode(await grid.get(Map.HEADS, 1, CHANNEL) or b"", Channel).number)

        await tell(1)
        await tell(3)
        with pytest.raises(Exception, match="another coordinator has taken over"):
            await tell(2)
        await tell(4)
        assert numbers == [1, 3, 4]


async def test_a_node_that_heard_nothing_of_a_snapshot_for_long_goes_on_with_it(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here, trio.open_nursery() as nursery:
        here.store.slow_s = COORDINATOR_GONE_S + 5
        done = trio.Event()

        async def take() -> None:
            await here.take()
            done.set()

        nursery.start_soon(take)
        await trio.sleep(2)
        here.store.slow_s = 0.0
        with monkeypatch.context() as cut_off:
            cut_off.setattr(here.node.host.snapshots, "hear", lambda stored: False)
            await trio.sleep(COORDINATOR_GONE_S + 2)
            here.node.drop([1])
            await trio.sleep(5)
        with trio.fail_after(60):
            await done.wait()


async def test_what_was_captured_is_forgotten_when_its_coordinator_is_gone(autojump_clock: Any) -> None:
    async with world() as here:
        here.store.slow_s = 1000.0
        with trio.move_on_after(3):
            await here.take()
        request = decode(await here.grid.get(Map.NODES, 0, REQUEST) or b"", Request)
        assert request.phase == Phase.ENDED  # it could still say so
        here.store.slow_s = 0.0
        await here.grid.set(Map.NODES, 0, REQUEST, encode(Request(request.number + 1, "x", here.url)))
        await trio.sleep(2)
        captures = [tenure.cutting.capture for tenure in here.node.tenures.values()]
        assert {capture.number for capture in captures if capture is not None} == {request.number + 1}
        await trio.sleep(2 * COORDINATOR_GONE_S + 5)
        assert not any(tenure.cutting.records for tenure in here.node.tenures.values())
        assert all(capture.frozen is None for capture in captures if capture is not None)
        assert (await here.take()).jobs == 1


async def test_what_hangs_on_one_job_is_in_a_snapshot_in_pieces_that_are_not_large(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, pieces = list[int](), list[bytes]()

    def seen_marked(stored: bytes) -> bytes:
        pieces.append(wire.marked(stored))
        return pieces[-1]

    def seen(value: Any) -> bytes:
        encoded = encode(value)
        if isinstance(value, Bucket):
            sizes.append(len(encoded))
        return encoded

    monkeypatch.setattr(part, "encode", seen)
    monkeypatch.setattr(part, "marked", seen_marked)
    async with world() as here:
        await here.client.defining.schedule("large", "b", {})
        await here.client.state("b")  # it has started
        await here.client.defining.want("b", "paused")
        sent = [(("b", n), f"order-{n}") for n in range(3000)]
        for at in range(0, 3000, 500):
            some = sent[at : at + 500]
            await here.client.publish_many([("b", [n, "x" * 1000]) for (_, n), _ in some], ids=[id for _, id in some])
        await here.take()
        assert 2**20 > max(sizes) > 100_000
        await here.client.publish("b", [3000, ""])
        manifest = await here.take()
        assert (await Catalog(here.store).verify()).problems == []
        lines = [line async for line in exported(here.url)]
        told = [line["waiting"] for line in lines if line["kind"] in ("job", "waiting") and line["id"] == "b"]
        assert [message["message"][0] for some in told for message in some] == list(range(3001))
        other = MemoryCluster(partitions=2)
        await restore_snapshot(other.connect(), here.store, here.client.now_ms)
        journal = Journal(
            other.connect(),
            partition_of("b", 2),
            formation=decode(await other.connect().get(Map.NODES, 0, MARKER) or b"", Cluster).formation,
            settings=NodeSettings(),
            new_id=str,
            random=Random(1),
            report=print,
        )
        await journal.read()
        mail = journal.state.mail["b"]
        assert [msgspec.msgpack.decode(envelope.body)[0] for envelope in mail] == list(range(3001))
        assert [envelope.id for envelope in mail] == [*(f"order-{n}" for n in range(3000)), ""]
        assert manifest.jobs == 2
    # Older versions would take the last piece for all that there is: they refuse it.
    assert {stored[0] for stored in pieces} == {0x81}
    assert len(pieces) > 10


async def test_what_it_refers_to_is_there_when_it_is_promised(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        await here.take()
        files = here.store.files
        lists: list[str] = []

        async def lose_what_was_seen(folder: str) -> list[Stored]:
            found = await files(folder)
            if folder == "packs" and folder not in lists:
                for stored in found:
                    await here.store.delete(stored.path)
            lists.append(folder)
            return found

        monkeypatch.setattr(here.store, "files", lose_what_was_seen)
        taken = await here.take()
        assert (await Catalog(here.store).verify(taken.name)).problems == []


@pytest.mark.parametrize("older", [{0}, {0, 1, 2}])
async def test_packs_that_nodes_of_older_versions_do_not_name_are_named_and_kept(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, older: set[int]
) -> None:
    async with world() as here:
        for n in range(9):
            await here.client.defining.schedule("plain", f"j{n}", {})
        grid_set = here.node.host.grid.set

        async def name_no_packs(map: Map, partition: int, key: bytes, value: bytes, **options: Any) -> None:
            if key == CUT and partition in older:
                told = decode(value, dict[str, Any])
                told.pop("packs", None)
                value = encode(told)
            await grid_set(map, partition, key, value, **options)

        monkeypatch.setattr(here.node.host.grid, "set", name_no_packs)
        here.store.age_s = 7200.0
        for _ in range(2):  # the second refers to packs of the first
            taken = await here.take(keep=1)
        packs = {path for path in here.store.content if path.startswith("packs/")}
        assert set(taken.packs) == packs
        assert {int(path.rpartition("/")[2].partition("-")[0]) for path in packs} == {0, 1, 2}
        assert (await Catalog(here.store).verify()).problems == []


async def test_a_place_that_is_not_the_same_for_all_is_none(autojump_clock: Any) -> None:
    async with world() as here:
        elsewhere = Memory()
        with pytest.raises(SnapshotFailed, match=r"by a node, and is not seen from here; memory:\S+ must be the same"):
            await take_snapshot(here.grid, here.url, elsewhere, here.client.now_ms, SnapshotOptions())
        assert elsewhere.content == {}


async def test_what_is_shown_late_is_waited_for(autojump_clock: Any) -> None:
    async with world() as here:

        class Late(Memory):
            async def files(self, folder: str) -> list[Stored]:
                self.content.update(shown if trio.current_time() > from_s else {})
                return await super().files(folder)

        elsewhere, shown, from_s = Late(), here.store.content, trio.current_time() + 40
        taken = await take_snapshot(here.grid, here.url, elsewhere, here.client.now_ms, SnapshotOptions())
        assert trio.current_time() > from_s
        assert (await Catalog(elsewhere).verify(taken.manifest.name)).problems == []


async def test_it_builds_on_what_was_newest_when_its_turn_came(autojump_clock: Any) -> None:
    async with world() as here:
        first = await here.take()
        request = decode(await here.grid.get(Map.NODES, 0, REQUEST) or b"", Request)
        alive = replace(request, number=request.number + 1, phase=Phase.CUTTING)
        await here.grid.set(Map.NODES, 0, REQUEST, encode(alive))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.take)
            await trio.sleep(1)
            newer, _ = await Catalog(here.store).next_name(here.client.now_ms())
            await Catalog(here.store).add(replace(first, name=newer))
            await here.grid.set(Map.NODES, 0, REQUEST, encode(replace(alive, phase=Phase.ENDED, beat=1)))
        request = decode(await here.grid.get(Map.NODES, 0, REQUEST) or b"", Request)
        assert request.base == manifest_path(newer)
        assert (await Catalog(here.store).names())[:2] == [first.name, newer]


async def test_a_snapshot_counts_as_taken_where_older_ones_can_not_be_deleted(autojump_clock: Any) -> None:
    async with world() as here:
        first, second = [await here.take() for _ in range(2)]
        here.store.content[manifest_path(second.name)] = b"damaged"
        here.store.age_s = 7200.0
        before = dict(here.store.content)
        manifest, not_deleted = await here.try_to_take(keep=2)
        # What a kept one needs is not known: nothing goes.
        assert "SnapshotDamaged: the manifest of snapshot " + second.name in not_deleted
        assert "nothing older was deleted" in not_deleted
        assert before.items() <= here.store.content.items()
        assert await Catalog(here.store).names() == [first.name, second.name, manifest.name]
        # One that is not to be kept is not read.
        last, not_deleted = await here.try_to_take(keep=2)
        assert "nothing older" not in not_deleted
        assert await Catalog(here.store).names() == [manifest.name, last.name]
        here.store.undeletable = True
        last, not_deleted = await here.try_to_take(keep=1)
        assert "StoreFailed" in not_deleted
        assert (await Catalog(here.store).verify(last.name)).problems == []
        assert manifest.name in await Catalog(here.store).names()


async def test_nodes_of_versions_without_snapshots_are_waited_out(autojump_clock: Any) -> None:
    async with world() as here:
        old = encode({"id": "old", "beat": 1})
        await here.grid.set(Map.NODES, 0, b"node/old", old)
        with pytest.raises(SnapshotFailed, match="node old runs a version that takes no snapshots"):
            await here.take(deadline_s=1)
        await here.grid.delete(Map.NODES, 0, b"node/old")
        assert (await here.take()).jobs == 1


async def test_it_ends_also_where_its_last_beat_was_cut_short(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        here.store.slow_s = 5.0
        replace_if_same = here.grid.replace_if_same
        silenced: list[bytes] = []

        async def never_answered(map: Map, partition: int, key: bytes, old: bytes, new: bytes, **options: Any) -> bool:
            done = await replace_if_same(map, partition, key, old, new, **options)
            if key == REQUEST and decode(old, Request).phase == decode(new, Request).phase == Phase.COLLECTING:
                silenced.append(new)
                await trio.sleep_forever()
            return done

        monkeypatch.setattr(here.grid, "replace_if_same", never_answered)
        await here.take()
        assert silenced
        assert decode(await here.grid.get(Map.NODES, 0, REQUEST) or b"", Request).phase == Phase.ENDED


async def let_another_restore(grid: Grid, *, ended: bool) -> None:
    """As far as the marker is concerned."""
    before = decode(await grid.get(Map.NODES, 0, MARKER) or b"", Cluster)
    restoring = "" if ended else "another"
    after = replace(before, formation="another", formed=ended, restoring=restoring, replaces=before.formation)
    await grid.set(Map.NODES, 0, MARKER, encode(after))


@pytest.mark.parametrize("ended", [True, False])
async def test_one_that_is_under_way_fails_where_a_snapshot_is_restored(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    async with world() as here:
        files = here.store.files

        async def restore_before_they_are_seen(folder: str) -> list[Stored]:
            if folder == "packs":
                await let_another_restore(here.grid, ended=ended)
            return await files(folder)

        monkeypatch.setattr(here.store, "files", restore_before_they_are_seen)
        with pytest.raises(SnapshotFailed, match="is another cluster now" if ended else "or it is being restored"):
            await here.take(keep=1)
        monkeypatch.undo()
        assert await Catalog(here.store).names() == []


async def test_a_restore_ends_at_once_what_is_under_way(autojump_clock: Any) -> None:
    async with world() as here:
        here.store.slow_s = 50.0

        async def take() -> None:
            with pytest.raises(SnapshotFailed, match="or it is being restored"):
                await here.take()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                await trio.sleep(2)
                await let_another_restore(here.grid, ended=False)


class SlowManifests(Memory):
    """Once a manifest is being written, it is waited for."""

    async def write(self, path: str, content: bytes) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(25)
            await super().write(path, content)


@pytest.mark.parametrize("deadline_s", [600.0, 10.0])
async def test_it_lives_while_its_manifest_is_being_written(autojump_clock: Any, deadline_s: float) -> None:
    async with world() as here:
        elsewhere = SlowManifests()
        elsewhere.content = here.store.content
        taken: list[Taken] = []

        async def take() -> None:
            options = SnapshotOptions(deadline_s=deadline_s)
            taken.append(await take_snapshot(here.grid, here.url, elsewhere, here.client.now_ms, options))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            if deadline_s > 25:
                await trio.sleep(8)
                with pytest.raises(SnapshotUnderWay):
                    await here.take()
        [(manifest, _)] = taken
        assert await Catalog(here.store).names() == [manifest.name]


class CutOff:
    """Members that one restorer does not reach once it has begun to write definitions; its beats least of all."""

    def __init__(self, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.answered, self.beats_answered = trio.Event(), trio.Event(), trio.Event()
        set_together, replace_if_same = grid.set_together, grid.replace_if_same

        async def silent_set_together(*args: Any, **options: Any) -> None:
            self.begun.set()
            if not self.answered.is_set():
                await trio.sleep(0.1)
                raise Unknown("cut off")
            await set_together(*args, **options)

        async def silent_replace(*args: Any, **options: Any) -> bool:
            if self.begun.is_set():
                await self.beats_answered.wait()
            return await replace_if_same(*args, **options)

        monkeypatch.setattr(grid, "set_together", silent_set_together)
        monkeypatch.setattr(grid, "replace_if_same", silent_replace)


async def test_a_restorer_that_was_cut_off_writes_nothing_into_what_another_has_restored(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        first = await here.take()
        await here.client.defining.schedule("plain", "b", {})
        second = await here.take()
        cluster = MemoryCluster(partitions=3)
        silent, grid = cluster.connect(), cluster.connect()
        cut_off = CutOff(silent, monkeypatch)

        async def restore() -> None:
            options = RestoreOptions(name=second.name)
            with pytest.raises(NotRestorable, match="another has taken over"):
                await restore_snapshot(silent, here.store, here.client.now_ms, options)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restore)
            await cut_off.begun.wait()
            await restore_snapshot(grid, here.store, here.client.now_ms, RestoreOptions(name=first.name))
            cut_off.answered.set()
            await trio.sleep(5)
            cut_off.beats_answered.set()
        keys = [entry.key for n in range(3) async for page in grid.scan(Map.JOBS, n) for entry in page]
        assert keys == [b"a"]


async def two_snapshots(here: World) -> tuple[str, str]:
    """Of which the newer one needs nothing that the older one needs, and all could be deleted."""
    first = await here.take()
    for id in "abcdef":
        await here.client.defining.schedule("plain", id, {})
        await here.client.ask(id, 1)
    second = await here.take()
    here.store.age_s = 7200.0
    return first.name, second.name


async def restore(here: World, name: str, **options: Any) -> int:
    grid = MemoryCluster(partitions=3).connect()
    try:
        result = await restore_snapshot(grid, here.store, here.client.now_ms, RestoreOptions(name=name, **options))
    except (SnapshotDamaged, UnknownSnapshot, StoreFailed):
        stored = await grid.get(Map.NODES, 0, MARKER)
        assert (stored is not None) == bool(options)  # with options it fails late
        raise
    return result.jobs


async def test_what_is_being_restored_is_kept(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        first, second = await two_snapshots(here)
        catalog, read = Catalog(here.store), here.store.read
        deleted: list[list[str]] = []

        async def delete_meanwhile(path: str) -> bytes:
            if path.startswith("parts/"):
                deleted.append(await catalog.retain(1))
            return await read(path)

        monkeypatch.setattr(here.store, "read", delete_meanwhile)
        # In three passes, of which two read when it has begun to write.
        assert await restore(here, first, memory_bytes_max=1) == 1
        assert deleted == [[]] * 9
        monkeypatch.undo()
        assert (await catalog.verify(first)).problems == []
        assert await catalog.retain(1) == [first]  # it has ended
        assert await catalog.names() == [second]
        assert (await catalog.verify()).problems == []


async def test_what_a_restore_that_was_interrupted_reads_is_kept_for_a_day(autojump_clock: Any) -> None:
    async with world() as here:
        first, second = await two_snapshots(here)
        catalog = Catalog(here.store)
        with trio.move_on_after(3):  # while it waits for others to notice
            await restore(here, first)
        assert await catalog.retain(1) == []
        assert await restore(here, first) == 1
        assert await catalog.retain(1) == []  # nobody knows that the interrupted one goes on no more
        assert await catalog.names() == [first, second]
        here.store.age_s = 90_000.0
        assert await catalog.retain(1) == [first]


async def test_a_restore_is_done_also_where_that_can_not_be_noted(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        first, _ = await two_snapshots(here)
        write = here.store.write

        async def write_once(path: str, content: bytes) -> None:
            here.store.broken = path in here.store.content
            await write(path, content)

        monkeypatch.setattr(here.store, "write", write_once)
        assert await restore(here, first) == 1
        assert here.store.broken


async def test_one_that_is_deleted_as_its_restore_begins_is_not_read(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        first, second = await two_snapshots(here)
        write = here.store.write

        async def delete_just_before(path: str, content: bytes) -> None:
            if path.startswith("restores/"):
                await Catalog(here.store).retain(1)
            await write(path, content)

        monkeypatch.setattr(here.store, "write", delete_just_before)
        with pytest.raises(UnknownSnapshot, match=f"{first} was deleted at this moment.*nothing was changed"):
            await restore(here, first)
        monkeypatch.undo()
        assert await Catalog(here.store).names() == [second]


async def test_what_a_restore_reads_outlives_its_manifest(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        first, second = await two_snapshots(here)
        catalog, delete = Catalog(here.store), here.store.delete
        needed = [path for path in here.store.content if path.startswith(("parts/", "packs/"))]

        async def note_just_before(path: str) -> None:
            if path == manifest_path(first):  # so it finds the manifest, and goes on
                note = RestoreNote("another", 2, first, here.client.now_ms())
                await here.store.write(note_path("another"), msgspec.json.encode(note))
            await delete(path)

        monkeypatch.setattr(here.store, "delete", note_just_before)
        assert await catalog.retain(1) == [first]
        monkeypatch.undo()
        assert await catalog.retain(1) == []
        assert [path for path in needed if path not in here.store.content] == []
        here.store.age_s = 90_000.0
        await catalog.retain(1)
        assert [path for path in needed if path not in here.store.content] != []
        assert await catalog.names() == [second]


@pytest.mark.parametrize("how", ["missing", "broken"])
async def test_one_that_can_not_be_read_says_what_became_of_the_cluster(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with world() as here:
        taken = await here.take()
        read, left = here.store.read, 0

        async def read_or_fail(path: str) -> bytes:
            nonlocal left
            left -= path.startswith("parts/")
            if left < 0 and path.startswith("parts/"):
                raise Missing("it") if how == "missing" else StoreFailed("the place is broken")
            return await read(path)

        monkeypatch.setattr(here.store, "read", read_or_fail)
        error = SnapshotDamaged if how == "missing" else StoreFailed
        with pytest.raises(error, match="Nothing was changed"):
            await restore(here, taken.name)
        left = 4
        with pytest.raises(error, match="Nodes keep out of what was restored so far: run it again, or restore another"):
            await restore(here, taken.name, memory_bytes_max=1)


async def test_a_marker_that_is_lost_does_not_make_a_restore_older_than_what_it_replaces(autojump_clock: Any) -> None:
    """The heads tell which incarnation was here: one below it could never take its place, however often it is run."""
    there = MemoryCluster(partitions=3).connect()
    before = await find_or_form(there, "before", now_ms=1_790_000_000_000)
    await there.delete(Map.NODES, 0, MARKER)
    async with world() as here:
        taken = await here.take()
        assert before.incarnation > taken.incarnation + 1
        with trio.fail_after(60):
            result = await restore_snapshot(there, here.store, here.client.now_ms, RestoreOptions(replace=True))
        assert result.incarnation > before.incarnation


@pytest.mark.parametrize("call", ["set_together", "delete"])
async def test_what_a_restore_wrote_and_arrives_late_changes_nothing_that_was_done_since(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async with world() as here, trio.open_nursery() as nursery:
        await here.take()
        await here.client.defining.schedule("plain", "b", {})  # the snapshot does not have it
        grid: Any = here.cluster.connect()
        write, landed = getattr(grid, call), list[float]()

        async def once_late(map: Map, *arguments: Any, **options: Any) -> None:
            if map is not Map.JOBS or landed:
                return await write(map, *arguments, **options)
            landed.append(trio.current_time())
            nursery.start_soon(land, partial(write, map, *arguments, **options))
            raise Unknown("the answer is late")

        async def land(late: Any) -> None:
            await trio.sleep(20)
            await late()
            landed.append(trio.current_time())

        monkeypatch.setattr(grid, call, once_late)
        await restore_snapshot(grid, here.store, here.client.now_ms, RestoreOptions(replace=True))
        async with open_client(here.cluster.connect(), registry=REGISTRY, now_ms=here.client.now_ms) as client:
            await client.defining.want("a", "removed")
            await client.defining.schedule("plain", "b", {})
            await trio.sleep(30)
            assert len(landed) == 2
            assert await client.defining.missing(["a", "b"]) == ["a"]


async def test_a_restore_that_follows_one_that_was_interrupted_lets_its_late_writes_land(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        await here.take()
        options = RestoreOptions(replace=True)
        with trio.move_on_after(60):
            grid: Any = here.cluster.connect()

            async def stands_still(*arguments: Any, **options: Any) -> None:
                await trio.sleep_forever()

            monkeypatch.setattr(grid, "set_together", stands_still)
            await restore_snapshot(grid, here.store, here.client.now_ms, options)
        began_s = trio.current_time()
        await restore_snapshot(here.cluster.connect(), here.store, here.client.now_ms, options)
        assert trio.current_time() - began_s > 30
        began_s = trio.current_time()
        await restore_snapshot(here.cluster.connect(), here.store, here.client.now_ms, options)
        assert trio.current_time() - began_s < 15
