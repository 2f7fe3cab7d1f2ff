"""Autoscalers on real processes: lag brings nodes, by either hook, and its end takes them away; the books balance. This
file is the application, too."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import Autoscaler
from tenure.testing import Cluster

pytestmark = pytest.mark.cluster

IDS = [f"slow-{n}" for n in range(100)]
LAG_HIGH = 100
MARKS: dict[str, Any] = {"nodes_max": 2, "lag_high": LAG_HIGH, "lag_low": 20, "fall_s": 3.0}
BUSY = {"busy_low": 0.9, "busy_high": 1.0}
"""Of the machine's business alone nothing follows here: others use it."""
SETTINGS = tenure.NodeSettings(turns_at_once_max=2)
WITHIN_S = 60


@tenure.job("slow")
class Slow(tenure.Job):
    """Takes its time for each message; they come in order."""

    last: int = 0
    disordered: int = 0

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(0.005)
        self.disordered += message != self.last + 1
        self.last = message


def spawning(folder: Path) -> dict[str, Any]:
    node = [sys.executable, "-m", "tenure.cli", "node", __file__, "--name", "{name}", "--turns-at-once", "2"]
    return {"spawn": node, "cwd": str(folder)}


def hooked(folder: Path) -> dict[str, Any]:
    """It tells whoever has nodes started how many there are to be."""
    return {"command": ["sh", "-c", "echo {nodes} > told && mv told wanted"], "cwd": str(folder)}


async def orchestrate(cluster: Cluster, folder: Path) -> None:
    """Have as many nodes as the hook says, as an orchestrator does."""
    while True:
        await trio.sleep(0.2)
        if not (folder / "wanted").exists():  # in a test, and small
            continue
        wanted, there = int((folder / "wanted").read_text()), await cluster.nodes()
        if wanted > len(there):
            await cluster.add_node()
        elif wanted < len(there):
            await cluster.drain(there[-1])


async def nodes(client: tenure.Client, count: int) -> None:
    with trio.fail_after(WITHIN_S):
        while len([info for info in await client.nodes() if not info.draining]) != count:  # noqa: ASYNC110  # no event
            await trio.sleep(0.2)


async def load(client: tenure.Client, rounds: int) -> None:
    for n in range(1, rounds + 1):
        await client.publish_many([(id, n) for id in IDS])


@pytest.mark.parametrize("means", [spawning, hooked])
async def test_lag_brings_a_node_and_its_end_takes_it_away(means: Any, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(Path(tenure.__file__).parents[1])}
    rounds = 60
    async with (
        Cluster(nodes=1, members=1, grid="hazelcast", app=__file__, settings=SETTINGS) as cluster,
        cluster.client() as client,
        trio.open_nursery() as nursery,
    ):
        if means is hooked:
            nursery.start_soon(orchestrate, cluster, tmp_path)
        await client.schedule_many([(Slow, id, {}) for id in IDS])
        await client.schedule(Autoscaler, id="scaler", env=env, **MARKS, **BUSY, **means(tmp_path))
        await trio.sleep(2)
        assert len(await client.nodes()) == 1, "nothing asks for another one"
        await load(client, rounds)  # fifteen seconds' work for one node
        await nodes(client, 2)
        await nodes(client, 1)  # all is done, and the one that came has gone
        states = [await client.state(id) for id in IDS]
        scaler = await client.state("scaler")
        assert [change.nodes for change in scaler.changes] == [2, 1], "it did not flap"
        await client.unschedule("scaler")
        nursery.cancel_scope.cancel()
    assert {(state.last, state.disordered) for state in states} == {(rounds, 0)}
