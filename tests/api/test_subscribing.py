"""`schedule` returns when the job hears what is published to its topics, whatever fails meanwhile."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster

NEWS, SPORTS = tenure.Topic("sub-news"), tenure.Topic("sub-sports")


@tenure.job("api-subscriber", topics=("sub-news", "sub-sports"))
class Reader(tenure.Job):
    """Reads two topics; may be slow, or fail, as it starts."""

    how: str = ""
    got: list[Any] = []

    async def on_start(self, ctx: tenure.Context) -> None:
        if self.how == "fails":
            raise RuntimeError("on purpose")
        if self.how == "finishes":
            ctx.finish()
        if self.how == "is slow":
            await trio.sleep(5)
        if self.how == "unsubscribes":
            ctx.unsubscribe("sub-news")

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        self.got.append(message)


async def test_what_is_published_after_schedule_reaches_the_job(cluster: Cluster, client: tenure.Client) -> None:
    for n in range(30):
        await client.schedule(Reader, id=f"s{n}")
        await client.publish(NEWS, n)
        await client.publish(SPORTS, -n)
    await trio.sleep(1)
    for n in range(30):
        got = (await client.state(f"s{n}")).got
        assert sorted(got) == sorted([*range(n, 30), *(-m for m in range(n, 30))]), n


async def test_another_client_that_hears_of_the_job_reaches_it_too(cluster: Cluster, client: tenure.Client) -> None:
    async with cluster.client() as other:
        for n in range(10):
            await client.schedule(Reader, id=f"s{n}")
            await other.publish(NEWS, n)
    await trio.sleep(1)
    assert [(await client.state(f"s{n}")).got[0] for n in range(10)] == list(range(10))


async def test_many_jobs_are_subscribed_when_they_are_scheduled(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Reader, f"s{n}", {}) for n in range(50)])
    await client.publish(NEWS, "hello")
    await trio.sleep(1)
    assert [(await client.state(f"s{n}")).got for n in range(50)] == [["hello"]] * 50
    await client.schedule(Reader, id="s7")
    assert (await client.topics())["sub-news"] == 50


async def test_nothing_is_lost_while_nodes_die(cluster: Cluster, client: tenure.Client) -> None:
    async def kill() -> None:
        for n in range(4):
            await trio.sleep(1.5)
            await cluster.add_node()
            await cluster.kill(n)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        for n in range(40):
            await client.schedule(Reader, id=f"s{n}", timeout_s=120)
            await client.publish(NEWS, n, timeout_s=120)
            await trio.sleep(0.1)
    await trio.sleep(5)
    for n in range(40):
        assert (await client.state(f"s{n}")).got == list(range(n, 40))


async def test_a_job_that_starts_slowly_is_waited_for(cluster: Cluster, client: tenure.Client) -> None:
    with pytest.raises(tenure.NotDone, match="is scheduled, and has not subscribed"):
        await client.schedule(Reader, id="s", how="is slow", timeout_s=1)
    await client.schedule(Reader, id="s", how="is slow")
    await client.publish(NEWS, 1)
    await trio.sleep(1)
    assert (await client.state("s")).got == [1]


@pytest.mark.parametrize("how", ["fails", "finishes", "unsubscribes"])
async def test_a_job_that_does_not_subscribe_is_not_waited_for(
    cluster: Cluster, client: tenure.Client, how: str
) -> None:
    before_s = trio.current_time()
    await client.schedule(Reader, id="s", how=how)
    assert trio.current_time() - before_s < 3


async def test_a_paused_job_is_not_waited_for(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Reader, id="s")
    await client.pause("s")
    before_s = trio.current_time()
    await client.schedule(Reader, id="s")
    assert trio.current_time() - before_s < 1
