"""A test's clock goes on by exactly what it is told to, and at once, whatever jobs do on the way."""

import time
from collections.abc import AsyncIterator

import pytest
import trio

import tenure
from tenure.testing import Cluster

TYPES = tenure.Registry()


@tenure.job("advance-timer", registry=TYPES)
class Timed(tenure.Job):
    """Wakes every five seconds."""

    to: str = ""
    topic: str = ""
    takes_s: float = 0.0
    fired: list[float] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(5)

    async def on_timeout(self, ctx: tenure.Context) -> None:
        await trio.sleep(self.takes_s)
        self.fired.append(ctx.now.timestamp())
        ctx.wake_in(5)
        if self.to:
            ctx.send(self.to, "x")
        if self.topic:
            ctx.publish(tenure.Topic(self.topic), "x")


@tenure.job("advance-sink", registry=TYPES, topics=("news",))
class Sink(tenure.Job):
    got: int = 0

    def on_message(self, ctx: tenure.Context, message: str) -> int:
        self.got += 1
        return self.got


@tenure.job("advance-clumsy", registry=TYPES, retry=tenure.Retry(first_delay_s=60, factor=1))
class Clumsy(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: int) -> None:
        if ctx.attempt < 4:
            raise ValueError("not this time")


@pytest.fixture(params=[1, 2])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with Cluster(app=TYPES, nodes=request.param, members=request.param) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("parameters", "got"),
    [({}, 0), ({"to": "sink"}, 4), ({"to": "nobody"}, 0), ({"topic": "news"}, 4), ({"topic": "none"}, 0)],
)
async def test_clocks_go_on_by_exactly_so_much(cluster: Cluster, parameters: dict[str, str], got: int) -> None:
    async with cluster.client() as client:
        await client.schedule(Sink, id="sink")
        await client.ask("sink", "")
        await client.schedule(Timed, id="t", **parameters)
        began, began_s, began_real_s = await cluster.now(), trio.current_time(), time.monotonic()
        await cluster.advance(21)
        assert (await cluster.now() - began).total_seconds() == 21
        assert trio.current_time() - began_s < 1
        assert time.monotonic() - began_real_s < 1
        fired = (await client.state("t")).fired
        assert [round(at - began.timestamp(), 3) for at in fired] == [5, 10, 15, 20]
        assert (await client.state("sink")).got == got + 1


async def test_turns_that_take_long_do_not_make_the_clock_go_on(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.schedule(Timed, id="t", takes_s=2)
        await client.schedule(Timed, id="endless", takes_s=1e9)
        began, began_s = await cluster.now(), trio.current_time()
        await cluster.advance(61)
        assert (await cluster.now() - began).total_seconds() == 61
        assert trio.current_time() - began_s < 45
        assert [round(at - began.timestamp()) for at in (await client.state("t")).fired] == list(range(5, 61, 5))


async def test_what_is_tried_again_is_so_in_time(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.schedule(Clumsy, id="c")
        await client.publish("c", 1)
        began_s = trio.current_time()
        await cluster.advance(100)
        failure = (await client.describe("c"))["failure"]
        assert failure is not None
        assert failure["attempts"] == 2
        await cluster.advance(100)
        found = await client.describe("c")
        assert (found["status"], found["failure"], found["waiting"]) == ("running", None, 0)
        assert trio.current_time() - began_s < 1


async def test_a_day_of_timers_takes_no_time(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.schedule(Timed, id="t", topic="news", to="nobody")
        began_s = time.monotonic()
        await cluster.advance(3600)
        assert len((await client.state("t")).fired) == 720
        assert time.monotonic() - began_s < 20
