"""The job types that are measured."""

import time
from typing import Any

import trio

import tenure
from tenure.jobs import Autoscaler

__all__ = ["Account", "Alarm", "AsyncCounter", "Autoscaler", "Counter", "Gauge", "Waiter", "now_ms"]

WAIT_S = 0.005


def now_ms() -> int:
    """This machine's time."""
    return time.time_ns() // 1_000_000


@tenure.job("bench-counter")
class Counter(tenure.Job):
    """The work of all throughput figures: add to a durable sum, in a plain handler."""

    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        self.total += message["n"]
        return self.total


@tenure.job("bench-async-counter")
class AsyncCounter(tenure.Job):
    """The same in an async handler."""

    total: int = 0

    async def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        self.total += message["n"]
        return self.total


@tenure.job("bench-alarm")
class Alarm(tenure.Job):
    """Wakes once at a given time, and keeps by how much it was late."""

    rung: int = 0
    late_ms: int = -1
    due_ms: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> None:
        self.due_ms = message["due_ms"]
        ctx.wake_in(max(0, self.due_ms - now_ms()) / 1000)

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.rung += 1
        self.late_ms = now_ms() - self.due_ms


@tenure.job("bench-gauge")
class Gauge(tenure.Job):
    """Gets numbered messages that say when they were to be sent, and keeps the longest that one of them waited."""

    last: int = 0
    total: int = 0
    disordered: int = 0
    waited_ms_max: int = 0
    waited_at_ms: int = 0
    """When the one that waited longest was handled."""

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> int:
        now = now_ms()
        n: int | None = message.get("n")
        if n is None:
            return self.last  # a probe
        self.disordered += n != self.last + 1
        self.last = n
        self.total += 1
        if message.get("forget"):
            self.waited_ms_max = 0
        if (waited_ms := now - message["at_ms"]) > self.waited_ms_max:
            self.waited_ms_max, self.waited_at_ms = waited_ms, now
        return n


@tenure.job("bench-waiter")
class Waiter(tenure.Job):
    """Its turns wait for something else, as for an answer over the network: a node can only run so many at once."""

    last: int = 0
    total: int = 0
    disordered: int = 0

    async def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        await trio.sleep(WAIT_S)
        self.disordered += message["n"] != self.last + 1
        self.last = message["n"]
        self.total += 1


@tenure.job("bench-account")
class Account(Gauge):
    """A gauge with the state of an ordinary job: about 200 bytes."""

    ballast: str = ""
