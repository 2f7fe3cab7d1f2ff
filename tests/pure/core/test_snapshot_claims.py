"""The right to restore: where it comes to nothing, the cluster is as it was, and its nodes are let in again."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from msgspec import Raw

from tenure.scheduler.cluster import MARKER, find_or_form
from tenure.scheduler.errors import NotDone
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Entry, Grid, Map, Unknown
from tenure.scheduler.snapshots.claim import Claim
from tenure.scheduler.snapshots.errors import NotRestorable
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.wire import Definition, encode

MANIFEST = Manifest("n", 1, "f", 1, 3, [], 0, 0, 0, 0.0)


class Silences:
    """So many calls for a marker or a definition are not answered."""

    def __init__(self, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: dict[str, float] = {}
        self.from_scan: dict[str, float] = {}
        for name in ("get", "delete", "replace_if_same"):
            monkeypatch.setattr(grid, name, self._silenced(name, getattr(grid, name)))
        scan = grid.scan

        def silenced_scan(map: Map, partition: int, **options: Any) -> AsyncIterator[list[Entry]]:
            self.left |= self.from_scan
            self._take("scan")
            return scan(map, partition, **options)

        monkeypatch.setattr(grid, "scan", silenced_scan)

    def _take(self, name: str) -> None:
        if self.left.get(name, 0) > 0:
            self.left[name] -= 1
            raise Unknown("no answer")

    def _silenced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def silenced(*args: Any, **options: Any) -> Any:
            await trio.lowlevel.checkpoint()
            self._take(name)
            return await call(*args, **options)

        return silenced


async def taken(grid: Grid, *, replaces_jobs: bool = False) -> Claim:
    claim = Claim(grid, "after", replaces_jobs=replaces_jobs)
    await claim.look()
    await claim.take(MANIFEST, 2)
    return claim


async def settle(claim: Claim) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        await claim.settle()


@pytest.mark.parametrize("formed", [True, False])
async def test_it_is_given_back_also_where_members_answer_late(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, formed: bool
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    if formed:
        await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    silences = Silences(grid, monkeypatch)
    claim = await taken(grid)
    assert await grid.get(Map.NODES, 0, MARKER) != before
    await grid.set(Map.JOBS, 1, b"new", encode(Definition("t", Raw(b"\x80"), 1, 1, "running")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        await trio.sleep(0.5)
        silences.from_scan = {"delete": 5, "replace_if_same": 5, "get": 5}
        with pytest.raises(NotRestorable, match="'new'"):
            await claim.settle()
        silences.left.clear()
        assert await grid.get(Map.NODES, 0, MARKER) == before
        await trio.sleep(5)  # nobody says any more that it is being restored
        nursery.cancel_scope.cancel()
    assert await grid.get(Map.NODES, 0, MARKER) == before


async def test_members_that_do_not_say_what_is_there_are_named(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    silences = Silences(grid, monkeypatch)
    claim = await taken(grid)
    silences.left["scan"] = 1
    with pytest.raises(NotDone, match="do not answer: no answer; nothing was changed"):
        await claim.settle()
    assert await grid.get(Map.NODES, 0, MARKER) == before


async def test_it_is_given_back_when_it_is_interrupted_before_anything_is_changed(autojump_clock: Any) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    claim = await taken(grid, replaces_jobs=True)
    with trio.move_on_after(0.5) as interrupted:
        await settle(claim)
    assert interrupted.cancelled_caught
    assert await grid.get(Map.NODES, 0, MARKER) == before


async def test_it_is_given_back_also_where_its_last_beat_has_not_been_answered(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    claim = await taken(grid, replaces_jobs=True)
    replace_if_same = grid.replace_if_same

    async def silent(*args: Any, **options: Any) -> bool:
        await replace_if_same(*args, **options)
        raise Unknown("it was done, and nobody says so")

    with trio.move_on_after(1.55):  # while its first beat is tried again
        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim.settle)
            await trio.sleep(0.5)
            monkeypatch.setattr(grid, "replace_if_same", silent)
            nursery.start_soon(claim.keep)
            try:
                await trio.sleep_forever()
            finally:
                monkeypatch.setattr(grid, "replace_if_same", replace_if_same)
    assert await grid.get(Map.NODES, 0, MARKER) == before


async def test_what_could_not_be_given_back_is_said(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    silences = Silences(grid, monkeypatch)
    claim = await taken(grid)
    silences.from_scan = {"scan": 1, "replace_if_same": float("inf")}
    with pytest.raises(NotDone, match="which keeps nodes out: run `tenure restore` again"):
        await claim.settle()
