"""The phases of shutdown: an application becomes quiet, is taken away; a node is drained, and ends."""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

import tenure
from tenure.clients.quiescing import Timers, jobs_of
from tenure.nodes import ClusterEnded
from tenure.nodes.guard import join_cluster
from tenure.scheduler.grid.memory import Fault, Faults
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.orders import Order, give_order, leave_key, order_key
from tenure.scheduler.seal import Seal
from tenure.scheduler.sightings import OPEN
from tenure.scheduler.snapshots.stores import Memory, open_store
from tenure.scheduler.wire import encode
from tenure.testing import Cluster

APP = "relay"


@tenure.job("quiet-relay", application=APP)
class Relay(tenure.Job):
    """Passes a message on so often, slowly, by way of others and of a topic."""

    seen: int = 0
    rung: int = 0

    async def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        await trio.sleep(0.2)
        self.seen += 1
        if (left := message["left"]) > 0:
            if left % 3 == 0:
                ctx.publish(tenure.Topic("quiet-topic"), {"left": left - 1})
            else:
                ctx.send(f"relay-{left % 5}", {"left": left - 1})
        return self.seen

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.rung += 1
        ctx.wake_in(3600)


@tenure.job("quiet-end", application=APP, topics=("quiet-topic",))
class End(tenure.Job):
    """Takes what the topic brings back into the circle."""

    stopped: bool = False

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> None:
        if message["left"] > 0:
            ctx.send(f"relay-{message['left'] % 5}", {"left": message["left"] - 1})


@tenure.job("quiet-other", application="other")
class Other(tenure.Job):
    """Never rests, and is none of our business."""

    beats: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(0.01)

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.beats += 1
        ctx.send("other-1" if ctx.id == "other-0" else "other-0", self.beats)
        ctx.wake_in(0.01)

    def on_message(self, ctx: tenure.Context, message: int) -> None: ...


@tenure.job("quiet-timer", application=APP)
class Timed(tenure.Job):
    """Wakes in an hour, unless time comes to its end before."""

    every_s: int = 3600
    rung: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(self.every_s)

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.rung.append(ctx.event)
        ctx.send("relay-0", {"left": 4})
        ctx.wake_in(self.every_s)


@tenure.job("quiet-witness", application="witnesses")
class Witness(tenure.Job):
    """Is there when the others are gone."""

    told: list[str] = []

    def on_message(self, ctx: tenure.Context, message: str) -> None:
        self.told.append(message)


@tenure.job("quiet-last", application=APP)
class Last(tenure.Job):
    """Says of itself what nobody can ask it any more."""

    heard: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(60)

    def on_timeout(self, ctx: tenure.Context) -> None:
        ctx.send("witness", "rang")
        ctx.send(ctx.id, 1)
        ctx.wake_in(60)

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(0.5)
        self.heard += message

    def on_stop(self, ctx: tenure.Context) -> None:
        ctx.send("witness", f"stopped, had heard {self.heard}")


FAILS: set[str] = set()


@tenure.job("quiet-fragile", application=APP, retry=tenure.Retry(attempts_max=1))
class Fragile(tenure.Job):
    done: int = 0

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        if ctx.id in FAILS:
            raise RuntimeError("no luck")
        self.done += 1


@pytest.fixture(autouse=True)
def lucky() -> Iterator[None]:
    yield
    FAILS.clear()


async def relays(client: tenure.Client) -> None:
    await client.schedule_many([(Relay, f"relay-{n}", {}) for n in range(5)] + [(End, "relay-end", {})])


async def total(client: tenure.Client) -> int:
    return sum([(await client.state(f"relay-{n}")).seen for n in range(5)])


