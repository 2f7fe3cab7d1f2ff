"""When jobs whose work is an activity start: now, later, by cron, on messages, after others; and what overlaps."""

from datetime import timedelta
from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import Finished, ProcessJob, finished_topic
from tenure.testing import Cluster


@tenure.job("api-audience")
class Audience(tenure.Job):
    """Takes what another job has finished."""

    of: str
    heard: list[Any] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.subscribe(finished_topic(self.of))

    def on_message(self, ctx: tenure.Context, message: Finished) -> None:
        self.heard.append([message.job, message.status, message.result])


async def nothing_is_launched(cluster: Cluster, seconds: float = 20) -> bool:
    with trio.move_on_after(seconds):
        await cluster.launched()
        return False
    return True


async def test_now_is_when_it_starts_unless_something_else_is_said(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["load", "a.csv"], env={"DAY": "monday"})
    run = await cluster.launched()
    assert run.work["argv"] == ["load", "a.csv"]
    assert run.work["env"] == {"DAY": "monday"}
    await run.succeed()
    state = await client.state("a")
    assert (state.last.status, state.last.activity, state.starts, state.current) == ("succeeded", "run-1", 1, "")


async def test_on_a_message_with_parameters_of_its_own(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["load"], env={"DAY": "monday", "X": "1"}, on_demand=True)
    assert await nothing_is_launched(cluster)
    order = {"start": {"env": {"DAY": "tuesday"}, "stdin": "hello"}}
    assert await client.ask("a", order) == {"started": "run-1"}
    run = await cluster.launched()
    assert run.work["env"] == {"DAY": "tuesday", "X": "1"}
    assert run.work["stdin"] == "hello"
    with pytest.raises(tenure.WrongType):
        await client.publish("a", {"strat": {}})
    await client.publish("a", {"start": {"argv": "no list"}})
    await trio.sleep(10)
    assert "WrongType: a process can't be started so" in (await client.describe("a"))["error"]


async def test_at_a_time(cluster: Cluster, client: tenure.Client) -> None:
    at = await cluster.now() + timedelta(hours=1)
    await client.schedule(ProcessJob, id="a", argv=["load"], at=at)
    await cluster.advance(3595)
    assert (await client.state("a")).starts == 0
    await cluster.advance(10)
    await cluster.launched()


async def test_by_cron_skipping_what_overlaps(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["load"], cron="*/10 * * * *")
    first = await cluster.launched()
    await cluster.advance(1500)
    assert (await client.state("a")).skipped == 2
    await first.succeed()
    second = await cluster.launched()
    assert second.activity == "run-2"
    await client.unschedule("a")
    await second.over()


async def test_queueing_what_overlaps(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["load"], on_demand=True, overlap="queue")
    answers = [await client.ask("a", {"start": {"stdin": str(n)}}) for n in range(3)]
    assert answers == [{"started": "run-1"}, {"queued": 1}, {"queued": 2}]
    for n in range(3):
        run = await cluster.launched()
        assert run.work["stdin"] == str(n)
        assert await nothing_is_launched(cluster, 10)
        await run.succeed()
    assert (await client.state("a")).starts == 3


async def test_cancelling_the_older(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["load"], on_demand=True, overlap="cancel")
    await client.ask("a", {"start": {"stdin": "0"}})
    first = await cluster.launched()
    first.ignores_cancel()
    assert await client.ask("a", {"start": {"stdin": "1"}}) == {"cancelling": "run-1"}
    assert await client.ask("a", {"start": {"stdin": "2"}}) == {"cancelling": "run-1"}
    assert await nothing_is_launched(cluster, 5)
    await first.over()
    second = await cluster.launched()
    assert second.work["stdin"] == "2"
    await second.succeed()
    assert (await client.state("a")).last.status == "succeeded"


