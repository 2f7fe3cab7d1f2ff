"""The measurements on the memory grid, by name."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenure.bench.memory_idle import measure_idle, measure_opening, measure_takeover
from tenure.bench.memory_throughput import measure

__all__ = ["MEASUREMENTS"]

MESSAGES = 400_000
ASYNC_MESSAGES = 200_000
IDLE_JOBS = 1_000_000
TAKEOVER_JOBS = 100_000
OPENING_JOBS = 50_000


async def _plain() -> dict[str, Any]:
    return await measure("bench-counter", MESSAGES)


async def _async() -> dict[str, Any]:
    figures = await measure("bench-async-counter", ASYNC_MESSAGES)
    return {name if name == "exact" else f"async_{name}": figure for name, figure in figures.items()}


async def _idle() -> dict[str, Any]:
    return await measure_idle(IDLE_JOBS)


async def _takeover() -> dict[str, Any]:
    return await measure_takeover(TAKEOVER_JOBS)


async def _opening() -> dict[str, Any]:
    """The same partition with n, 2 n and 4 n jobs: the time for each job stays what it is."""
    found = [await measure_opening(OPENING_JOBS * factor) for factor in (1, 2, 4)]
    return {
        "opening_jobs": [one["open_jobs"] for one in found],
        "opening_bytes": [one["open_bytes"] for one in found],
        "opening_s": [one["open_s"] for one in found],
        "opening_ns_per_byte": [1e9 * one["open_s"] / one["open_bytes"] for one in found],
        "exact": all(one["exact"] for one in found),
    }


MEASUREMENTS: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
    "throughput": _plain,
    "async": _async,
    "idle": _idle,
    "takeover": _takeover,
    "opening": _opening,
}