@pytest.mark.tenure(nodes=2, partitions=7)
async def test_wait_returns_when_nothing_is_under_way_any_more(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await client.schedule_many([(Other, f"other-{n}", {}) for n in range(2)])
    told: list[str] = []
    await client.publish("relay-1", {"left": 41})
    quiet = await client.wait(APP, on_wait=told.append)
    seen = await total(client)
    assert seen == 42 - 13  # what the topic took on was no relay's turn
    assert (quiet["application"], quiet["jobs"], quiet["timers"]) == (APP, 6, 0)
    assert any("running turns: relay-" in line for line in told)
    await trio.sleep(30)
    assert await total(client) == seen
    assert (await client.state("other-0")).beats > 100  # was never quiet


@pytest.mark.tenure(nodes=2, partitions=7)
async def test_wait_goes_on_through_handoffs_and_crashes(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await client.publish("relay-1", {"left": 100})
    done = trio.Event()

    async def wait() -> None:
        await client.wait(APP)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(2)
        await cluster.kill(0)
        await cluster.add_node()
        await trio.sleep(5)
        await cluster.drain(1)
        assert not done.is_set()
    assert await total(client) == 101 - 33


@pytest.mark.tenure(nodes=1, partitions=7)
async def test_what_it_waits_for_is_named_and_it_can_be_given_up(cluster: Cluster, client: tenure.Client) -> None:
    FAILS.add("fragile")
    await client.schedule(Fragile, id="fragile")
    await client.publish("fragile", 1)
    with pytest.raises(tenure.NotFinished, match=r"1 messages of failed jobs: fragile \(messages of failed jobs\)"):
        await client.wait(APP, timeout_s=5)
    with pytest.raises(tenure.NotFinished, match="failed jobs"):
        await client.undeploy(APP, timeout_s=5)
    assert (await client.state("fragile")).done == 0
    FAILS.clear()
    with trio.move_on_after(2) as given_up:
        await client.pause("fragile")
        await client.undeploy(APP)
    assert given_up.cancelled_caught
    await client.publish("fragile", 2)  # inputs are let in again
    await client.resume("fragile")
    await client.wait(APP)
    assert (await client.state("fragile")).done == 2
    assert await client.dead_letters() == []


@pytest.mark.tenure(nodes=2, partitions=7)
async def test_what_was_accepted_is_finished_and_then_all_is_taken_away(
    cluster: Cluster, client: tenure.Client
) -> None:
    await relays(client)
    await client.schedule(Other, id="other-0")
    await client.publish("relay-1", {"left": 40})
    accepted = 0
    refused: list[str] = []

    async def press() -> None:
        nonlocal accepted
        async with cluster.client() as another:
            while True:
                try:
                    await another.ask("relay-2", {"left": 0})
                    accepted += 1
                except tenure.ApplicationClosed as error:
                    refused.append(str(error))
                    return

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(press)
        await trio.sleep(2)
        removed = await client.undeploy(APP)
    assert removed == 6
    assert accepted > 3
    assert "the application of job 'relay-2' is being shut down" in refused[0]
    assert [job["application"] for job in await client.jobs()] == ["other"]
    letters = [letter for letter in await client.dead_letters() if letter["reason"] == "ApplicationClosed"]
    assert len(letters) == len(refused) == 3
    # The same ids may be used again.
    await relays(client)
    assert await client.ask("relay-2", {"left": 0}) == 1


@pytest.mark.tenure(nodes=2, partitions=7)
async def test_who_only_waits_does_not_let_inputs_in_again(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await client.publish("relay-1", {"left": 20})
    async with cluster.client() as another, trio.open_nursery() as nursery:
        nursery.start_soon(another.wait, APP)
        await trio.sleep(0.5)

        refused = trio.Event()

        async def press() -> None:
            try:
                while True:
                    await another.ask("relay-2", {"left": 0})
            except tenure.ApplicationClosed:
                refused.set()

        nursery.start_soon(press)
        assert await client.undeploy(APP, timeout_s=60) == 6
        await refused.wait()


@pytest.mark.tenure(nodes=2, partitions=7)
async def test_topics_are_an_input_too(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)

    async def press() -> None:
        async with cluster.client() as another:
            while True:
                await another.publish(tenure.Topic("quiet-topic"), {"left": 2})
                await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        await trio.sleep(1)
        assert await client.undeploy(APP, timeout_s=60) == 6
        nursery.cancel_scope.cancel()
    assert await client.jobs() == []


@pytest.mark.tenure(nodes=1, partitions=7)
async def test_timers_are_kept_or_come_to_their_end_as_asked(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await client.schedule(Timed, id="timed")
    quiet = await client.wait(APP)
    assert (quiet["timers"], quiet["first_due_ms"] > 0) == (1, True)
    assert (await client.state("timed")).rung == []
    assert await total(client) == 0
    quiet = await client.wait(APP, timers="fire")
    assert (await client.state("timed")).rung == ["timeout"]  # once: what it set anew is kept
    assert await total(client) > 0  # and what came of it is finished
    assert quiet["timers"] == 1
    with pytest.raises(tenure.Mistake, match="'keep' or to 'fire'"):
        await client.wait(APP, timers="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timers", "told"),
    [("keep", ["stopped, had heard 0"]), ("fire", ["rang", "stopped, had heard 1"])],
)
@pytest.mark.tenure(nodes=2, partitions=7)
async def test_timers_are_dropped_or_ring_before_their_jobs_are_taken_away(
    cluster: Cluster, client: tenure.Client, timers: Timers, told: list[str]
) -> None:
    await client.schedule(Witness, id="witness")
    await client.schedule_many([(Last, f"last-{n}", {}) for n in range(10)])
    assert await client.undeploy(APP, timers=timers, timeout_s=60) == 10
    await client.wait("witnesses")
    assert sorted((await client.state("witness")).told) == sorted(told * 10)
    await trio.sleep(100)  # what they had set anew is gone with them
    assert len((await client.state("witness")).told) == len(told) * 10
    assert await client.dead_letters() == []


@pytest.mark.parametrize(("timers", "rung"), [("keep", 0), ("fire", 1)])
@pytest.mark.tenure(nodes=2, partitions=7)
async def test_timers_are_kept_or_ring_before_all_nodes_end(
    cluster: Cluster, client: tenure.Client, timers: Timers, rung: int
) -> None:
    await relays(client)
    await client.schedule_many([(Timed, f"timed-{n}", {"every_s": 60}) for n in range(10)])
    assert await client.shutdown(timers=timers, timeout_s=60) == ["node-0", "node-1"]
    assert await client.nodes() == []
    await cluster.add_node()
    assert {len((await client.state(f"timed-{n}")).rung) for n in range(10)} == {rung}
    assert await total(client) == 10 * rung * 4, "what came of it is finished"
    await trio.sleep(60)  # those that are kept, and those that were set anew, ring with the next node
    assert {len((await client.state(f"timed-{n}")).rung) for n in range(10)} == {rung + 1}


@pytest.mark.tenure(nodes=2, partitions=8)
async def test_a_node_is_drained_and_then_stopped(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Relay, f"relay-{n}", {}) for n in range(20)])
    with pytest.raises(
        tenure.NotFinished, match=r"node-0 serves \d partitions: drain it first \(`tenure drain node-0`\)"
    ):
        await client.stop("node-0")
    told: list[str] = []
    assert await client.drain("node-0", on_wait=told.append) == "node-0"
    assert "4 partitions of node-0" in told
    info = {info.id: info for info in await client.nodes()}
    assert (info["node-0"].owned, info["node-0"].draining, len(info["node-1"].owned)) == ((), True, 8)
    assert await client.undrain("node-0") == "node-0"
    await trio.sleep(3)
    assert {len(info.owned) for info in await client.nodes()} == {4}
    await client.drain("node-0")
    assert await client.stop("node-0") == "node-0"
    assert [info.id for info in await client.nodes()] == ["node-1"]
    assert await client.ask("relay-3", {"left": 0}) == 1
    with pytest.raises(tenure.Mistake, match="no node would stay to take what node-1 hands over"):
        await client.drain("node-1")
    # The last one too: then nothing runs, and all is kept.
    await client.stop("node-1", drain=True)
    assert await client.nodes() == []
    await cluster.add_node()
    assert await client.ask("relay-3", {"left": 0}) == 2


@pytest.mark.tenure(nodes=2, partitions=8)
async def test_draining_can_be_given_up(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Slow, f"slow-{n}", {}) for n in range(16)])
    for n in range(16):
        await client.publish(f"slow-{n}", 1)
    await trio.sleep(1)
    with pytest.raises(tenure.NotDone, match="was told to take part again"):
        await client.drain("node-0", timeout_s=1)
    await trio.sleep(20)
    assert {len(info.owned) for info in await client.nodes()} == {4}
    await client.wait("default")
    assert {(await client.state(f"slow-{n}")).done for n in range(16)} == {1}


