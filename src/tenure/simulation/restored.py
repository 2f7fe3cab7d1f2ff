"""A world of its own, made of a snapshot. Its grid has no faults: whatever is wrong there was in the snapshot."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random

import trio

from tenure.listeners import listening
from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.node import Node
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.stores import Memory
from tenure.simulation.histories import Findings
from tenure.simulation.stage import World

__all__ = ["judge_snapshot", "restored_world"]

QUIET_S_MAX = 60.0


@asynccontextmanager
async def restored_world(
    world: World, store: Memory, name: str, registry: Registry, partitions: int, launchers: Mapping[str, Launcher]
) -> AsyncIterator[GridClient]:
    """A client of a cluster of one node, into which this snapshot was restored."""
    cluster = MemoryCluster(partitions=partitions)
    async with trio.open_nursery() as nursery:
        grid = cluster.connect()
        await restore_snapshot(grid, store, world.wall_ms, RestoreOptions(name=name))
        nursery.start_soon(_run_node, world, cluster, registry, launchers)
        async with open_client(
            grid, settings=world.plan.client_settings, registry=registry, now_ms=world.wall_ms
        ) as client:
            yield client
        nursery.cancel_scope.cancel()


async def _run_node(
    world: World, cluster: MemoryCluster, registry: Registry, launchers: Mapping[str, Launcher]
) -> None:
    grid = cluster.connect()
    formed = await find(grid)
    assert formed is not None
    host = Host(
        grid,
        "restored",
        registry,
        world.wall_ms,
        formed.formation,
        formed.incarnation,
        settings=world.plan.settings,  # as coarse in virtual time
        random=Random(f"{world.seed} restored"),
        report=lambda text: None,
        tell=lambda text: None,
        log_failure=lambda text, traceback: None,
        log_error=lambda text, error: world.blame("restored", error),
        launchers=launchers,
    )
    await Node(host, listening, name="restored").run()


async def judge_snapshot(
    world: World,
    store: Memory,
    name: str,
    registry: Registry,
    judge: Callable[[GridClient], Awaitable[Findings]],
    *,
    partitions: int,
    launchers: Mapping[str, Launcher] | None = None,
) -> Findings:
    """Restore it, and judge again and again until nothing is waiting; what still is then, is wrong."""
    found = Findings()
    verdict = await Catalog(store).verify(name)
    found.wrong += (f"snapshot: {problem}" for problem in verdict.problems)
    async with restored_world(world, store, name, registry, partitions, launchers or {}) as client:
        found.add(await _await_quiet(client, judge))
    found.wrong = [f"restored from snapshot {name}: {wrong}" for wrong in found.wrong]
    return found


async def _await_quiet(client: GridClient, judge: Callable[[GridClient], Awaitable[Findings]]) -> Findings:
    deadline_s = trio.current_time() + QUIET_S_MAX
    while True:
        found = await judge(client)
        if found.wrong or not found.waiting:
            return found
        if trio.current_time() >= deadline_s:
            return Findings(wrong=[f"not quiet: {'; '.join(found.waiting)}"])
        await trio.sleep(1.0)
