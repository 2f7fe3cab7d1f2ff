"""Snapshots between coordinators and owners: what either does when the other has forgotten, or is gone."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from tenure.listeners import listening
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.node import Node
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, Taken, take_snapshot
from tenure.scheduler.snapshots.desk import COORDINATOR_GONE_S
from tenure.scheduler.snapshots.errors import SnapshotFailed
from tenure.scheduler.snapshots.form import manifest_path
from tenure.scheduler.snapshots.request import CUT, REQUEST, Cut, Phase, Request
from tenure.scheduler.snapshots.stores import Memory, Stored, open_store
from tenure.scheduler.wire import decode, encode

SERIAL = itertools.count()


class Plain(Job):
    n: int = 0

    def on_message(self, ctx: Any, message: int) -> int:
        self.n += message
        return self.n


REGISTRY = Registry(JobType("plain", Plain))


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