async def test_one_after_another(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="extract", argv=["extract"], on_demand=True)
    await client.schedule(Audience, id="audience", of="extract")
    await client.schedule(ProcessJob, id="load", argv=["load"], after="extract")
    assert await nothing_is_launched(cluster)
    for n in (1, 2):
        await client.publish("extract", {"start": {}})
        run = await cluster.launched()
        assert run.job == "extract"
        await run.succeed({"n": n})
        follower = await cluster.launched()
        assert (follower.job, follower.activity) == ("load", f"run-{n}")
        await follower.succeed()
    await client.publish("extract", {"start": {}})
    await (await cluster.launched()).fail("no", final=True)
    assert await nothing_is_launched(cluster)
    heard = (await client.state("audience")).heard
    assert heard == [
        ["extract", "succeeded", {"n": 1}],
        ["extract", "succeeded", {"n": 2}],
        ["extract", "failed", None],
    ]
    await client.unschedule("load")
    assert (await client.state("extract")).followers == []
    assert await client.dead_letters() == []


async def test_after_one_that_has_finished_already(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="extract", argv=["extract"])
    await (await cluster.launched()).succeed()
    await client.schedule(ProcessJob, id="load", argv=["load"], after="extract")
    assert (await cluster.launched()).job == "load"


async def test_after_several(cluster: Cluster, client: tenure.Client) -> None:
    for id in ("a", "b"):
        await client.schedule(ProcessJob, id=id, argv=["x"], on_demand=True)
    await client.schedule(ProcessJob, id="join", argv=["x"], after=["a", "b"], after_failed=True)
    await client.publish("a", {"start": {}})
    await (await cluster.launched()).succeed()
    assert await nothing_is_launched(cluster)
    await client.publish("b", {"start": {}})
    await (await cluster.launched()).fail("no", final=True)
    assert (await cluster.launched()).job == "join"


async def test_after_several_of_which_one_goes_it_waits_for_all_the_others(
    cluster: Cluster, client: tenure.Client
) -> None:
    for id in ("a", "b", "c"):
        await client.schedule(ProcessJob, id=id, argv=["x"], on_demand=True)
    await client.schedule(ProcessJob, id="join", argv=["x"], after=["a", "b", "c"])
    await client.publish("a", {"start": {}})
    await (await cluster.launched()).succeed()
    await trio.sleep(1)
    await client.unschedule("a")
    await client.publish("b", {"start": {}})
    await (await cluster.launched()).succeed()
    assert await nothing_is_launched(cluster)  # c has not finished
    await client.publish("c", {"start": {}})
    await (await cluster.launched()).succeed()
    assert (await cluster.launched()).job == "join"


async def test_after_one_that_is_named_twice(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["x"], on_demand=True)
    await client.schedule(ProcessJob, id="b", argv=["x"], after=["a", "a"])
    await client.publish("a", {"start": {}})
    await (await cluster.launched()).succeed()
    assert not await nothing_is_launched(cluster)


async def test_after_one_that_is_not_there_is_told(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="load", argv=["load"], after="extarct")
    await trio.sleep(5)
    (letter,) = await client.dead_letters()
    assert (letter["to"], letter["reason"], letter["source"]) == ("extarct", "UnknownJob", "load")
    await client.schedule(ProcessJob, id="extarct", argv=["x"])
    await client.replay([letter])
    await (await cluster.launched()).succeed()
    assert (await cluster.launched()).job == "load"


async def test_who_comes_after_a_removed_one_is_told_so(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["x"], on_demand=True)
    await client.schedule(ProcessJob, id="b", argv=["x"], after="a")
    await trio.sleep(1)
    await client.unschedule("a")
    await trio.sleep(1)
    assert (await client.state("b")).after == []
    await client.unschedule("b")
    await trio.sleep(1)
    assert await client.dead_letters() == []


async def test_cancelled_by_a_message(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(ProcessJob, id="a", argv=["x"], overlap="queue")
    run = await cluster.launched()
    await client.ask("a", {"start": {}})
    assert await client.ask("a", {"cancel": True}) == {"cancelled": True}
    await run.over()
    assert await nothing_is_launched(cluster)
    assert (await client.state("a")).last.status == "cancelled"
    assert await client.ask("a", {"cancel": True}) == {"cancelled": False}
