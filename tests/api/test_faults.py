"""Nodes and members that die, freeze, go and come: jobs go on, exactly once."""

from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.host import Host
from tenure.scheduler.keys import partition_of
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step


@tenure.job("api-resumer")
class Resumer(tenure.Job):
    """Opens something local, again after each move."""

    log: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        self.log.append("started")

    def on_resume(self, ctx: tenure.Context) -> None:
        self.log.append(ctx.event)

    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        return ctx.fence


async def test_a_killed_node_loses_nothing(cluster: Cluster, client: tenure.Client) -> None:
    ids = [f"c{n}" for n in range(20)]
    await client.schedule_many([(Counter, id, {}) for id in ids])
    for n in range(30):
        await client.publish_many([(id, {"n": n}) for id in ids])
        if n == 10:
            await cluster.kill(0)
    for id in ids:
        assert (await client.state(id)).seen == list(range(30))
    assert await cluster.nodes() == [1]


async def test_a_paused_node_wakes_up_and_commits_nothing(cluster: Cluster, client: tenure.Client) -> None:
    begun: list[tuple[str, int]] = []
    go_on = trio.Event()

    async def slow(job: Script, ctx: tenure.Context) -> None:
        begun.append((ctx.turn_id, ctx.fence))
        if len(begun) == 1:
            await go_on.wait()
        job.log.append(f"done by {len(begun)}")

    await client.schedule(Script, id="s")
    await client.publish("s", step(slow))
    await trio.sleep(1)
    owner = int((await client.describe("s"))["node"].removeprefix("node-"))
    await cluster.pause(owner)
    assert (await client.state("s")).log == ["started", "done by 2"]
    go_on.set()
    await trio.sleep(1)
    await cluster.unpause(owner)
    await trio.sleep(5)
    assert (await client.state("s")).log == ["started", "done by 2"]
    (first_turn, first_fence), (second_turn, second_fence) = begun
    assert first_turn == second_turn
    assert first_fence < second_fence
    assert await cluster.nodes() == [0, 1]


async def test_a_drained_node_hands_over_and_ends(cluster: Cluster, client: tenure.Client) -> None:
    ids = [f"c{n}" for n in range(20)]
    await client.schedule_many([(Counter, id, {}) for id in ids])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.drain, 0)
        for n in range(20):
            await client.publish_many([(id, {"n": n}) for id in ids])
            await trio.sleep(0.05)
    for id in ids:
        assert (await client.state(id)).seen == list(range(20))
    assert await cluster.nodes() == [1]
    assert {partition["node"] for partition in await client.partitions()} == {"node-1"}


async def test_numbers_are_never_used_again(cluster: Cluster) -> None:
    await cluster.kill(1)
    assert await cluster.add_node() == 2
    await cluster.drain(2)
    assert await cluster.add_node() == 3
    assert await cluster.nodes() == [0, 3]
    await cluster.kill_member(0)
    assert await cluster.add_member() == 2
    assert await cluster.members() == [1, 2]
    with pytest.raises(tenure.Mistake, match="no node 1 lives; there are: 0, 3"):
        await cluster.kill(1)
    with pytest.raises(tenure.Mistake, match="no member 0 lives; there are: 1, 2"):
        await cluster.kill_member(0)


async def test_a_new_node_takes_its_share(cluster: Cluster, client: tenure.Client) -> None:
    added = await cluster.add_node()
    await trio.sleep(1)
    owners = [partition["node"] for partition in await client.partitions()]
    assert owners.count(f"node-{added}") >= 3


@pytest.mark.parametrize("how", ["drain", "kill"])
async def test_on_resume_runs_after_a_move(cluster: Cluster, client: tenure.Client, how: str) -> None:
    ids = [f"r{n}" for n in range(10)]
    await client.schedule_many([(Resumer, id, {}) for id in ids])
    fences = [await client.ask(id, None) for id in ids]
    owners = {id: (await client.describe(id))["node"] for id in ids}
    assert set(owners.values()) == {"node-0", "node-1"}
    await getattr(cluster, how)(0)
    for id, fence in zip(ids, fences, strict=True):
        moved = owners[id] == "node-0"
        assert (await client.state(id)).log == ["started"] + ["resumed"] * moved
        assert await client.ask(id, None) > fence


