"""Job types that the tests of the public API use."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import tenure


class Amount(msgspec.Struct):
    n: int


@tenure.job("api-counter")
class Counter(tenure.Job):
    """Adds up."""

    total: int = 0
    seen: list[int] = []
    labels: dict[str, int] = {}

    def on_message(self, ctx: tenure.Context, message: Amount) -> int:
        self.total += message.n
        self.seen.append(message.n)
        self.labels[str(message.n)] = message.n
        return self.total


@tenure.job("api-script")
class Script(tenure.Job):
    """Does what a message says; for whatever one test alone needs."""

    log: list[Any] = []

    async def on_start(self, ctx: tenure.Context) -> None:
        self.log.append("started")

    async def on_message(self, ctx: tenure.Context, message: str) -> Any:
        result: Any = steps[message](self, ctx)
        if isinstance(result, Awaitable):
            result = await result
        return result

    async def on_timeout(self, ctx: tenure.Context) -> None:
        self.log.append([ctx.event, ctx.now.isoformat()])

    async def on_stop(self, ctx: tenure.Context) -> None:
        stopped.append((ctx.id, list(self.log)))


Step = Callable[[Script, tenure.Context], Any]
steps: dict[str, Step] = {}
stopped: list[tuple[str, list[Any]]] = []


def step(fn: Step) -> str:
    """Let a `Script` do this when it gets the returned message."""
    name = f"{fn.__module__}.{fn.__qualname__}.{len(steps)}"
    steps[name] = fn
    return name


@tenure.job("api-tally")
def tally(ctx: tenure.Context, message: dict[str, int]) -> int:
    """A job that is a function: its state is a dict."""
    ctx.state["total"] = ctx.state.get("total", 0) + message["n"]
    total: int = ctx.state["total"]
    return total
