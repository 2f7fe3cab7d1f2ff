"""Upgrades that are not well stop, and say what is left. Where processes would be started, nodes in memory are."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.clients import scaling, upgrading
from tenure.clients.scaling import GRACE_S
from tenure.clients.upgrading import plan_upgrade
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.memory import Fault, Faults
from tenure.scheduler.grid.port import Map
from tenure.scheduler.upgrade_plan import read_plan
from tenure.testing import Cluster

COMMAND = ["tenure", "node", "newer.py"]
FAILS: set[str] = set()


@tenure.job("stops-fragile", retry=tenure.Retry(attempts_max=1))
class Fragile(tenure.Job):
    """Fails when it is told to, as newer code might."""

    def on_message(self, ctx: tenure.Context, message: float) -> None:
        if ctx.id in FAILS:
            raise RuntimeError("the newer code can't do that")


@tenure.job("stops-clumsy")
class Clumsy(tenure.Job):
    """Fails as often as it is told to, and is tried again."""

    async def on_message(self, ctx: tenure.Context, times: int) -> None:
        tries[ctx.id] = tries.get(ctx.id, 0) + 1
        if tries[ctx.id] <= times:
            raise RuntimeError("the newer code can't do that yet")


tries: dict[str, int] = {}


@tenure.job("stops-slow")
class Slow(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: float) -> None:
        await trio.sleep(message)


async def nothing(*_: Any) -> None:
    await trio.lowlevel.checkpoint()


class Started:
    """A process that was started, as an upgrade sees it."""

    log_file = Path("/logs/it.log")

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code

    def ended(self) -> int | None:
        return self.exit_code

    def last_words(self) -> str:
        return "no such file"


class Upgraded:
    """A testing cluster whose nodes an upgrade replaces."""

    def __init__(self, cluster: Cluster, client: tenure.Client) -> None:
        self.cluster, self.client = cluster, client
        self.backend: Any = cluster._home._value
        self.core: GridClient = client._home._value
        self.exit_code: int | None = None
        """What is started ends at once."""
        self.delay_s = 0.0
        self.marks = True
        """What is started says by whom."""
        self.started = 0
        self.at: dict[str, Callable[[], Any]] = {}
        """What happens at the first step whose text has this in it."""
        self.steps: list[str] = []

    async def spawned(self, command: Sequence[str], address: str, log_folder: Path | None, token: str) -> Started:
        self.started += 1
        if self.exit_code is None:
            self.backend._nursery.start_soon(self.start, token if self.marks else "", self.delay_s)
        await trio.lowlevel.checkpoint()
        return Started(self.exit_code)

    async def start(self, token: str = "", delay_s: float = 0.0) -> None:
        """A node comes, by whosever hand."""
        await trio.sleep(delay_s)
        self.backend._nodes[await self.cluster.add_node()].node.host.spawned_by = token

    def on_step(self, step: str) -> None:
        self.steps.append(step)
        for part in [part for part in self.at if part in step]:
            self.at.pop(part)()

    async def run(self, command: Sequence[str] = COMMAND, **options: Any) -> dict[str, str]:
        return await self.client.upgrade(command, on_step=self.on_step, **options)

    async def killed(self, at: str, **options: Any) -> None:
        """The same, by a process that is killed at the first step whose text has this in it."""
        with pytest.MonkeyPatch.context() as patch, trio.CancelScope() as killed:
            patch.setattr(upgrading._Upgrade, "end", nothing)
            self.at[at] = killed.cancel
            await self.run(**options)
        assert killed.cancelled_caught

    async def nodes(self) -> list[str]:
        return [node["id"] for node in (await self.client.scale())["nodes"]]

    async def press(self) -> None:
        """Messages all the while."""
        while True:
            await self.client.publish_many([(f"fragile-{n}", 0) for n in range(8)])
            await trio.sleep(0.1)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch, in_virtual_time: None) -> Any:
    FAILS.clear()
    tries.clear()

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Upgraded]:
        async with Cluster(**{"nodes": 2, "partitions": 8, **options}) as cluster, cluster.client() as client:
            it = Upgraded(cluster, client)
            monkeypatch.setattr(upgrading, "spawned_by", it.spawned)
            monkeypatch.setattr(upgrading, "address_of", lambda grid: "memory")
            await client.schedule_many([(Fragile, f"fragile-{n}", {}) for n in range(8)])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(it.press)
                yield it
                nursery.cancel_scope.cancel()

    return opened


async def test_all_is_well(upgraded: Any) -> None:
    async with upgraded() as it:
        began_s = trio.current_time()
        assert await it.run() == {"node-0": "node-2", "node-1": "node-3"}
        assert await it.nodes() == ["node-2", "node-3"]
        assert await read_plan(it.core.grid) is None
        # Each new node is watched for 3 s before an old one goes, and all once more at the end: not after each drain.
        assert 9 < trio.current_time() - began_s < 17


async def test_jobs_that_fail_when_a_drain_has_moved_them_stop_the_next_step(upgraded: Any) -> None:
    async with upgraded() as it:
        it.at["draining node-0"] = lambda: FAILS.update({"fragile-1", "fragile-2"})
        with pytest.raises(
            tenure.UpgradeStopped, match="1 of 2 nodes are replaced: 2 more jobs have failed"
        ) as stopped:
            await it.run()
        assert "Nodes that are left: node-1; they go on." in str(stopped.value)
        plan = await read_plan(it.core.grid)
        assert plan is not None
        assert (plan.left, plan.replaced) == (["node-1"], {"node-0": "node-2"})
        # Seen by somebody: the same again goes on with what is left, and with what was started for it.
        assert await it.run() == {"node-0": "node-2", "node-1": "node-3"}


async def test_jobs_that_fail_after_the_last_drain_are_told(upgraded: Any) -> None:
    async with upgraded() as it:
        it.at["2 of 2 done"] = lambda: FAILS.add("fragile-1")
        with pytest.raises(
            tenure.UpgradeStopped, match="2 of 2 nodes are replaced: 1 more jobs have failed"
        ) as stopped:
            await it.run()
        assert "No old node is left: mend what is wrong" in str(stopped.value)
        assert await read_plan(it.core.grid) is None


async def test_jobs_that_had_failed_before_are_no_reason_to_stop(upgraded: Any) -> None:
    async with upgraded() as it:
        FAILS.add("fragile-1")
        await trio.sleep(1)
        assert len(await it.run()) == 2


async def clumsy(it: Upgraded, times: dict[str, int]) -> None:
    await it.client.schedule_many([(Clumsy, id, {}) for id in times])
    await it.client.publish_many(list(times.items()))


async def test_jobs_that_are_tried_again_and_again_stop_the_next_step(upgraded: Any) -> None:
    """With twenty attempts, which is what there is, they don't fail for minutes."""
    async with upgraded() as it:
        some = {"clumsy-1": 15, "clumsy-2": 15, "has a hiccup": 2}
        it.at["draining node-0"] = lambda: it.backend._nursery.start_soon(clumsy, it, some)
        with pytest.raises(
            tenure.UpgradeStopped, match=r"1 of 2 nodes .* 2 more jobs have failed, are tried again and again, or"
        ) as stopped:
            await it.run()
        assert "state=retrying" in str(stopped.value)
        assert {job["status"] for job in await it.client.jobs("type=stops-clumsy")} == {"running"}