@pytest.mark.parametrize("count", [2, 3])
async def test_of_all_nodes_that_are_drained_at_once_one_stays(in_virtual_time: None, count: int) -> None:
    async with Cluster(nodes=count, partitions=8) as cluster, cluster.client() as client:
        refused, drained = dict[str, str](), list[str]()

        async def drain(node: str) -> None:
            try:
                drained.append(await client.drain(node))
            except tenure.Mistake as error:
                refused[node] = str(error)

        async with trio.open_nursery() as nursery:
            for n in range(count):
                nursery.start_soon(drain, f"node-{n}")
        assert len(drained) == count - 1
        [(stays, why)] = refused.items()
        assert f"no node would stay to take what {stays} hands over (going at the same time: " in why
        await trio.sleep(3)
        assert [info.id for info in await client.nodes() if info.owned] == [stays]


@pytest.mark.parametrize("how", ["undrain", "given up by another"])
@pytest.mark.tenure(nodes=2, partitions=8)
async def test_who_drains_a_node_hears_that_somebody_else_has_taken_that_back(
    cluster: Cluster, client: tenure.Client, how: str
) -> None:
    """It waited for ever."""
    await client.schedule_many([(Slow, f"slow-{n}", {}) for n in range(16)])
    await client.publish_many([(f"slow-{n}", 1) for n in range(16) for _ in range(3)])
    await trio.sleep(1)

    async def drain() -> None:
        with pytest.raises(tenure.NotFinished, match="node-0 takes part again: somebody else has told it to, or has"):
            await client.drain("node-0", timeout_s=600)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        await trio.sleep(1)
        if how == "undrain":
            await client.undrain("node-0")
        else:
            with trio.move_on_after(1):
                await client.drain("node-0")


