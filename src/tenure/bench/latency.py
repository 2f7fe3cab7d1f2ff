"""`ask`, one at a time, on an idle cluster: from the call to the committed answer."""

import time
from typing import Any, cast

from tenure.bench.application import Counter
from tenure.bench.clusters import fresh_cluster, schedule, states
from tenure.bench.figures import percentile

__all__ = ["measure_latency"]

JOBS = 200
WARM_UP = 300


async def measure_latency(questions: int = 3_000) -> dict[str, Any]:
    """One client, one question in flight, jobs in turn."""
    async with fresh_cluster(nodes=1) as (_, client):
        ids = [f"job-{n}" for n in range(JOBS)]
        await schedule(client, "bench-counter", ids)
        took_ms = []
        for n in range(WARM_UP + questions):
            began_s = time.perf_counter()
            await client.ask(ids[n % JOBS], {"n": 1})
            took_ms.append((time.perf_counter() - began_s) * 1000)
        total = sum(cast(Counter, state).total for state in (await states(client, ids)).values())
    measured = took_ms[WARM_UP:]
    return {
        "latency_p50_ms": percentile(measured, 50),
        "latency_p99_ms": percentile(measured, 99),
        "latency_max_ms": max(measured),
        "exact": total == WARM_UP + questions,
    }
