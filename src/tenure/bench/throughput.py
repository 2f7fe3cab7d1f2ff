"""Publish → handler → committed: how many messages a second, and what memory that takes."""

import time
from typing import Any, cast

from tenure.bench.application import Counter
from tenure.bench.clusters import footprint_mib, fresh_cluster, schedule, states
from tenure.scheduler.client import GridClient

__all__ = ["measure_throughput"]

JOBS = 1_000
CHUNK = 20_000
WARM_UP = 40_000


async def measure_throughput(messages: int = 400_000, *, nodes: int = 1, jobs: int = JOBS) -> dict[str, Any]:
    """From the first `publish_many` until every job's state, asked for behind its last message, is committed."""
    async with fresh_cluster(nodes=nodes) as (_, client):
        ids = [f"job-{n}" for n in range(jobs)]
        await schedule(client, "bench-counter", ids)
        await _publish(client, ids, WARM_UP)
        before = await _total(client, ids)
        began_s = time.perf_counter()
        await _publish(client, ids, messages)
        after = await _total(client, ids)
        took_s = time.perf_counter() - began_s
        rss_mib, pss_mib = footprint_mib()
    return {
        "messages_per_s": messages / took_s,
        "rss_mib": rss_mib,
        "pss_mib": pss_mib,
        "exact": before == WARM_UP and after == WARM_UP + messages,
    }


async def _publish(client: GridClient, ids: list[str], messages: int) -> None:
    for first in range(0, messages, CHUNK):
        count = min(CHUNK, messages - first)
        await client.publish_many([(ids[(first + n) % len(ids)], {"n": 1}) for n in range(count)], deadline_s=120)


async def _total(client: GridClient, ids: list[str]) -> int:
    return sum(cast(Counter, state).total for state in (await states(client, ids)).values())