async def test_a_durable_step_is_not_done_again_after_a_crash(cluster: Cluster, client: tenure.Client) -> None:
    done: list[str] = []

    def charge() -> str:
        done.append("charged")
        return f"receipt {len(done)}"

    async def work(job: Script, ctx: tenure.Context) -> None:
        receipt = await ctx.once("charge", charge)
        tries.append(ctx.attempt)
        if len(tries) == 1:
            await trio.sleep_forever()
        job.log.append(receipt)

    tries: list[int] = []
    await client.schedule(Script, id="s")
    await client.publish("s", step(work))
    await trio.sleep(1)
    await cluster.kill(int((await client.describe("s"))["node"].removeprefix("node-")))
    assert (await client.state("s")).log == ["started", "receipt 1"]
    assert len(tries) == 2
    assert done == ["charged"]


async def test_a_member_may_die(cluster: Cluster, client: tenure.Client) -> None:
    ids = [f"c{n}" for n in range(20)]
    await client.schedule_many([(Counter, id, {}) for id in ids])
    for n in range(20):
        await client.publish_many([(id, {"n": n}) for id in ids])
        if n == 10:
            await cluster.kill_member(0)
    for id in ids:
        assert (await client.state(id)).seen == list(range(20))


@pytest.mark.tenure(members=2, backups=0, nodes=1)
async def test_a_lost_partition_stops_and_says_so_while_the_others_go_on(
    cluster: Cluster, client: tenure.Client
) -> None:
    ids = [f"c{n}" for n in range(64)]
    await client.schedule_many([(Counter, id, {}) for id in ids])
    await client.publish_many([(id, {"n": 1}) for id in ids])
    for id in ids:
        assert (await client.state(id)).total == 1
    await cluster.kill_member(0)
    await trio.sleep(30)
    [node] = await client.nodes()
    lost = set(node.lost)
    assert len(lost) == 8
    # While they wait to be looked at again, nobody steps aside for them.
    hosts = await cluster._home.run(_hosts)
    assert not any(host.precedence.first & lost for host in hosts)
    answered = 0
    for id in ids:
        if partition_of(id, 16) in lost:
            continue
        assert await client.ask(id, {"n": 1}) == 2
        answered += 1
    assert answered > 0
    gone = next(id for id in ids if partition_of(id, 16) in lost)
    with pytest.raises(tenure.PartitionLost):
        await client.ask(gone, {"n": 1}, timeout_s=10)


async def _hosts(backend: Any) -> list[Host]:
    return [running.node.host for running in backend._nodes.values()]


OLD = """
import tenure

@tenure.job("api-versioned")
class Account(tenure.Job):
    cents: int = 0

    def on_message(self, ctx, message):
        self.cents += message
        return self.cents
"""
NEW = """
import tenure

@tenure.job("api-versioned", version=2)
class Account(tenure.Job):
    euros: float = 0.0
    currency: str = "EUR"

    @staticmethod
    def upgrade(state, version):
        assert version == 1
        return {"euros": state["cents"] / 100}

    def on_message(self, ctx, message):
        self.euros += message / 100
        return self.euros
"""


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(OLD)
    new.write_text(NEW)
    return old, new


