"""Members and nodes that come and go under a steady load: how long jobs stand still, and how soon lag is back."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import trio

import tenure
from tenure.bench.apart import NotMeasured
from tenure.bench.application import Autoscaler, Waiter
from tenure.bench.clusters import APPLICATION, fresh_cluster, schedule, states
from tenure.bench.pauses import Load, measure_pause
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.nodes_seen import said_nodes
from tenure.scheduler.settings import NodeSettings
from tenure.testing.hazelcast_cluster import HazelcastBackend

__all__ = ["measure_autoscale", "measure_member_change"]

SETTLE_S = 4.0
FOLLOW_S = NodeSettings().still_s + 9.0
"""Partitions follow when the data has come to rest, some at a time."""
PER_S = 2_000
"""As under snapshots: a member that starts takes a processor for some seconds, and there must be one."""

TURNS_AT_ONCE = 2
CALM_PER_S, STEP_PER_S = 50, 550
"""A node can do at most 400 in a second, as its turns wait for 5 ms and it runs two at once."""
JOBS = 200
NODES_MAX = 4
LAG_HIGH = 200
CALM_S, AFTER_S = 6.0, 12.0
LOOK_S = 0.1
WITHIN_S = 60.0


async def measure_member_change() -> dict[str, Any]:
    """A member is added to two; a little later it is removed in peace, and partitions follow their data."""
    return await measure_pause("member_change", 2, _add_and_remove, per_second=PER_S, after_s=FOLLOW_S)


async def _add_and_remove(cluster: HazelcastBackend, random: Random) -> None:
    number = await cluster.add_member()
    await trio.sleep(SETTLE_S)
    await cluster.remove_member(number)


async def measure_autoscale() -> dict[str, Any]:
    """The load goes up in a step to what one node can't carry: how long until lag is back under its high mark, for
    good."""
    settings = NodeSettings(turns_at_once_max=TURNS_AT_ONCE)
    async with _own_state(), fresh_cluster(nodes=1, settings=settings) as (_, client):
        ids = [f"job-{n}" for n in range(2 * JOBS)]
        await schedule(client, "bench-waiter", ids)
        await client.defining.schedule("autoscaler", "node", _autoscaler())
        calm, step = Load(client, ids[:JOBS], CALM_PER_S), Load(client, ids[JOBS:], STEP_PER_S)
        ended = trio.Event(), trio.Event()
        watch = _Watch(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calm.run, ended[0])
            nursery.start_soon(watch.run)
            await trio.sleep(CALM_S)
            calm_lag, began_s = watch.lag_max, trio.current_time()
            nursery.start_soon(step.run, ended[1])
            await watch.back_again(began_s)
            calm.stop = step.stop = True
            for event in ended:
                await event.wait()
            nodes = watch.nodes
            waiters = await _all_done(client, ids, calm.sent + step.sent)
            nursery.cancel_scope.cancel()
        scaler = cast(Autoscaler, await client.state("node"))
        await _end_its_nodes(client)
    changes = [f"{change.nodes}: {change.why}" for change in scaler.changes]
    took_s = back_s(began_s, watch.high_s, watch.lag_max, changes)
    return {
        "autoscale_s": took_s,
        "autoscale_lag_max": watch.lag_max,
        "autoscale_calm_lag_max": calm_lag,
        "autoscale_nodes": nodes,
        "autoscale_changes": [change.nodes for change in scaler.changes],
        "autoscale_messages_per_s": calm.sent / calm.took_s + step.sent / step.took_s,
        "autoscale_missing": (missing := calm.sent + step.sent - sum(waiter.total for waiter in waiters)),
        "autoscale_disordered": (disordered := sum(waiter.disordered for waiter in waiters)),
        "exact": not missing and not disordered,
    }


def back_s(began_s: float, high_s: float, lag_max: float, changes: list[str]) -> float:
    """How long after the step lag was last above its mark. Nodes may come because the first one is busy, before lag has
    risen so far: then there is nothing that this measures."""
    if high_s > began_s:
        return high_s - began_s
    raise NotMeasured(
        f"autoscale could not be measured: after the step the lag was at most {lag_max:g} and never above its mark of "
        f"{LAG_HIGH}. Nodes were changed to {'; '.join(changes) or 'nothing else'}. Measure it again (--only autoscale)"
    )


async def _all_done(client: GridClient, ids: list[str], sent: int) -> list[Waiter]:
    """The jobs when they have had all their turns, or should have."""
    waiters: list[Waiter] = []
    with trio.move_on_after(WITHIN_S):
        while sum(waiter.total for waiter in waiters) < sent:
            # Of a job whose turn is waiting for something, the state is that of the turn before.
            await trio.sleep(1.0)
            waiters = [cast(Waiter, waiter) for waiter in (await states(client, ids)).values()]
    return waiters


def _autoscaler() -> dict[str, Any]:
    node = [sys.executable, "-m", "tenure.cli", "node", str(APPLICATION), "--name", "{name}"]
    return {
        "spawn": [*node, "--turns-at-once", str(TURNS_AT_ONCE)],
        "env": {"PYTHONPATH": str(Path(tenure.__file__).parents[1])},
        "nodes_max": NODES_MAX,
        "lag_high": LAG_HIGH,
        "lag_low": LAG_HIGH // 10,
    }


@asynccontextmanager
async def _own_state() -> AsyncIterator[None]:
    """What nodes keep of activities is of this measurement alone."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        before = os.environ.get("TENURE_STATE_DIR")
        os.environ["TENURE_STATE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TENURE_STATE_DIR"]
            else:
                os.environ["TENURE_STATE_DIR"] = before


class _Watch:
    """Follows the lag of a node, on average, as the nodes themselves say it."""

    def __init__(self, client: GridClient) -> None:
        self._grid = client.grid
        self.lag = self.lag_max = 0.0
        self.nodes = 0
        self.high_s = -float("inf")
        """When it was last above the high mark."""

    async def run(self) -> None:
        while True:
            try:
                nodes = [node for node in await said_nodes(self._grid) if not node.draining]
                self.nodes = len(nodes)
                self.lag = sum(node.load.waiting for node in nodes) / max(1, len(nodes))
                self.lag_max = max(self.lag_max, self.lag)
                if self.lag > LAG_HIGH:
                    self.high_s = trio.current_time()
            except GridError:
                pass
            await trio.sleep(LOOK_S)

    async def back_again(self, since_s: float) -> None:
        """Until it was above the mark, and then below it for a good while."""
        with trio.move_on_after(WITHIN_S):
            while not since_s < self.high_s < trio.current_time() - AFTER_S:  # noqa: ASYNC110  # no event tells
                await trio.sleep(LOOK_S)


async def _end_its_nodes(client: GridClient) -> None:
    """They outlive everything else: they are made to go, and waited for."""
    await client.directory.cancel("node")
    with trio.move_on_after(WITHIN_S):
        while await _has_nodes(client):  # noqa: ASYNC110  # no event tells
            await trio.sleep(LOOK_S)


async def _has_nodes(client: GridClient) -> bool:
    return any(not activity["ended_ms"] for activity in (await client.directory.describe("node"))["activities"])
