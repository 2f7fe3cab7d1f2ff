"""The lifecycle controller (see test_lifecycle.py), whose commands are run, on real processes, by itself."""

import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import Lifecycle
from tenure.testing import Cluster

IDS = [f"key-{n}" for n in range(20)]
NODE = shlex.join([sys.executable, "-m", "tenure.cli", "node", __file__, "--name", "spare-{name}"])


@tenure.job("heritage-commanded")
class State(tenure.Job):
    """State that must be there, whole, wherever it is moved."""

    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.total += message
        return self.total


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(90):
        while not await true():  # noqa: ASYNC110  # no event tells
            await trio.sleep(0.2)


async def instruct(client: tenure.Client, nth: int, **instruction: Any) -> None:
    """Returns when the controller says that it is done, as its nth."""

    async def is_done() -> bool:
        return len((await client.state("lifecycle")).done) >= nth

    await client.ask("lifecycle", instruction)
    await until(is_done)
    done = (await client.state("lifecycle")).done[nth - 1]
    assert (done.do, done.status) == (instruction["do"], "succeeded"), done.error


async def totals(client: tenure.Client) -> set[int]:
    return {(await client.state(id)).total for id in IDS}


async def node_names(client: tenure.Client) -> list[str]:
    return sorted(node.name.split("-")[0] for node in await client.nodes())


@pytest.mark.cluster
async def test_by_its_commands_on_real_processes(tmp_path: Path) -> None:
    place = str(tmp_path / "snapshots")
    async with Cluster(nodes=1, members=1, grid="hazelcast", partitions=11) as cluster, cluster.client() as client:
        await client.schedule(Lifecycle, id="lifecycle")
        for id in IDS:
            await client.schedule(State, id=id)
        await client.publish_many([(id, 1) for id in IDS])
        more = ["--logs", str(tmp_path)]
        await instruct(client, 1, do="scale_up", nodes=1, spawn=NODE, options=more)
        assert await node_names(client) == ["node", "spare"]
        await client.publish_many([(id, 1) for id in IDS])
        await instruct(client, 2, do="scale_down")  # "acquire": each key's state is where it now belongs
        assert await node_names(client) == ["node"]
        assert await totals(client) == {2}
        older = {node.id for node in await client.nodes()}
        await instruct(client, 3, do="upgrade", spawn=NODE, options=more)  # of the very node that it was begun on
        assert not older & {node.id for node in await client.nodes()}
        assert await node_names(client) == ["spare"]
        await instruct(client, 4, do="snapshot", url=place)
        (taken,) = await client.snapshots(place)
        await client.publish_many([(id, 5) for id in IDS])
        assert await totals(client) == {7}

        # The controller is loaded too, as it was when the snapshot was taken: with that instruction under way.
        await client.ask("lifecycle", {"do": "load", "url": place, "name": taken["name"], "replace": True})

        async def is_loaded() -> bool:
            try:
                return await totals(client) == {2}
            except (tenure.TryAgain, tenure.UnknownJob):
                return False

        await until(is_loaded)
        assert [done.do for done in (await client.state("lifecycle")).done][:3] == ["scale_up", "scale_down", "upgrade"]

        await client.publish("lifecycle", {"do": "give_up"})  # it need not be taken once more
        await client.publish("lifecycle", {"do": "shutdown"})

        async def is_over() -> bool:
            return await client.nodes() == []

        await until(is_over)  # and the members keep all jobs
        await cluster.add_node()
        assert await totals(client) == {2}
