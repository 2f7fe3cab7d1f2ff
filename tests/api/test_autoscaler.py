"""The autoscaler on a cluster whose nodes can run only so many turns at once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import Autoscaler
from tenure.testing import Cluster
from tests.api.test_scaling import CAPPED, Waiter

pytestmark = [pytest.mark.tenure(nodes=1, settings=CAPPED), pytest.mark.usefixtures("in_virtual_time")]
WAITERS = [f"w-{n}" for n in range(40)]
MARKS = {"nodes_max": 3, "lag_high": 50, "lag_low": 10, "fall_s": 20.0}


class Load:
    """Turns that wait for a tenth of a second: a node can do twenty in a second."""

    def __init__(self, client: tenure.Client) -> None:
        self.client, self.per_second, self.sent = client, 4, 0

    async def run(self) -> None:
        while True:
            await self.client.publish_many(
                [(WAITERS[n % len(WAITERS)], 0.1) for n in range(self.sent, self.sent + self.per_second)]
            )
            self.sent += self.per_second
            await trio.sleep(1)


@pytest.fixture
async def load(cluster: Cluster, client: tenure.Client) -> AsyncIterator[Load]:
    await client.schedule_many([(Waiter, id, {}) for id in WAITERS])
    async with trio.open_nursery() as nursery:
        load = Load(client)
        nursery.start_soon(load.run)
        yield load
        nursery.cancel_scope.cancel()


async def names(client: tenure.Client) -> list[str]:
    return [node["name"] for node in (await client.scale())["nodes"]]


async def test_it_starts_nodes_and_ends_them(cluster: Cluster, client: tenure.Client, load: Load) -> None:
    marks = {**MARKS, "nodes_max": 2}
    await client.schedule(Autoscaler, id="node", spawn=["serve", "--name", "{name}"], cwd="/srv", **marks)
    await trio.sleep(30)
    assert (await client.state("node")).started == 0
    load.per_second = 28
    with trio.fail_after(20):
        run = await cluster.launched()
    assert (run.kind, run.activity) == ("process", "node-1")
    env = {"TENURE_SPAWNED_BY": "autoscaler node"}
    assert run.work == {"argv": ["serve", "--name", "node-1"], "cwd": "/srv", "env": env}
    await trio.sleep(10)
    assert (await client.state("node")).started == 1  # it waits for the one that is coming
    await cluster.add_node()
    await trio.sleep(20)
    assert await names(client) == ["node-0", "node-1"]
    assert (await client.scale())["waiting"] < 100
    load.per_second = 4
    await run.told_to_end()
    await cluster.drain(1)
    await run.over()
    state = await client.state("node")
    assert [change.nodes for change in state.changes] == [2, 1]
    assert state.changes[0].why.startswith("started node-1: above the high marks: ")
    assert state.changes[1].why.startswith("ended node-1: below the low marks: ")
    await trio.sleep(60)
    assert (await client.state("node")).started == 1


async def test_it_survives_its_owner(cluster: Cluster, client: tenure.Client, load: Load) -> None:
    marks = {**MARKS, "nodes_min": 2}
    await client.schedule(Autoscaler, id="auto", command=["scale", "--to={nodes}"], **marks)
    run = await cluster.launched()
    assert run.work["argv"] == ["scale", "--to=2"]
    await cluster.add_node()
    await run.succeed()
    await trio.sleep(5)
    owner = (await client.describe("auto"))["node"]
    await cluster.kill(int(owner.rpartition("-")[2]))
    run = await cluster.launched()
    assert run.work["argv"] == ["scale", "--to=2"]
    await cluster.add_node()
    await run.succeed()
    load.per_second = 90
    run = await cluster.launched()
    assert run.work["argv"] == ["scale", "--to=3"]


async def test_it_never_flaps_on_a_load_that_swings(cluster: Cluster, client: tenure.Client, load: Load) -> None:
    """Eight seconds of what three nodes can carry, eight seconds of next to nothing, and so on."""

    async def obey() -> None:
        while True:
            run = await cluster.launched()
            for _ in range(int(run.work["argv"][1]) - len(await cluster.nodes())):
                await cluster.add_node()
            await run.succeed()

    await client.schedule(Autoscaler, id="auto", command=["scale", "{nodes}"], **MARKS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(obey)
        for _ in range(5):
            load.per_second = 42
            await trio.sleep(8)
            load.per_second = 2
            await trio.sleep(8)
        nursery.cancel_scope.cancel()
    changes = (await client.state("auto")).changes
    assert [change.nodes for change in changes] in ([2, 3], [3])
    assert len(await cluster.nodes()) == 3


async def test_a_node_that_does_not_come_is_not_waited_for_for_ever(
    cluster: Cluster, client: tenure.Client, load: Load
) -> None:
    await client.schedule(Autoscaler, id="auto", command=["false", "{nodes}"], start_s=10.0, **MARKS)
    load.per_second = 60
    run = await cluster.launched()
    for _ in range(3):
        await run.fail("ExitCode: it ended with exit code 1", final=True)
        run = await cluster.launched()
    changes = (await client.state("auto")).changes
    assert "change-1 has failed: ExitCode: it ended with exit code 1" in [change.why for change in changes]


async def whys(client: tenure.Client, id: str) -> list[str]:
    return [change.why for change in (await client.state(id)).changes]


async def test_nodes_that_leave_are_not_ended_twice(cluster: Cluster, client: tenure.Client) -> None:
    """They are there for a while after they were told to go: here, for longer than it takes to look again."""
    marks = {"nodes_min": 4, "nodes_max": 8, "fall_s": 600.0}
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **marks)
    runs = {}
    for _ in range(3):
        run = await cluster.launched()
        runs[run.activity] = run
        await cluster.add_node()
    runs["node-3"].ignores_cancel()
    await trio.sleep(10)
    await client.ask("node", {"nodes_min": 1, "nodes_max": 2})
    await runs["node-2"].told_to_end()
    await runs["node-3"].told_to_end()
    await trio.sleep(20)  # one run is over, one is not; their nodes are there
    assert await names(client) == ["node-0", "node-1", "node-2", "node-3"]
    await cluster.drain(2)
    await cluster.drain(3)
    await trio.sleep(20)
    assert await names(client) == ["node-0", "node-1"]
    assert await whys(client, "node") == [
        "started node-1, node-2, node-3: 1 nodes are fewer than nodes_min",
        "ended node-2, node-3: 4 nodes are more than nodes_max",
    ]


@pytest.mark.tenure(nodes=3)
async def test_nodes_of_others_are_left_alone_and_that_is_said_once(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Autoscaler, id="auto", spawn=["serve", "{name}"], nodes_max=2, fall_s=5.0)
    await trio.sleep(30)
    assert await whys(client, "auto") == ["3 nodes are more than nodes_max, and none is its own to end"]
    assert len(await names(client)) == 3


@pytest.mark.tenure(nodes=3)
async def test_a_command_is_not_run_at_each_look(cluster: Cluster, client: tenure.Client) -> None:
    """It has `start_s` to see to it; then it is run again."""
    await client.schedule(Autoscaler, id="auto", command=["scale", "{nodes}"], nodes_max=2, start_s=20.0)
    run = await cluster.launched()
    assert run.work["argv"] == ["scale", "2"]
    await run.succeed()
    await trio.sleep(15)
    assert (await client.state("auto")).started == 1
    await trio.sleep(10)
    assert (await client.state("auto")).started == 2
    assert await whys(client, "auto") == ["to 2 nodes: 3 nodes are more than nodes_max"]


async def test_a_node_that_is_given_up_is_ended_and_does_not_count(cluster: Cluster, client: tenure.Client) -> None:
    marks = {"nodes_min": 2, "nodes_max": 3, "fall_s": 600.0, "start_s": 10.0}
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **marks)
    late = await cluster.launched()
    late.ignores_cancel()
    with trio.fail_after(20):
        await late.told_to_end()
    assert (await cluster.launched()).activity == "node-2"
    await cluster.add_node()  # node-1 has come after all,
    await cluster.add_node()  # and so has node-2
    await trio.sleep(5)
    await cluster.drain(1)
    await trio.sleep(40)
    assert await names(client) == ["node-0", "node-2"]
    assert await whys(client, "node") == [
        "started node-1: 1 nodes are fewer than nodes_min",
        "given up node-1: it has not come for 10 s",
        "started node-2: 1 nodes are fewer than nodes_min",
    ]


async def test_a_node_that_fails_comes_again_and_no_other_beside_it(cluster: Cluster, client: tenure.Client) -> None:
    marks = {"nodes_min": 2, "nodes_max": 3, "fall_s": 600.0, "start_s": 10.0}
    await client.schedule(Autoscaler, id="node", spawn=["serve", "{name}"], **marks)
    run = await cluster.launched()
    await cluster.add_node()
    await trio.sleep(20)
    await cluster.kill(1)
    await run.fail("Killed: it was ended by SIGKILL")
    with trio.fail_after(20):
        again = await cluster.launched()
    assert (again.activity, again.attempt) == ("node-1", 2)
    await trio.sleep(5)
    assert (await client.state("node")).started == 1


async def test_marks_can_be_changed(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Autoscaler, id="auto", command=["scale", "{nodes}"], **MARKS)
    assert (await client.ask("auto", {"nodes_min": 3, "nodes_max": 5}))["nodes_max"] == 5
    assert (await cluster.launched()).work["argv"] == ["scale", "3"]


async def activities(client: tenure.Client) -> dict[str, str]:
    return {activity["name"]: activity["status"] for activity in (await client.describe("node"))["activities"]}


async def test_what_starts_nodes_can_be_changed_and_those_that_are_there_stay(
    cluster: Cluster, client: tenure.Client
) -> None:
    marks = {"nodes_min": 2, "nodes_max": 3, "fall_s": 600.0}
    await client.schedule(Autoscaler, id="node", spawn=["old", "{name}"], cwd="/old", **marks)
    await cluster.launched()
    await cluster.add_node()
    await trio.sleep(5)
    changed = await client.ask("node", {"nodes_min": 3, "spawn": ["new", "{name}"], "cwd": "/new", "env": {"V": "2"}})
    assert (changed["spawn"], changed["cwd"], changed["env"]) == (["new", "{name}"], "/new", {"V": "2"})
    assert (changed["nodes_min"], "command" in changed) == (3, False)
    run = await cluster.launched()
    assert run.work["argv"] == ["new", "node-2"]
    assert (run.work["cwd"], run.work["env"]["V"]) == ("/new", "2")
    await cluster.add_node()
    await trio.sleep(20)
    assert await activities(client) == {"node-1": "running", "node-2": "running"}
    assert await names(client) == ["node-0", "node-1", "node-2"]
    # By a command from now on: what was started is no business of its any more, until it is removed.
    changed = await client.ask("node", {"spawn": [], "command": ["scale", "{nodes}"], "nodes_min": 4, "nodes_max": 5})
    assert (changed["spawn"], changed["command"]) == ([], ["scale", "{nodes}"])
    assert (await cluster.launched()).work["argv"] == ["scale", "4"]
    await trio.sleep(20)
    assert await activities(client) == {"node-1": "running", "node-2": "running", "change-3": "running"}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"nodes_max": 5, "nodes_maxx": 1}, "has no mark 'nodes_maxx'; there are nodes_min, nodes_max"),
        ({"nodes_max": 5, "spawn": ["tenure", "node", "app.py"]}, "must have {name} in it"),
        ({"nodes_max": 5, "command": ["scale", "{nodes}"]}, "either a `spawn` or a `command`"),
        ({"nodes_max": 5, "spawn": []}, "either a `spawn` or a `command`"),
        ({"nodes_max": 5, "nodes_min": 6}, "1 <= nodes_min <= nodes_max, not 6 and 5"),
        ({"nodes_max": 5, "cwd": 7}, "Expected `str`, got `int`"),
        ({"nodes_max": "many"}, "Expected `int`, got `str`"),
        ({"nodes_max": 5, "env": {"V": 2}}, "Expected `str`, got `int`"),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused_as_a_whole(
    cluster: Cluster, client: tenure.Client, message: dict[str, Any], why: str
) -> None:
    await client.schedule(Autoscaler, id="auto", spawn=["old", "{name}"], **MARKS)
    before = await client.state("auto")
    assert why in (await client.ask("auto", message))["refused"]
    after = await client.state("auto")
    assert (after.nodes_max, after.spawn, after.command, after.cwd) == (before.nodes_max, ["old", "{name}"], [], "")
    assert (await client.describe("auto"))["status"] == "running"
    assert (await client.ask("auto", {"nodes_max": 5}))["nodes_max"] == 5


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({}, "either a `spawn` or a `command`"),
        ({"spawn": ["a", "{name}"], "command": ["b", "{nodes}"]}, "either a `spawn` or a `command`"),
        ({"spawn": ["tenure", "node", "app.py"]}, "must have {name} in it"),
        ({"command": ["scale"]}, "must have {nodes} in it"),
        ({"command": ["{nodes}"], "nodes_min": 9}, "nodes_min <= nodes_max"),
    ],
)
async def test_what_makes_no_sense_does_not_start(
    cluster: Cluster, client: tenure.Client, parameters: dict[str, Any], what: str
) -> None:
    await client.schedule(Autoscaler, id="auto", **{**MARKS, **parameters})
    await trio.sleep(1)
    failure = (await client.describe("auto"))["failure"]
    assert failure is not None
    assert what in failure["error"]