async def test_states_are_upgraded_and_what_a_node_can_not_read_it_parks_and_names(
    versions: tuple[Path, Path], in_virtual_time: None, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = versions
    async with Cluster(nodes=1, app=old) as cluster, cluster.client() as client:
        await client.schedule("api-versioned", id="a", cents=100)
        assert await client.ask("a", 50) == 150
        await cluster.add_node(new)
        await cluster.drain(0)
        assert await client.ask("a", 50) == 2.0
        description = await client.describe("a")
        assert description["state"] == {"euros": 2.0, "currency": "EUR"}
        assert description["version"] == 2
        # Back to the old application: it can't read what the new one wrote, and leaves it alone.
        await cluster.add_node(old)
        await cluster.drain(1)
        with pytest.raises(tenure.JobStuck, match="start a node with the newer application"):
            await client.ask("a", 50, timeout_s=5)
        description = await client.describe("a")
        assert description["stuck"] == (
            "its state is of version 2 of 'api-versioned', node node-2 has version 1; "
            "start a node with the newer application"
        )
        assert description["stuck"] in capsys.readouterr().out
        assert description["state"] == {"euros": 2.0, "currency": "EUR"}
        await cluster.add_node(new)
        await cluster.drain(2)
        assert await client.ask("a", 50) == 2.5


async def test_a_state_that_its_class_can_not_read_is_parked_and_named(
    tmp_path: Path, in_virtual_time: None, versions: tuple[Path, Path]
) -> None:
    changed = tmp_path / "changed.py"
    changed.write_text(OLD.replace("cents: int = 0", "cents: str = ''"))
    async with Cluster(nodes=1, app=versions[0]) as cluster, cluster.client() as client:
        await client.schedule("api-versioned", id="a", cents=100)
        await client.state("a")
        await cluster.add_node(changed)
        await cluster.drain(0)
        await trio.sleep(1)
        with pytest.raises(tenure.JobStuck, match="Undecodable"):
            await client.ask("a", 50, timeout_s=5)
        description = await client.describe("a")
        assert "Undecodable" in description["stuck"]
        assert "Expected `str`, got `int` - at `$.cents`" in description["stuck"]
        assert description["state"] == {"cents": 100}


async def test_a_job_of_a_type_that_no_node_knows_waits_and_says_so(in_virtual_time: None) -> None:
    async with Cluster(nodes=1, app=tenure.Registry()) as cluster, cluster.client() as stranger:
        async with cluster.client(registry=tenure.registry) as client:
            await client.schedule(Counter, id="c", total=1)
            await client.publish("c", {"n": 1})
            await trio.sleep(1)
            description = await stranger.describe("c")
            assert description["stuck"].startswith("UnknownJobType: node node-0 does not know job type 'api-counter'")
            assert await stranger.state("c") == {"total": 1}
            await cluster.add_node(Path(__file__).with_name("jobs.py"))
            await cluster.drain(0)
            assert (await client.state("c")).total == 2


@pytest.mark.tenure(settings=tenure.NodeSettings(allow_pickled_jobs=True))
async def test_a_pickled_callable_runs_where_it_is_allowed(client: tenure.Client) -> None:
    factor = 3

    def times(ctx: tenure.Context, message: int) -> int:
        ctx.state["sum"] = ctx.state.get("sum", 0) + factor * message
        total: int = ctx.state["sum"]
        return total

    await client.schedule(times, id="p")
    assert await client.ask("p", 2) == 6
    assert await client.ask("p", 1) == 9
    assert await client.state("p") == {"sum": 9}
    assert (await client.describe("p"))["type"].startswith("pickled:")


async def test_a_pickled_callable_is_refused_where_it_is_not(client: tenure.Client) -> None:
    with pytest.raises(tenure.PickledJobsRefused, match=r"register the function with @tenure\.job.*allow_pickled_jobs"):
        await client.schedule(lambda ctx, message: message, id="p")
    with pytest.raises(tenure.UnknownJob):
        await client.state("p")


@pytest.mark.tenure(nodes=0)
async def test_a_node_that_does_not_run_pickled_callables_parks_them_and_says_so(
    cluster: Cluster, client: tenure.Client
) -> None:
    await client.schedule(lambda ctx, message: message, id="p")
    await cluster.add_node()
    with pytest.raises(tenure.JobStuck, match="PickledJobsRefused"):
        await client.ask("p", 1, timeout_s=5)
    await client.publish("p", 1)
    description = await client.describe("p")
    assert description["stuck"].startswith("PickledJobsRefused: node node-0 does not run pickled callables")
    assert description["waiting"] == 2


@pytest.mark.tenure(settings=tenure.NodeSettings(allow_pickled_jobs=True))
async def test_what_can_not_be_pickled_is_refused(client: tenure.Client) -> None:
    generator = (n for n in range(3))

    def handler(ctx: tenure.Context, message: Any) -> Any:
        return next(generator)

    with pytest.raises(tenure.NotPicklable, match=r"handler.*can't be pickled.*register it"):
        await client.schedule(handler, id="p")
