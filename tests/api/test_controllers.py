"""What instructs the cluster, and is part of it: no application's, so nobody who waits for one waits for it."""

import itertools
from functools import partial
from typing import Any

import pytest
import trio

import tenure
from tenure.clients import draining
from tenure.jobs import Autoscaler
from tenure.scheduler.defining import Defining
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.orders import Order, give_order
from tenure.scheduler.snapshots import schedule
from tenure.testing import Cluster
from tests.api.jobs import Counter
from tests.api.test_scaling import Waiter

pytestmark = [pytest.mark.tenure(nodes=1, partitions=7), pytest.mark.usefixtures("in_virtual_time")]
SERIAL = itertools.count()
MARKS = {"nodes_min": 2, "nodes_max": 3, "fall_s": 600.0}


async def names(client: tenure.Client) -> list[str]:
    return [node["name"] for node in (await client.scale())["nodes"]]


async def autoscaled(cluster: Cluster, client: tenure.Client) -> Any:
    """An autoscaler that has started a node, of which this is the run."""
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **MARKS)
    run = await cluster.launched()
    await cluster.add_node()
    await trio.sleep(5)
    assert await names(client) == ["node-0", "node-1"]
    return run


async def test_nodes_of_an_autoscaler_are_no_work_of_an_application(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="c")
    await autoscaled(cluster, client)
    assert (await client.wait("default", timeout_s=30))["jobs"] == 1
    with pytest.raises(tenure.NotFinished, match=r"it waits for 1 activities: node \(activities\)"):
        await client.wait("tenure", timeout_s=5)
    assert await client.undeploy("default", timeout_s=30) == 1
    assert [job["id"] for job in await client.jobs()] == ["node"]


async def test_one_that_an_older_version_scheduled_is_no_work_either(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    define = Defining._definition

    def older(*arguments: Any) -> Any:
        found = define(*arguments)
        return type(found)(
            found.type, found.parameters, found.generation, found.revision, found.wanted, found.version, ""
        )

    monkeypatch.setattr(Defining, "_definition", older)
    await autoscaled(cluster, client)
    await client.schedule_snapshots(place, every_s=3600)
    assert {job["application"] for job in await client.jobs()} == {"tenure"}, "whatever is stored with them"
    assert await client.jobs("application=default") == []
    assert (await client.wait("default", timeout_s=30))["jobs"] == 0


@pytest.fixture
def place() -> str:
    return f"memory:controllers-{next(SERIAL)}"


async def test_scheduled_snapshots_outlive_the_application(cluster: Cluster, client: tenure.Client, place: str) -> None:
    await client.schedule(Counter, id="c")
    await client.schedule_snapshots(place, every_s=300)
    await trio.sleep(60)
    assert (await client.wait("default", timers="fire", timeout_s=30))["timers"] == 0
    assert len(await client.snapshots(place)) == 1
    assert await client.undeploy("default", timeout_s=30) == 1
    await trio.sleep(300)
    assert len(await client.snapshots(place)) == 2
    # They can be taken away like any other application, by those who mean it.
    assert (await client.wait("tenure", timeout_s=30))["jobs"] == 1
    assert await client.undeploy("tenure", timeout_s=30) == 1
    await trio.sleep(600)
    assert len(await client.snapshots(place)) == 2


async def end_with_its_node(client: tenure.Client, run: Any, *, fails: bool) -> None:
    while "node-1" in [info.name for info in await client.nodes()]:  # noqa: ASYNC110  # nobody tells
        await trio.sleep(0.1)
    await (run.fail("ExitCode: it ended with exit code 1") if fails else run.succeed())


async def told_slowly(grid: Grid, id: str, order: Order) -> None:
    """One has gone before the next is told."""
    await trio.sleep(10 * int(id.removeprefix("node-")))
    await give_order(grid, id, order)


async def test_nothing_that_an_autoscaler_starts_is_left_of_a_shutdown(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await autoscaled(cluster, client)
    fakes: Any = cluster._home._value.activities.fakes
    monkeypatch.setattr(draining, "tell", told_slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(end_with_its_node, client, run, fails=False))
        assert await client.shutdown(timeout_s=60) == ["node-0", "node-1"]
    await trio.sleep(120)
    assert await client.nodes() == []
    assert fakes.launches == 1
    # With the next node it goes on.
    await cluster.add_node()
    with trio.fail_after(30):
        assert (await cluster.launched()).activity == "node-2"


@tenure.job("controllers-slow", application="tenure")
class Slow(tenure.Job):
    """Nobody waits for it to be quiet, but the node that it is on."""

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(message)


@pytest.mark.tenure(nodes=1, partitions=1, settings=tenure.NodeSettings(drain_deadline_s=600))
async def test_a_node_that_fails_at_its_end_is_not_started_again_by_those_that_end_too(
    cluster: Cluster, client: tenure.Client
) -> None:
    run = await autoscaled(cluster, client)
    fakes: Any = cluster._home._value.activities.fakes
    await client.schedule(Slow, id="slow")
    await client.publish("slow", 60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(end_with_its_node, client, run, fails=True))
        assert await client.shutdown(timeout_s=30) == ["node-0", "node-1"]
    assert await client.nodes() == []
    assert fakes.launches == 1
    await cluster.add_node()
    with trio.fail_after(30):
        again = await cluster.launched()
    assert (again.activity, again.attempt) == ("node-1", 2)


async def test_a_node_that_is_coming_is_waited_for_and_ended_too(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **MARKS)
    await cluster.launched()
    told: list[str] = []
    async with trio.open_nursery() as nursery:

        async def come_late() -> None:
            await trio.sleep(20)
            await cluster.add_node()

        nursery.start_soon(come_late)
        assert await client.shutdown(on_wait=told.append, timeout_s=120) == ["node-0", "node-1"]
    assert "what autoscalers have started: node-1" in told
    assert await client.nodes() == []


async def test_a_shutdown_that_is_given_up_lets_the_autoscaler_go_on(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **MARKS)
    await cluster.launched()
    with pytest.raises(tenure.NotFinished, match="it waits for what autoscalers have started: node-1"):
        await client.shutdown(timeout_s=20)
    await cluster.add_node()
    await client.ask("node", {"nodes_min": 3})
    with trio.fail_after(10):
        assert (await cluster.launched()).activity == "node-2"


@pytest.mark.tenure(nodes=2, settings=tenure.NodeSettings(turns_at_once_max=1))
async def test_a_scheduled_snapshot_takes_no_turn_from_the_jobs(
    cluster: Cluster, client: tenure.Client, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = trio.Event()

    async def endless(*_: Any, **__: Any) -> None:
        entered.set()
        await trio.sleep_forever()

    monkeypatch.setattr(schedule, "take_snapshot", endless)
    await client.schedule_snapshots(place, every_s=3600)
    await entered.wait()
    await client.schedule_many([(Waiter, f"w-{n}", {}) for n in range(20)])
    with trio.fail_after(30):
        for n in range(20):
            await client.ask(f"w-{n}", 0.1)
