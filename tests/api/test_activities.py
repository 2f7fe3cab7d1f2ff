"""Activities as users see them, in virtual time: started by turns, told what becomes of them, by fakes."""

import math
from functools import partial
from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster, SyncCluster


@tenure.job("api-import")
class Import(tenure.Job):
    """Loads a file, in an activity."""

    file: str
    rows: int = 0
    heard: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.start_activity("load", {"file": self.file}, cancel_deadline_s=20, tells_progress=True)

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        self.heard.append(event.status)
        if event.status == "succeeded":
            self.rows = event.result["rows"]


@tenure.job("api-slow-retry")
class SlowRetry(tenure.Job):
    def on_start(self, ctx: tenure.Context) -> None:
        ctx.start_activity("x", None, retry=tenure.Retry(attempts_max=2, first_delay_s=3600, delay_max_s=3600))


seen: list[Any] = []


@tenure.job("api-mistaken")
class Mistaken(tenure.Job):
    def on_start(self, ctx: tenure.Context) -> None:
        assert ctx.cancel_activity("nobody") is False
        ctx.start_activity("twice", None)
        for call in (
            lambda: ctx.start_activity("twice", None),
            lambda: ctx.start_activity("", None),
            lambda: ctx.start_activity("x", {1: 2}),
            lambda: ctx.start_activity("x", "y" * 2_000_000),
            lambda: ctx.start_activity("x", None, timeout_s=-1),
            lambda: ctx.start_activity("x", None, cancel_deadline_s=math.inf),
        ):
            with pytest.raises(tenure.Mistake) as caught:
                call()
            seen.append(type(caught.value).__name__)
        seen.append(ctx.activities)


async def test_an_activity_from_its_start_to_its_result(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    run = await cluster.launched()
    assert (run.job, run.activity, run.attempt, run.kind) == ("a", "load", 1, "process")
    assert run.work == {"file": "a.csv"}
    await run.report(progress=[1, 2], metrics={"rows": 10})
    await trio.sleep(2)
    (shown,) = (await client.describe("a"))["activities"]
    assert (shown["status"], shown["progress"], shown["details"]) == ("running", [1, 2], {"metrics": {"rows": 10}})
    await run.succeed({"rows": 17})
    state = await client.state("a")
    assert (state.rows, state.heard) == (17, ["progress", "succeeded"])
    (shown,) = (await client.describe("a"))["activities"]
    assert (shown["status"], shown["result"]) == ("succeeded", {"rows": 17})


async def test_it_goes_on_when_its_node_is_killed_and_when_the_next_one_drains(
    cluster: Cluster, client: tenure.Client
) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    run = await cluster.launched()
    before = await client.describe("a")
    await cluster.add_node()
    for node in await cluster.nodes():
        if before["node"] == f"node-{node}":
            await cluster.kill(node)
    await trio.sleep(30)
    after = await client.describe("a")
    assert after["node"] != before["node"]
    assert after["activities"][0]["tag"] == before["activities"][0]["tag"]
    await cluster.drain((await cluster.nodes())[0])
    await trio.sleep(30)
    await run.succeed({"rows": 1})
    assert (await client.state("a")).heard == ["succeeded"]


async def test_attempts_follow_each_other_and_know_what_the_last_one_noted(
    cluster: Cluster, client: tenure.Client
) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    first = await cluster.launched()
    await first.note("offset", 4)
    await first.die()
    second = await cluster.launched()
    assert (second.attempt, second.notes) == (2, {"offset": 4})
    await second.fail("IOError: disk")
    third = await cluster.launched()
    await third.fail("IOError: disk")
    assert (await client.state("a")).heard == ["retrying", "retrying", "failed"]
    (shown,) = (await client.describe("a"))["activities"]
    assert (shown["status"], shown["attempt"], shown["error"]) == ("failed", 3, "IOError: disk")


async def test_cancel_ends_it_and_pause_does_not(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    run = await cluster.launched()
    await client.pause("a")
    await trio.sleep(300)
    assert (await client.describe("a"))["activities"][0]["status"] == "running"
    await client.cancel("a")
    await run.told_to_end()
    await run.over()
    await client.resume("a")
    await trio.sleep(1)
    assert (await client.state("a")).heard == ["cancelled"]


async def test_unschedule_waits_until_nothing_is_left_of_it(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    run = await cluster.launched()
    run.ignores_cancel()
    began_s = trio.current_time()
    await client.unschedule("a", timeout_s=60)
    assert 20 <= trio.current_time() - began_s < 30
    await run.over()
    with pytest.raises(tenure.UnknownJob):
        await client.describe("a")


@pytest.mark.parametrize("way", ["drain", "kill"])
async def test_unschedule_returns_also_when_the_job_goes_to_another_node_meanwhile(
    cluster: Cluster, client: tenure.Client, way: str
) -> None:
    await client.schedule(Import, id="a", file="a.csv")
    run = await cluster.launched()
    run.ignores_cancel()
    owner = (await client.describe("a"))["node"]
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.unschedule, "a", timeout_s=60))
        await trio.sleep(5)
        (node,) = [node for node in await cluster.nodes() if f"node-{node}" == owner]
        await (cluster.drain(node) if way == "drain" else cluster.kill(node))
    assert 20 <= trio.current_time() - began_s < 35


async def test_the_clock_can_be_advanced_to_the_next_attempt(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(SlowRetry, id="a")
    await (await cluster.launched()).fail("not now")
    began_s = trio.current_time()
    await cluster.advance(3601)
    second = await cluster.launched()
    assert second.attempt == 2
    assert trio.current_time() - began_s < 60


async def test_what_a_turn_may_not_ask_for(cluster: Cluster, client: tenure.Client) -> None:
    seen.clear()
    await client.schedule(Mistaken, id="a")
    await cluster.launched()
    assert seen == ["Mistake", "Mistake", "WrongType", "TooLarge", "Mistake", "Mistake", {"twice": "wanted"}]


def test_in_a_plain_test() -> None:
    with SyncCluster(nodes=1) as cluster, cluster.client() as client:
        client.schedule(Import, id="a", file="a.csv")
        run = cluster.launched()
        run.note("offset", 1)
        run.succeed({"rows": 2})
        assert client.ask is not None
        assert client.state("a").rows == 2


async def test_fakes_are_for_the_memory_grid(in_virtual_time: None) -> None:
    with pytest.raises(tenure.Mistake, match="fake activities are for"):
        Cluster(grid="hazelcast", activities="fake")
    with pytest.raises(tenure.Mistake, match="'fake' or 'real'"):
        Cluster(activities="none")  # type: ignore[arg-type]
