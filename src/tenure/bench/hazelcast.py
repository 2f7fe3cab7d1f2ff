"""The measurements on real members, by name."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenure.bench.latency import measure_latency
from tenure.bench.pauses import measure_handoff, measure_member_kill, measure_node_kill
from tenure.bench.startup import measure_startup
from tenure.bench.throughput import measure_throughput
from tenure.bench.timers import measure_timers

__all__ = ["MEASUREMENTS"]

MEASUREMENTS: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
    "throughput": measure_throughput,
    "latency": measure_latency,
    "timers": measure_timers,
    "handoff": measure_handoff,
    "node-kill": measure_node_kill,
    "member-kill": measure_member_kill,
    "startup": measure_startup,
}
