"""Durable timers that are all due at the same instant: how late each is."""

import time
from typing import Any, cast

import trio

from tenure.bench.application import Alarm, now_ms
from tenure.bench.clusters import each, fresh_cluster, states
from tenure.bench.figures import percentile

__all__ = ["measure_timers"]

LEAD_S = 12.0
WITHIN_S = 30.0


async def measure_timers(timers: int = 10_000, *, nodes: int = 1) -> dict[str, Any]:
    """One job per timer; it notes how late its handler ran. All of them are committed before the instant comes."""
    async with fresh_cluster(nodes=nodes) as (_, client):
        ids = [f"alarm-{n}" for n in range(timers)]

        async def schedule(id: str) -> None:
            await client.defining.schedule("bench-alarm", id, {})

        await each(ids, schedule)
        due_ms = now_ms() + round(LEAD_S * 1000)
        await client.publish_many([(id, {"due_ms": due_ms}) for id in ids])
        armed = await states(client, ids)
        in_time = now_ms() < due_ms and all(cast(Alarm, alarm).due_ms == due_ms for alarm in armed.values())
        await trio.sleep(max(0.0, due_ms / 1000 - time.time()) + 1.0)
        rung = await _rung(client, ids)
    late_ms = [alarm.late_ms for alarm in rung]
    return {
        "timers_late_p50_ms": percentile(late_ms, 50),
        "timers_late_p99_ms": percentile(late_ms, 99),
        "timers_late_max_ms": max(late_ms),
        "exact": in_time and all(alarm.rung == 1 for alarm in rung),
    }


async def _rung(client: Any, ids: list[str]) -> list[Alarm]:
    deadline_s = trio.current_time() + WITHIN_S
    while True:
        alarms = [cast(Alarm, alarm) for alarm in (await states(client, ids)).values()]
        if all(alarm.rung for alarm in alarms) or trio.current_time() > deadline_s:
            return alarms
        await trio.sleep(0.5)