async def test_jobs_that_were_tried_again_before_are_no_reason_to_stop(upgraded: Any) -> None:
    async with upgraded() as it:
        await clumsy(it, {"clumsy-1": 15})
        await trio.sleep(5)
        assert len(await it.client.jobs("state=retrying")) == 1
        assert len(await it.run()) == 2


async def test_a_new_node_of_an_earlier_step_that_dies_later_is_noticed(upgraded: Any) -> None:
    async with upgraded() as it:
        it.at["in place of node-1"] = lambda: it.backend._nursery.start_soon(it.cluster.kill, 2)
        with pytest.raises(tenure.UpgradeStopped, match=r"1 of 2 nodes .* the new node node-2 has fallen silent"):
            await it.run()


async def test_what_was_started_and_has_ended_is_told_with_its_exit_code(upgraded: Any) -> None:
    async with upgraded() as it:
        it.exit_code = 3
        with pytest.raises(
            tenure.UpgradeStopped,
            match=r"has ended with exit code 3: no such file.*last: /logs/it.log.*left: node-0, node-1",
        ):
            await it.run()


async def test_lost_partitions_stop_it(upgraded: Any) -> None:
    async with upgraded() as it:
        it.at["watching"] = lambda: it.backend._nodes[2].node.lost.update({3: "all copies are gone"})
        with pytest.raises(tenure.UpgradeStopped, match=r"0 of 2 .* node node-2 reports 1 lost partitions"):
            await it.run()
        assert await it.nodes() == ["node-0", "node-1", "node-2"]


