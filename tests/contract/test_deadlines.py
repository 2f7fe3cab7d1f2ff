"""Every call ends: with its outcome, or by its deadline; and one that is given up on harms nobody."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from tenure.scheduler.grid.port import Grid, GridError, Map, Unknown
from tests.contract.adapters import Adapter
from tests.contract.helpers import eventually, primary_partitions, scanned, surely

Call = Callable[[Grid, int, bytes, float | None], Awaitable[object]]


async def _scan(grid: Grid, partition: int, key: bytes, timeout_s: float | None) -> object:
    return [page async for page in grid.scan(Map.JOBS, partition, timeout_s=timeout_s)]


CALLS: dict[str, Call] = {
    "get": lambda grid, p, key, t: grid.get(Map.JOBS, p, key, timeout_s=t),
    "get_all": lambda grid, p, key, t: grid.get_all(Map.JOBS, p, [key], timeout_s=t),
    "set": lambda grid, p, key, t: grid.set(Map.JOBS, p, key, b"late", timeout_s=t),
    "put_if_absent": lambda grid, p, key, t: grid.put_if_absent(Map.JOBS, p, key, b"late", timeout_s=t),
    "replace_if_same": lambda grid, p, key, t: grid.replace_if_same(Map.JOBS, p, key, b"x", b"late", timeout_s=t),
    "remove_if_same": lambda grid, p, key, t: grid.remove_if_same(Map.JOBS, p, key, b"y", timeout_s=t),
    "delete": lambda grid, p, key, t: grid.delete(Map.JOBS, p, key, timeout_s=t),
    "scan": _scan,
}


async def test_calls_to_a_paused_primary_end_unknown_at_their_deadline(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        paused, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            partition, free = primary_partitions(grid, paused)[0], primary_partitions(grid, others[0])[0]
            key = rig.fresh()
            await grid.set(Map.JOBS, partition, key, b"x")
            await grid.set(Map.JOBS, free, key, b"free")
            took_s: dict[str, float] = {}

            async def end_unknown(name: str, call: Call) -> None:
                began = trio.current_time()
                with pytest.raises(Unknown):
                    await call(grid, partition, key, 0.7)
                took_s[name] = trio.current_time() - began

            await rig.pause_member(paused)
            try:
                with trio.fail_after(10):
                    async with trio.open_nursery() as nursery:
                        for name, call in CALLS.items():
                            nursery.start_soon(end_unknown, name, call)
                assert await grid.get(Map.JOBS, free, key) == b"free", "one paused member stops its own partitions only"
                grid.discard(Map.JOBS, partition, [key])
            finally:
                await rig.unpause_member(paused)
            assert sorted(took_s) == sorted(CALLS)
            assert all(0.65 <= seconds <= 0.7 + rig.slack_s for seconds in took_s.values()), took_s
            await surely(lambda: grid.set(Map.JOBS, partition, key + b"after", b"y"), rig.fault_s)
            assert await surely(lambda: grid.get(Map.JOBS, partition, key), rig.fault_s) in (None, b"x", b"late")


async def test_a_call_without_a_deadline_of_its_own_has_one(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        paused, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            partition = primary_partitions(grid, paused)[0]
            await rig.pause_member(paused)
            try:
                with trio.fail_after(5):
                    with pytest.raises(Unknown):
                        await grid.put_if_absent(Map.JOBS, partition, rig.fresh(), b"x")
            finally:
                await rig.unpause_member(paused)


async def test_a_cancelled_call_returns_at_once_and_tears_nothing_down(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        paused, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            partition, free = primary_partitions(grid, paused)[0], primary_partitions(grid, others[0])[0]
            key = rig.fresh()
            await rig.pause_member(paused)
            try:
                for call in CALLS.values():
                    began = trio.current_time()
                    with trio.move_on_after(0.1) as scope:
                        await call(grid, partition, key, 60)
                    assert scope.cancelled_caught
                    assert trio.current_time() - began <= 0.1 + rig.slack_s
                assert await grid.get(Map.JOBS, free, key) is None
            finally:
                await rig.unpause_member(paused)
            await surely(lambda: grid.set(Map.JOBS, partition, key + b"after", b"y"), rig.fault_s)
            assert await surely(lambda: grid.get(Map.JOBS, partition, key + b"after"), rig.fault_s) == b"y"


async def test_a_call_in_a_cancelled_scope_is_cancelled(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        for call in CALLS.values():
            with trio.CancelScope() as scope:
                scope.cancel()
                await call(grid, 30, key, None)
            assert scope.cancelled_caught
        await surely(lambda: grid.set(Map.JOBS, 30, key, b"y"), rig.fault_s)
        assert [entry.value for entry in await scanned(grid, Map.JOBS, 30, key)] == [b"y"]


async def test_a_closed_connection_answers_no_more_and_others_go_on(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as other:
        key = rig.fresh()
        async with rig.connect() as grid:
            await grid.set(Map.JOBS, 31, key, b"x")
        for call in CALLS.values():
            with pytest.raises((trio.ClosedResourceError, GridError)):
                await call(grid, 31, key, 1)
        assert await other.get(Map.JOBS, 31, key) == b"x"


async def test_closing_ends_calls_that_wait(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        paused, *others = reversed(await rig.members())
        key = rig.fresh()
        ended: list[str] = []

        async def end(name: str, call: Call, grid: Grid, partition: int) -> None:
            with pytest.raises((trio.ClosedResourceError, GridError)):
                await call(grid, partition, key, 2)
            ended.append(name)

        async with trio.open_nursery() as nursery:
            async with rig.connect(others[0]) as grid:
                partition = primary_partitions(grid, paused)[0]
                await rig.pause_member(paused)
                for name, call in CALLS.items():
                    nursery.start_soon(end, name, call, grid, partition)
                await trio.sleep(0.3)
            await eventually(lambda: len(ended) == len(CALLS), 2 + rig.slack_s)
            await rig.unpause_member(paused)
        assert sorted(ended) == sorted(CALLS)
