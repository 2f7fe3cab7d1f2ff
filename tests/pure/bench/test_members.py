"""The measurements on real members, small and on members in memory: the last line has every figure that is promised.

(That of the start-up takes a real member: see `tests/cluster/test_startup.py`.)
"""

import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tenure.bench import clusters, command, latency, main, operations, pauses, rolling, scaling, throughput, timers
from tenure.bench.hazelcast import MEASUREMENTS
from tenure.scheduler.client import GridClient
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.memory_cluster import MemoryBackend, open_memory

FIGURES = {
    "messages_per_s",
    "latency_p50_ms",
    "latency_p99_ms",
    "timers_late_p99_ms",
    "handoff_pause_ms",
    "node_kill_pause_ms",
    "member_kill_pause_ms",
    "rss_mib",
    "exact",
}


@asynccontextmanager
async def in_memory(*, nodes: int, members: int = 2) -> AsyncIterator[tuple[MemoryBackend, GridClient]]:
    plan = Plan(
        nodes=nodes,
        members=members,
        grid="memory",
        app=str(clusters.APPLICATION),
        partitions=None,
        backups=1,
        settings=NodeSettings(),
        seed=0,
        start=None,
        faults=None,
    )
    async with open_memory(plan) as cluster, cluster.open_client(None, None) as client:
        yield cluster, client


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Awaitable[dict[str, Any]]]]:
    """The same measurements, of little."""
    for module in (latency, pauses, throughput, timers):
        monkeypatch.setattr(module, "fresh_cluster", in_memory)
    for module, name, value in (
        (throughput, "WARM_UP", 100),
        (latency, "WARM_UP", 10),
        (latency, "JOBS", 10),
        (pauses, "JOBS", 40),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(pauses.measure_pause.__kwdefaults__, "per_second", 200)
    return {
        **MEASUREMENTS,
        "throughput": partial(throughput.measure_throughput, 1_000, jobs=20),
        "latency": partial(latency.measure_latency, 50),
        "timers": partial(timers.measure_timers, 20),
    }


def test_the_last_line_has_every_figure(
    small: dict[str, Callable[[], Awaitable[dict[str, Any]]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured(grid: str, name: str) -> dict[str, Any]:
        return trio.run(small[name], clock=MockClock(autojump_threshold=0))

    monkeypatch.setattr(command, "_in_own_process", measured)
    names = [name for name in MEASUREMENTS if name != "startup"]
    assert main(["--only", ",".join(names), "--json"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results.keys() >= FIGURES
    assert results["exact"] is True
    assert results["handoff_messages_per_s"] > 0


async def one_after_the_other(_rolling: Any, cluster: Any, _random: Any) -> None:
    """In place of `tenure upgrade`, which starts processes."""
    for number in range(2):
        await cluster.add_node()
        await cluster.drain(number)


async def two_nodes(_rolling: Any, cluster: Any) -> None:
    for _ in range(2):
        await cluster.add_node()


def test_so_has_that_of_operations(
    small: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of those that take no processes: what is measured of snapshots and autoscalers needs real ones."""
    monkeypatch.setattr(scaling, "PER_S", 200)
    monkeypatch.setattr(rolling, "MESSAGES_PER_S", 200)
    monkeypatch.setattr(rolling._Rolling, "begin", two_nodes)
    monkeypatch.setattr(rolling._Rolling, "upgrade", one_after_the_other)

    def measured(_arguments: list[str], name: str, _timeout_s: float) -> dict[str, Any]:
        module, _, function = operations.PARTS[name].partition(":")
        measure = getattr(importlib.import_module(f"tenure.bench.{module}"), function)
        figures: dict[str, Any] = trio.run(measure, clock=MockClock(autojump_threshold=0))
        return figures

    monkeypatch.setattr(operations, "in_own_process", measured)
    assert main(["operations", "--only", "member-change,rolling", "--json"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results.keys() >= {"member_change_pause_ms", "rolling_pause_ms", "exact"}
    assert results["exact"] is True
    assert results["rolling_messages_per_s"] > 0