async def older_order(grid: Grid, node: str, order: Order) -> None:
    """As versions before this one give them."""
    await grid.set(Map.NODES, 0, order_key(node), encode(order), ttl_s=60)


@pytest.mark.parametrize("give", [give_order, older_order])
@pytest.mark.tenure(nodes=2, partitions=8)
async def test_who_was_told_to_leave_leaves_also_when_its_drain_is_given_up(
    cluster: Cluster, client: tenure.Client, give: Callable[[Grid, str, Order], Awaitable[Any]]
) -> None:
    grid, waits = client._home._value.grid, trio.Event()

    async def drain() -> None:
        with pytest.raises(tenure.NotDone):
            await client.drain("node-1", on_wait=lambda what: waits.set(), timeout_s=5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        await waits.wait()
        await cluster.pause(1)
        await give(grid, "node-1", Order(leave=True))
    await cluster.unpause(1)
    await trio.sleep(5)
    assert [info.id for info in await client.nodes()] == ["node-0"]
    assert await grid.get_all(Map.NODES, 0, [order_key("node-1"), leave_key("node-1")]) == {}


@pytest.mark.tenure(nodes=3, partitions=8)
async def test_who_was_told_to_leave_is_drained_no_more_and_kept_no_more_but_may_be_waited_for(
    cluster: Cluster, client: tenure.Client
) -> None:
    grid: Any = client._home._value.grid
    for n in range(8):
        await client.schedule("quiet-slow", id=f"slow-{n}")
    await client.publish_many([(f"slow-{n}", 1) for n in range(8)])  # so it takes a while
    await trio.sleep(0.5)
    assert await give_order(grid, "node-1", Order(leave=True))
    assert not await give_order(grid, "node-1", Order(drain=True))
    for refused in (client.drain, client.undrain):
        with pytest.raises(tenure.Mistake, match="node-1 was told to leave: it hands over what it has, and ends"):
            await refused("node-1")
    assert await client.stop("node-1", drain=True, timeout_s=30) == "node-1"
    assert [info.id for info in await client.nodes()] == ["node-0", "node-2"]
    with pytest.raises(tenure.UnknownNode):
        await client.undrain("node-1")


@pytest.mark.tenure(nodes=2, partitions=8)
async def test_an_order_to_leave_stands_also_amid_another(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid: Any = client._home._value.grid
    store = grid.set

    async def store_late(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        await give_order(grid, "node-1", Order(leave=True))
        await store(*arguments, **options)

    monkeypatch.setattr(grid, "set", store_late)
    await give_order(grid, "node-1", Order())
    await trio.sleep(5)
    assert [info.id for info in await client.nodes()] == ["node-0"]


@tenure.job("quiet-slow")
class Slow(tenure.Job):
    done: int = 0

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(4)
        self.done += 1


@tenure.job("quiet-worker", application=APP)
class Worker(tenure.Job):
    ended: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.start_activity("work", {"argv": ["true"]}, kind="process")

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        self.ended += event.has_ended


@pytest.mark.tenure(nodes=2, partitions=8)
async def test_workers_are_listed_and_waited_for(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Worker, id="worker")
    run = await cluster.launched()
    [worker] = await client.workers(APP)
    assert (worker["job"], worker["name"], worker["status"], worker["application"]) == (
        "worker",
        "work",
        "running",
        APP,
    )
    assert worker["nodes"] == ["node-0", "node-1"]  # of one machine, as it were
    assert await client.workers("other") == []
    assert len(await client.workers(node="node-1")) == 1
    with pytest.raises(tenure.NotFinished, match=r"1 activities: worker \(activities\)"):
        await client.wait(APP, timeout_s=3)
    await run.succeed()
    await client.wait(APP)
    assert (await client.state("worker")).ended == 1
    assert await client.workers(APP) == []


@pytest.mark.tenure(nodes=2, partitions=8)
async def test_all_nodes_end_when_all_that_was_accepted_is_finished(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await client.schedule_many([(Slow, f"slow-{n}", {}) for n in range(8)])
    await client.publish("relay-1", {"left": 20})
    for n in range(8):
        await client.publish(f"slow-{n}", 1)
    assert await client.shutdown() == ["node-0", "node-1"]
    assert await client.nodes() == []
    await cluster.add_node()
    assert await total(client) == 21 - 6
    assert {(await client.state(f"slow-{n}")).done for n in range(8)} == {1}
    assert await client.ask("relay-1", {"left": 0}) > 0  # inputs are let in again


@pytest.mark.tenure(nodes=1, partitions=9)
async def test_partitions_that_do_not_answer_are_named(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await cluster.kill(0)
    told: list[str] = []
    silent = "9 partitions that do not answer: 0, 1, 2, 3, 4, 5, 6, 7, …"
    with pytest.raises(tenure.NotFinished, match=f"not quiet after 40 s: it waits for {silent}"):
        await client.wait(APP, on_wait=told.append, timeout_s=40)
    assert set(told) == {silent}


@pytest.mark.tenure(nodes=1, partitions=7)
async def test_taking_away_has_one_deadline(cluster: Cluster, client: tenure.Client) -> None:
    await relays(client)
    await cluster.kill(0)
    told: list[str] = []
    began_s = trio.current_time()
    with trio.fail_after(300):
        with pytest.raises(
            tenure.NotFinished, match="not all jobs of application 'relay' are removed after 60 s, only 0"
        ):
            await client.undeploy(APP, now=True, on_wait=told.append, timeout_s=60)
        assert any("the list of its jobs: no answer from partition" in line for line in told)
        assert 60 <= trio.current_time() - began_s < 70
        with pytest.raises(tenure.NotDone, match=r"no answer from partition \d within \S+ s"):
            await jobs_of(client._home._value, APP, 3)


@pytest.mark.tenure(nodes=1, partitions=7)
async def test_a_lost_partition_is_told_as_such(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await relays(client)
    core: Any = client._home._value
    command = core.command

    async def lost(partition: int, *arguments: Any, **options: Any) -> Any:
        if partition == 3:
            if arguments[1].get("close") != OPEN:
                await trio.sleep(1)  # the others are closed meanwhile
            raise tenure.PartitionLost("partition 3 is lost")
        return await command(partition, *arguments, **options)

    monkeypatch.setattr(core, "command", lost)
    # Not undeploying at once: that has removed some by then.
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.wait(APP),
        lambda: client.wait(APP, refuse_inputs=True),
        lambda: client.undeploy(APP),
        lambda: client.shutdown(),
    ]
    for call in calls:
        with pytest.raises(tenure.PartitionLost, match="partition 3 is lost"):
            await call()
    monkeypatch.undo()
    for n in range(5):
        assert await client.ask(f"relay-{n}", {"left": 0}) == 1  # inputs are let in again


def bad_grid() -> Faults:
    """Events that are lost, answers that are not known, reads that miss what is there."""
    return Faults(
        {
            Fault.EVENT_LOST: 0.3,
            Fault.EVENT_DELAYED: 0.1,
            Fault.APPLIED_UNKNOWN: 0.03,
            Fault.DROPPED_UNKNOWN: 0.03,
            Fault.READ_FAILED: 0.03,
            Fault.ABSENT: 0.03,
        }
    )


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_called_quiet_is_so_on_a_bad_grid(in_virtual_time: None, seed: int) -> None:
    """Nodes die meanwhile."""
    faults = bad_grid()
    async with (
        Cluster(nodes=3, members=3, partitions=7, seed=seed, faults=faults) as cluster,
        cluster.client() as client,
    ):
        await relays(client)
        await client.wait(APP)  # who subscribes to a topic has done so then
        await client.publish_many([(f"relay-{n}", {"left": 30}) for n in range(5)])

        async def trouble() -> None:
            await trio.sleep(seed + 0.5)
            await cluster.kill(seed % 3)
            await cluster.add_node()
            await trio.sleep(3)
            await cluster.drain((seed + 1) % 3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            await client.wait(APP)
            seen = await total(client)
        assert seen == 5 * (31 - 10)
        assert faults.counts[Fault.EVENT_LOST] > 0
        await trio.sleep(60)
        assert await total(client) == seen


# -- with a snapshot ------------------------------------------------------------------------------

SERIAL = itertools.count()
ITEMS = tenure.Topic("quiet-items")


@tenure.job("quiet-till", application=APP, topics=("quiet-items",))
class Till(tenure.Job):
    """Notes what it gets, and passes some of it on."""

    seen: list[str] = []

    async def on_message(self, ctx: tenure.Context, message: str) -> None:
        await trio.sleep(0.05)
        self.seen.append(message)
        if message.endswith("5"):
            ctx.send("safe", f"{ctx.id} {message}")


@tenure.job("quiet-safe", application=APP)
class Safe(tenure.Job):
    seen: list[str] = []

    def on_message(self, ctx: tenure.Context, message: str) -> None:
        self.seen.append(message)


TILLS = [f"till-{n}" for n in range(6)]


class Press:
    """Publishers that go on whatever happens, and what became of what they published."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.stored, self.unknown = set[tuple[str, str]](), set[tuple[str, str]]()
        """(till, message): of the topic's, one for each till."""
        self.told: list[str] = []
        self.go_on = True

    async def publish(self, name: str) -> None:
        async with self.cluster.client() as client:
            for n in itertools.count():
                if not self.go_on:
                    return
                till, message = TILLS[n % len(TILLS)], f"{name}-{n}"
                is_for_all = name == "topic"
                mine = {(id, message) for id in (TILLS if is_for_all else [till])}
                try:
                    await client.publish(ITEMS if is_for_all else till, message, timeout_s=3)
                    self.stored |= mine
                except tenure.Backlogged as error:
                    self.unknown |= {(id, unstored) for _, unstored in error.unstored for id, _ in mine}
                    self.told.append(str(error))
                await trio.sleep(0.02)

    def check(self, seen: dict[str, list[str]], letters: list[Any]) -> None:
        """What was acknowledged was taken once, or is a dead letter; what was not, once at most."""
        found = Counter((id, message) for id in TILLS for message in seen[id])
        found.update((letter["to"], letter["message"]) for letter in letters)
        assert self.stored - set(found) == set(), "lost"
        assert set(found) - self.stored - self.unknown == set(), "from nowhere"
        assert [item for item, times in found.items() if times > 1] == [], "doubled"


@pytest.fixture
def place() -> str:
    return f"memory:shutdown-{next(SERIAL)}"


def store_of(place: str) -> Memory:
    store = open_store(place)
    assert isinstance(store, Memory)
    return store


async def tills(client: tenure.Client) -> None:
    await client.schedule_many([(Till, id, {}) for id in TILLS] + [(Safe, "safe", {})])


@pytest.mark.parametrize(
    ("timers", "rung", "seed", "faults"),
    [("keep", 0, 1, Faults()), ("fire", 1, 2, Faults()), ("fire", 1, 3, bad_grid())],
)
async def test_all_that_was_acknowledged_is_in_the_last_snapshot(
    in_virtual_time: None, place: str, timers: Timers, rung: int, seed: int, faults: Faults
) -> None:
    told: list[str] = []
    async with Cluster(nodes=3, seed=seed, faults=faults) as cluster, cluster.client() as client:
        await tills(client)
        await relays(client)
        await client.schedule(Timed, id="timed")
        await client.wait(APP)  # who subscribes to a topic has done so then
        press = Press(cluster)
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "topic"):
                nursery.start_soon(press.publish, name)
            await trio.sleep(2)
            ended = await client.shutdown(snapshot=place, timers=timers, on_wait=told.append, timeout_s=600)
            assert ended["nodes"] == ["node-0", "node-1", "node-2"]
            name = ended["snapshot"]["name"]
            await trio.sleep(20)
            press.go_on = False
        assert await cluster.nodes() == []
        with pytest.raises(tenure.NotDone):
            await client.schedule(Safe, id="late", timeout_s=3)
        with pytest.raises(tenure.NotFinished, match=f"shut down with snapshot {name} already"):
            await client.shutdown(snapshot=place)
        with pytest.raises(tenure.NotDone, match=f"shut down with snapshot {name}"):
            await client.ask("safe", "late", timeout_s=3)
    assert [snapshot["name"] for snapshot in await tenure_snapshots(place)] == [name]
    async with Cluster(nodes=2, partitions=11) as cluster, cluster.client() as client:
        await client.restore(place)
        quiet = await client.wait(APP)
        assert quiet["timers"] == 1
        assert len((await client.state("timed")).rung) == rung
        assert await total(client) == rung * 4
        seen = {id: (await client.state(id)).seen for id in TILLS}
        letters = await client.dead_letters()
        assert {letter["reason"] for letter in letters} == {"ApplicationClosed"}
        press.check(seen, letters)
        assert await client.replay(letters) == len(letters)
        await client.wait(APP)
        seen = {id: (await client.state(id)).seen for id in TILLS}
        press.check(seen, [])
        passed = [f"{id} {message}" for id in TILLS for message in seen[id] if message.endswith("5")]
        assert sorted((await client.state("safe")).seen) == sorted(passed)
    assert {"clients to hear that nothing is stored any more", f"the snapshot to {place}"} < set(told)
    assert any("this cluster is being shut down" in line for line in press.told)
    assert f"this cluster was shut down with snapshot {name}, and goes on where" in press.told[-1]


async def tenure_snapshots(place: str) -> list[Any]:
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        return list(await client.snapshots(place))


async def goes_on(cluster: Cluster, client: tenure.Client, press: Press, letters: int) -> None:
    """All nodes are there, and what is published is stored, and taken."""
    assert [info.id for info in await client.nodes()] == ["node-0", "node-1"]
    await client.wait(APP)
    press.check({id: (await client.state(id)).seen for id in TILLS}, await client.dead_letters())
    assert len(await client.dead_letters()) == letters
    await client.publish("till-0", "more", timeout_s=3)
    press.stored.add(("till-0", "more"))
    await client.wait(APP)
    assert (await client.state("till-0")).seen[-1] == "more"


@pytest.mark.parametrize("trouble", ["broken", "slow", "given up"])
async def test_without_the_snapshot_nothing_ends(in_virtual_time: None, place: str, trouble: str) -> None:
    store = store_of(place)
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        await tills(client)
        press, told = Press(cluster), list[str]()
        with pytest.raises(tenure.BadLocation, match="relative"):
            await client.shutdown(snapshot="backups")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press.publish, "a")
            await trio.sleep(2)
            assert await client.dead_letters() == []  # nothing was begun
            if trouble == "broken":
                store.broken = True
                with pytest.raises(
                    tenure.NotFinished, match=r"the place is broken.*\. No node was told to leave, and in"
                ):
                    await client.shutdown(snapshot=place, on_wait=told.append)
            elif trouble == "slow":
                store.slow_s = 1000
                began_s = trio.current_time()
                with pytest.raises(
                    tenure.NotFinished, match=r"No snapshot was taken within .*No node was told to leave"
                ):
                    await client.shutdown(snapshot=place, on_wait=told.append, timeout_s=30)
                assert 29 < trio.current_time() - began_s < 36
            else:
                store.slow_s = 1000
                with trio.move_on_after(30) as given_up:
                    await client.shutdown(snapshot=place, on_wait=told.append)
                assert given_up.cancelled_caught
            assert told[-1] == f"the snapshot to {place}"
            letters, before = len(await client.dead_letters()), len(press.stored)
            assert letters > 0
            await trio.sleep(10)
            assert len(press.stored) > before + 100
            press.go_on = False
        await goes_on(cluster, client, press, letters)
        store.broken, store.slow_s = False, 0.0
        assert (await client.shutdown(snapshot=place))["nodes"] == ["node-0", "node-1"]


async def test_clients_go_on_when_a_shutdown_has_gone_without_a_word(in_virtual_time: None, place: str) -> None:
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        await tills(client)
        await Seal(client._home._value.grid, "gone").put()
        await trio.sleep(6)
        with pytest.raises(tenure.Backlogged, match="this cluster is being shut down") as caught:
            await client.publish("till-0", "refused", timeout_s=1)
        assert caught.value.unstored == [("till-0", "refused")]
        with pytest.raises(tenure.NotFinished, match="somebody else is shutting this cluster down"):
            await client.shutdown(snapshot=place)
        await client.publish("till-0", "stored", timeout_s=30)
        await client.wait(APP)
        # Not known to be stored, it was on its way: scheduling had begun a lane, and what stands in its slot stays.
        assert (await client.state("till-0")).seen == ["refused", "stored"]


async def test_who_comes_late_does_not_go_on_with_what_has_ended(in_virtual_time: None, place: str) -> None:
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        await tills(client)
        await cluster.pause(1)
        await trio.sleep(10)
        assert (await client.shutdown(snapshot=place))["nodes"] == ["node-0"]
        await cluster.unpause(1)
        await trio.sleep(10)
        assert await cluster.nodes() == []
        with pytest.raises(
            ClusterEnded, match=r"takes nothing any more: .* restore it here \(`tenure restore URL --rep"
        ):
            await join_cluster(client._home._value.grid)
        await client.restore(place, replace=True)  # where it is wanted here after all
        await cluster.add_node()
        await client.publish("till-0", "again")
        await client.wait(APP)
        assert (await client.state("till-0")).seen == ["again"]


async def test_a_scheduled_snapshot_is_outwaited_and_goes_along(in_virtual_time: None, place: str) -> None:
    other = f"{place}-scheduled"
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        await tills(client)
        id = await client.schedule_snapshots(other, every_s=1)
        store_of(other).slow_s = 0.5
        await trio.sleep(10)
        ended = await client.shutdown(snapshot=place, timeout_s=300)
    assert ended["snapshot"]["jobs"] == len(TILLS) + 2
    async with Cluster(nodes=1, seed=1) as cluster, cluster.client() as client:
        await client.restore(place)
        await trio.sleep(5)
        assert "schedule snapshots anew" in (await client.describe(id))["state"]["stopped"]
