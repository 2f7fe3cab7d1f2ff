"""Any job can be stopped, and any backlog dropped: also of a job that is being removed, and hangs."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step, stopped


async def hang(job: Script, ctx: tenure.Context) -> None:
    await trio.sleep_forever()


HANG = step(hang)
NOTE = step(lambda job, ctx: job.log.append("noted"))


@tenure.job("api-bad-ends")
class BadEnds(tenure.Job):
    """Its `on_stop` fails, or hangs."""

    how: str

    async def on_start(self, ctx: tenure.Context) -> None:
        if self.how == "never starts":
            ENDS.append(self.how)
            await trio.sleep_forever()

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        """Nothing."""

    async def on_stop(self, ctx: tenure.Context) -> None:
        ENDS.append(self.how)
        if self.how == "hangs":
            await trio.sleep_forever()
        raise RuntimeError(self.how)


ENDS: list[str] = []


async def hanging(client: tenure.Client, *rest: str) -> None:
    await client.schedule(Script, id="s")
    await client.publish_many([("s", HANG), *(("s", message) for message in rest)])
    await trio.sleep(1)


async def begin_to_remove(client: tenure.Client) -> None:
    with pytest.raises(tenure.NotDone):
        await client.unschedule("s", timeout_s=1.0)
    assert (await client.describe("s"))["status"] == "stopping"


@pytest.fixture(autouse=True)
def _nothing_stopped() -> None:
    stopped.clear()
    ENDS.clear()


async def test_a_turn_of_a_job_that_is_being_removed_can_be_cancelled(cluster: Cluster, client: tenure.Client) -> None:
    await hanging(client, NOTE)
    await begin_to_remove(client)
    await client.cancel("s")
    await trio.sleep(1)
    with pytest.raises(tenure.UnknownJob):
        await client.state("s")
    assert stopped == [("s", ["started", "noted"])], "what it had accepted was finished, and it ended as it should"
    assert [(letter["message"], letter["reason"]) for letter in await client.dead_letters()] == [(HANG, "Cancelled")]
    with pytest.raises(tenure.UnknownJob):
        await client.cancel("s")


@pytest.mark.parametrize("begun", [False, True])
async def test_a_job_is_removed_now(cluster: Cluster, client: tenure.Client, begun: bool) -> None:
    await hanging(client, *[NOTE] * 500)
    if begun:
        await begin_to_remove(client)
    before_s = trio.current_time()
    assert await client.unschedule("s", now=True) == 500
    assert trio.current_time() - before_s < 5
    assert stopped == [("s", ["started"])]
    assert [(letter["message"], letter["reason"]) for letter in await client.dead_letters()] == [(HANG, "Cancelled")]
    await client.wait("default", timeout_s=60)
    with pytest.raises(tenure.UnknownJob):
        await client.unschedule("nobody", now=True)
    assert await client.unschedule("nobody", now=True, missing_ok=True) == 0


@pytest.mark.parametrize("state", ["paused", "failed"])
async def test_what_waits_for_a_job_that_does_not_run_is_dropped_too(
    cluster: Cluster, client: tenure.Client, state: str
) -> None:
    await client.schedule(Script, id="s")
    await client.state("s")  # it has started
    if state == "paused":
        await client.pause("s")
    await client.publish_many([("s", "there is no such step")] * 30)
    await trio.sleep(900 if state == "failed" else 1)
    assert (await client.describe("s"))["status"] == state
    assert await client.unschedule("s", now=True) == 30
    assert stopped == [("s", ["started"])]
    assert await client.dead_letters() == []


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_an_end_that_does_not_work_is_tried_once(cluster: Cluster, client: tenure.Client, how: str) -> None:
    await client.schedule(BadEnds, id="b", how=how)
    await client.publish_many([("b", n) for n in range(20)])
    await client.unschedule("b", now=True)
    assert [how] == ENDS
    with pytest.raises(tenure.UnknownJob):
        await client.state("b")


async def test_a_job_that_could_not_even_start_is_removed_now(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(BadEnds, id="b", how="never starts")
    await client.publish("b", 1)
    await trio.sleep(1)
    assert await client.unschedule("b", now=True) == 1
    assert ENDS == ["never starts"]


async def test_it_is_removed_now_also_when_its_node_dies_meanwhile(cluster: Cluster, client: tenure.Client) -> None:
    await hanging(client, *[NOTE] * 50)
    owner = int((await client.describe("s"))["node"].removeprefix("node-"))
    counts = []

    async def unschedule() -> None:
        counts.append(await client.unschedule("s", now=True, timeout_s=120))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(unschedule)
        await trio.sleep(0.003)
        await cluster.kill(owner)
    assert counts == [50]
    assert stopped == [("s", ["started"])]


async def test_a_backlog_is_dropped_and_counted(cluster: Cluster, client: tenure.Client) -> None:
    await hanging(client, *[NOTE] * 40)
    answers = []

    async def ask() -> None:
        with pytest.raises(tenure.Purged, match="dropped"):
            await client.ask("s", NOTE)
        answers.append("told")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert await client.purge("s") == 41
    assert answers == ["told"]
    found = await client.describe("s")
    assert (found["running"], found["waiting"]) == (True, 1)
    assert await client.purge("s") == 0
    await client.cancel("s")
    assert await client.purge("s") == 1, "what was cancelled waits"
    await client.resume("s")
    await client.publish("s", NOTE)
    assert (await client.state("s")).log == ["started", "noted"]
    assert await client.dead_letters() == []
    with pytest.raises(tenure.UnknownJob):
        await client.purge("nobody")


async def test_what_was_dropped_does_not_come_back_with_the_next_owner(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="c")
    await client.publish("c", {"n": 1})
    await client.pause("c")
    await client.publish_many([("c", {"n": 10})] * 30)
    assert await client.purge("c") == 30
    await client.publish("c", {"n": 2})
    await cluster.kill(int((await client.describe("c"))["node"].removeprefix("node-")))
    await client.resume("c")
    assert (await client.state("c")).seen == [1, 2]


async def test_timers_are_no_backlog(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Script, id="s")
    await client.ask("s", step(lambda job, ctx: ctx.wake_in(5)))
    await client.pause("s")
    await client.publish_many([("s", NOTE)] * 3)
    await trio.sleep(10)
    assert await client.purge("s") == 3
    await client.resume("s")
    await trio.sleep(1)
    assert [entry[0] for entry in (await client.state("s")).log[1:]] == ["timeout"]


async def test_many_are_stopped_at_once(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(5)])
    await client.schedule(Counter, id="other")
    await client.do_to_all("pause", "id=c*")
    await client.publish_many([(f"c{n}", {"n": n}) for n in range(5)])
    assert await client.do_to_all("purge", "id=c0 or id=c1") == ["c0", "c1"]
    assert await client.do_to_all("end", "id=c2") == ["c2"]
    assert await client.do_to_all("unschedule", "id=c*") == ["c0", "c1", "c3", "c4"]
    assert [job["id"] for job in await client.jobs()] == ["other"]
    assert sorted(letter["to"] for letter in await client.dead_letters()) == ["c3", "c4"]
