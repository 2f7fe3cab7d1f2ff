"""The right to restore: where it comes to nothing, the cluster is as it was, and its nodes are let in again."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from msgspec import Raw
from msgspec.structs import replace

from tenure.scheduler.cluster import ALIVE_S, MARKER, Cluster, find, find_or_form
from tenure.scheduler.errors import NotDone
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Entry, Grid, Map, Unknown
from tenure.scheduler.snapshots.claim import HELD_S, Claim
from tenure.scheduler.snapshots.errors import NotRestorable
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.wire import Definition, decode, encode

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


async def marker_of(grid: Grid) -> Cluster:
    return decode(await grid.get(Map.NODES, 0, MARKER) or b"", Cluster)


async def test_it_ends_also_where_its_last_beat_was_cut_short(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    claim = await taken(grid, replaces_jobs=True)
    await settle_to_the_end(claim)
    replace_if_same, moved = grid.replace_if_same, trio.Event()

    async def never_answered(*args: Any, **options: Any) -> bool:
        await replace_if_same(*args, **options)
        moved.set()
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        monkeypatch.setattr(grid, "replace_if_same", never_answered)
        nursery.start_soon(claim.keep)
        await moved.wait()
        nursery.cancel_scope.cancel()
    monkeypatch.setattr(grid, "replace_if_same", replace_if_same)
    await claim.end()
    assert (await marker_of(grid)).formed
    assert not (await marker_of(grid)).restoring


async def settle_to_the_end(claim: Claim) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        await claim.settle()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("replaces_jobs", [True, False])
async def test_one_that_was_killed_before_all_had_noticed_leaves_jobs_to_be_asked_for(
    autojump_clock: Any, replaces_jobs: bool
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    killed = await taken(grid, replaces_jobs=replaces_jobs)
    await grid.set(Map.JOBS, 1, b"new", encode(Definition("t", Raw(b"\x80"), 1, 1, "running")))
    if replaces_jobs:  # another, who was asked to, goes on, and is killed as well
        await taken(grid, replaces_jobs=True)
    with pytest.raises(NotRestorable, match=r"'new' for one.*snapshot n was interrupted here.*are let in again"):
        await taken(grid)
    assert await grid.get(Map.NODES, 0, MARKER) == before, "it is whole, and open again"
    with pytest.raises(NotRestorable, match="another has taken over"):
        await killed._change(settled=True)  # it had only slept
    again = await taken(grid, replaces_jobs=True)
    await settle_to_the_end(again)
    assert (await marker_of(grid)).settled


async def test_one_of_an_older_version_that_was_killed_leaves_jobs_to_be_asked_for(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    monkeypatch.setattr(Claim, "_former", lambda claim: b"")
    await taken(grid)
    left = await grid.get(Map.NODES, 0, MARKER)
    await grid.set(Map.JOBS, 1, b"new", encode(Definition("t", Raw(b"\x80"), 1, 1, "running")))
    with pytest.raises(NotRestorable, match=r"'new' for one.*snapshot n was interrupted here.*--replace"):
        await taken(grid)
    assert await grid.get(Map.NODES, 0, MARKER) == left


@pytest.mark.parametrize("is_applied", ["at once", "late", "never"])
@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("formed", [True, False])
async def test_where_its_first_step_is_not_answered_all_is_as_it_was(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, is_applied: str, is_cancelled: bool, formed: bool
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    if formed:
        await find_or_form(grid, "before")
    before = await grid.get(Map.NODES, 0, MARKER)
    first = "replace_if_same" if formed else "put_if_absent"
    real, late = getattr(grid, first), list[Any]()

    async def unanswered(*arguments: Any) -> Any:
        monkeypatch.setattr(grid, first, real)
        if is_applied == "at once":
            await real(*arguments)
        elif is_applied == "late":
            late.append(arguments)
        if is_cancelled:
            await trio.sleep_forever()
        raise Unknown("no answer")

    monkeypatch.setattr(grid, first, unanswered)
    if is_cancelled:
        with trio.move_on_after(1):
            await taken(grid)
    else:
        with pytest.raises(NotDone, match="nothing was changed"):
            await taken(grid)
    for arguments in late:
        await real(*arguments)
    there = await grid.get(Map.NODES, 0, MARKER)
    if formed:
        assert before is not None
        assert there is not None
        assert replace(decode(there, Cluster), beat=0) == decode(before, Cluster)
    elif not late:  # where there was no cluster, none is kept out of what is left of one that comes late
        assert there is None


async def test_one_whose_machine_slept_writes_nothing_before_its_next_beat(autojump_clock: Any) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    slept_s = 0.0
    claim = Claim(grid, "after", replaces_jobs=True, now_s=lambda: trio.current_time() + slept_s)
    await claim.look()
    await claim.take(MANIFEST, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        await trio.sleep(20)
        with trio.fail_after(0):
            await claim.hold()
        slept_s = 3600.0
        began_s = trio.current_time()
        await claim.hold()
        assert 0 < trio.current_time() - began_s < 2
        nursery.cancel_scope.cancel()


async def test_what_comes_before_all_have_noticed_is_kept_also_by_who_follows_one_that_was_killed(
    autojump_clock: Any,
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    await taken(grid)
    again = await taken(grid)
    await grid.set(Map.JOBS, 1, b"new", encode(Definition("t", Raw(b"\x80"), 1, 1, "running")))
    with pytest.raises(NotRestorable, match="'new'"):
        await again.settle()


async def test_one_that_was_killed_while_it_wrote_is_followed_unasked(autojump_clock: Any) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    await settle_to_the_end(await taken(grid, replaces_jobs=True))  # and killed
    await grid.set(Map.JOBS, 1, b"half", encode(Definition("t", Raw(b"\x80"), 1, 1, "running")))
    await taken(grid)  # and killed: what is here is half written all the same
    again = await taken(grid)
    await settle_to_the_end(again)
    await again.end()
    formed = await find(grid)
    assert formed is not None
    assert not formed.settled


async def test_nothing_is_written_while_it_is_not_known_to_be_ours(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryCluster(partitions=3).connect()
    await find_or_form(grid, "before")
    claim = await taken(grid, replaces_jobs=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        await trio.sleep(20)
        with trio.fail_after(0):
            await claim.hold()
        silences = Silences(grid, monkeypatch)
        silences.left["replace_if_same"] = float("inf")
        await trio.sleep(HELD_S + 1.5)
        with trio.move_on_after(ALIVE_S) as held:
            await claim.hold()
        assert held.cancelled_caught
        silences.left.clear()
        with trio.fail_after(3):
            await claim.hold()
        nursery.cancel_scope.cancel()