async def test_no_answer_stops_it(upgraded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any, **__: Any) -> None:
        await trio.sleep(1)
        raise tenure.NotDone("no answer within 1 s")

    async with upgraded() as it:
        it.at["watching"] = lambda: monkeypatch.setattr(it.core, "command", nobody)
        with pytest.raises(tenure.UpgradeStopped, match=r"partition . of the new node node-2 does not answer"):
            await it.run()


async def test_a_grid_that_does_not_answer_stops_it(upgraded: Any) -> None:
    faults = Faults()
    async with upgraded(faults=faults) as it:

        def fail() -> None:
            for _ in range(1_000):
                faults.once(Fault.READ_FAILED, map=Map.NODES, connection=it.core.grid)

        it.at["watching"] = fail
        with pytest.raises(
            tenure.UpgradeStopped, match=r"0 of 2 .* members have not answered for 30 s.* node-0, node-1"
        ):
            await it.run()
        faults.end()
        assert await plan_upgrade(it.core, None) == ["node-0", "node-1"]


async def test_a_node_that_has_gone_since_is_not_replaced_again(upgraded: Any) -> None:
    async with upgraded(nodes=1, settings=tenure.NodeSettings(drain_deadline_s=600)) as it:
        await it.client.schedule_many([(Slow, f"slow-{n}", {}) for n in range(16)])
        it.at["watching"] = lambda: it.backend._nursery.start_soon(
            it.client.publish_many, [(f"slow-{n}", 40.0) for n in range(16)]
        )
        with pytest.raises(tenure.UpgradeStopped, match=r"node-0 has not handed over within 10 s\. .*left: node-0;"):
            await it.run(timeout_s=10)
        assert await plan_upgrade(it.core, None) == ["node-0"]
        await trio.sleep(60)
        assert await it.nodes() == ["node-1"]
        assert await plan_upgrade(it.core, None) == []
        assert await plan_upgrade(it.core, None, ["another"]) == ["node-1"]
        assert await it.run() == {"node-0": ""}
        assert (await it.nodes(), it.started) == (["node-1"], 1)
        # That one is done: the next is a new one, also with the same command.
        assert await it.run() == {"node-1": "node-2"}


@pytest.mark.parametrize("at", ["watching node-2", "draining node-0"])
async def test_what_a_killed_one_has_started_is_not_started_again(upgraded: Any, at: str) -> None:
    async with upgraded() as it:
        await it.killed(at)
        assert await it.nodes() == ["node-0", "node-1", "node-2"]
        it.steps.clear()
        assert await it.run() == {"node-0": "node-2", "node-1": "node-3"}
        assert (await it.nodes(), it.started) == (["node-2", "node-3"], 2)
        assert "going on with what was started in place of node-0: node-2" in it.steps
        assert it.steps[-1].startswith("watching")


