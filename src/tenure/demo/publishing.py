"""The demo's load: messages from each sender to all jobs, evenly over its time, in an order the seed decides."""

import time
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import trio

from tenure.scheduler.client import GridClient

__all__ = ["Load"]

TICK_S = 0.5
"""Between a sender's batches. Smaller ones mean more lane slots and commits for the same messages: on a machine that
runs the whole cluster, that is what it would be busy with."""
DEADLINE_S = 120.0


class Load:
    """What one sender sends. `acknowledged` counts only what the grid has confirmed."""

    def __init__(self, sender: str, jobs: list[str], count: int, seed: int, *, offset_s: float = 0.0) -> None:
        self.sender, self.count, self.offset_s = sender, count, offset_s
        self.acknowledged: dict[tuple[str, str], int] = defaultdict(int)
        self.acknowledged_count = 0
        self._numbers: dict[str, int] = defaultdict(int)
        order = [jobs[n % len(jobs)] for n in range(count)]
        Random(f"{seed} {sender}").shuffle(order)
        self._order = order

    async def publish(self, client: GridClient, duration_s: float, on_stored: Callable[[int], None]) -> None:
        """All of it, in so many seconds, whatever happens to the cluster. Returns when all is acknowledged."""
        await trio.sleep(self.offset_s)
        began_s, start = trio.current_time(), 0
        async with trio.open_nursery() as nursery:
            while start < self.count:
                elapsed_s = trio.current_time() - began_s
                end = min(self.count, max(start + 1, round(self.count * elapsed_s / duration_s)))
                # Beside each other, so that a partition that waits for its new owner holds up only itself. They
                # keep their order: each is in its lanes before the next begins.
                nursery.start_soon(self._publish, client, self._batch(start, end), on_stored)
                start = end
                await trio.sleep(TICK_S)

    def _batch(self, start: int, end: int) -> list[tuple[str, Any]]:
        at_ms, batch = time.time_ns() // 1_000_000, []
        for job in self._order[start:end]:
            self._numbers[job] += 1
            batch.append((job, {"sender": self.sender, "n": self._numbers[job], "at_ms": at_ms}))
        return batch

    async def _publish(
        self, client: GridClient, batch: list[tuple[str, Any]], on_stored: Callable[[int], None]
    ) -> None:
        await client.publish_many(batch, deadline_s=DEADLINE_S)
        for job, message in batch:
            key = job, self.sender
            self.acknowledged[key] = max(self.acknowledged[key], message["n"])
        self.acknowledged_count += len(batch)
        on_stored(len(batch))