async def test_what_a_killed_one_has_replaced_is_not_replaced_by_the_same_nodes_again(
    upgraded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old node has gone, and that was not written down: what came for it does not come for the next."""
    async with upgraded() as it:

        async def left(grid: Any, id: str) -> None:
            await scaling.left(grid, id)
            it.on_step(f"{id} has left")

        with monkeypatch.context() as patch:
            patch.setattr(upgrading, "left", left)
            await it.killed("node-0 has left")
        assert await it.nodes() == ["node-1", "node-2"]
        assert await it.run() == {"node-1": "node-3"}
        assert (await it.nodes(), it.started) == (["node-2", "node-3"], 2)


@pytest.mark.parametrize(("dead", "second"), [([], "node-3"), ([3], "node-4")])
async def test_only_what_is_missing_of_what_a_killed_one_has_started_is_started(
    upgraded: Any, dead: list[int], second: str
) -> None:
    """For all that it was replacing at once, though fewer are to be now."""
    async with upgraded() as it:
        await it.killed("watching node-2, node-3", at_once=2)
        for node in dead:
            await it.cluster.kill(node)
        assert await it.run() == {"node-0": "node-2", "node-1": second}
        assert (await it.nodes(), it.started) == (["node-2", second], 2 + len(dead))


async def test_what_a_killed_one_has_started_may_come_late(upgraded: Any) -> None:
    """It is taken for what was started for it, which is named then."""
    async with upgraded() as it:
        it.delay_s = 30
        await it.killed("waiting until")
        it.delay_s = 20
        assert await it.run() == {"node-0": "node-2", "node-1": "node-4"}
        assert it.steps[-1] == "not replaced, as they came meanwhile: node-3"


async def test_what_was_started_by_another_command_is_no_part_of_it(upgraded: Any) -> None:
    async with upgraded() as it:
        await it.killed("watching node-2")
        assert await it.run(command=["tenure", "node", "newest.py"]) == {"node-0": "node-3", "node-1": "node-4"}


async def test_a_node_that_was_silent_for_a_moment_is_not_taken_for_a_new_one(upgraded: Any) -> None:
    async with upgraded() as it:
        await it.cluster.pause(1)
        await trio.sleep(1)
        it.delay_s = 5
        it.at["waiting until"] = lambda: it.backend._nursery.start_soon(it.cluster.unpause, 1)
        assert await it.run(nodes=["node-0"]) == {"node-0": "node-2"}


async def test_an_old_node_that_was_silent_for_long_is_not_taken_for_a_new_one(upgraded: Any) -> None:
    async with upgraded() as it:

        async def sleep() -> None:
            await it.cluster.pause(1)
            await trio.sleep(15)
            await it.cluster.unpause(1)

        it.delay_s = 30
        it.at["draining node-0"] = lambda: it.backend._nursery.start_soon(sleep)
        assert await it.run() == {"node-0": "node-2", "node-1": "node-3"}


async def test_one_that_is_left_and_silent_is_still_left(upgraded: Any) -> None:
    async with upgraded() as it:
        it.exit_code = 3
        with pytest.raises(tenure.UpgradeStopped):
            await it.run(nodes=["node-1"])
        await it.cluster.pause(1)
        await trio.sleep(1)
        assert await it.nodes() == ["node-0"]
        assert await plan_upgrade(it.core, None) == ["node-1"]


async def test_nodes_that_others_start_meanwhile_are_not_taken_for_new_ones(upgraded: Any) -> None:
    """Neither one that says so (an autoscaler's), nor one that says nothing (of what starts containers again)."""
    async with upgraded() as it:

        def meddle() -> None:
            it.backend._nursery.start_soon(it.start)
            it.backend._nursery.start_soon(it.start, "autoscaler a", 0.1)

        it.delay_s = 4
        it.at["starting 1 in place of node-0"] = meddle
        replaced = await it.run()
        assert sorted(await it.nodes()) == ["node-2", "node-3", *replaced.values()]
        assert not {"node-2", "node-3"} & set(replaced.values())
        assert it.steps[-1] == "not replaced, as they came meanwhile: node-2, node-3"


async def test_nodes_that_can_not_say_who_started_them_are_taken_after_a_while(upgraded: Any) -> None:
    """Older ones, and those of a command that reaches another machine. Never those that say that another did."""
    async with upgraded() as it:
        it.marks, it.delay_s = False, 8
        it.at["starting 1 in place of node-0"] = lambda: it.backend._nursery.start_soon(it.start, "autoscaler a")
        began_s = trio.current_time()
        assert await it.run() == {"node-0": "node-3", "node-1": "node-4"}
        assert trio.current_time() - began_s > 2 * (8 + GRACE_S)
        assert it.steps[-1] == "not replaced, as they came meanwhile: node-2"


async def test_nodes_that_others_start_meanwhile_are_not_taken_for_added_ones(
    upgraded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upgraded() as it:
        monkeypatch.setattr(scaling, "spawned_by", it.spawned)
        monkeypatch.setattr(scaling, "address_of", lambda grid: "memory")
        it.delay_s = 4
        it.backend._nursery.start_soon(it.start, "", 1)
        assert await it.client.scale_to(3, spawn=COMMAND) == ["node-3"]
