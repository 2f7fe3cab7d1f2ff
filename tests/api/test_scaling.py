"""How much nodes have to do, and nodes that are told to leave."""

from typing import Any

import pytest
import trio

import tenure
from tenure.clients import scaling
from tenure.testing import Cluster
from tests.api.jobs import Amount, Counter


@tenure.job("api-waiter")
class Waiter(tenure.Job):
    """Its turns wait, and need nothing else."""

    async def on_message(self, ctx: tenure.Context, message: float) -> None:
        await trio.sleep(message)


@tenure.job("api-observer")
class Observer(tenure.Job):
    """Looks at the nodes."""

    def on_message(self, ctx: tenure.Context, message: None) -> list[tuple[str, int]]:
        return [(node.id, node.load.waiting) for node in ctx.nodes]


CAPPED = tenure.NodeSettings(turns_at_once_max=2)


@pytest.mark.tenure(nodes=2, settings=CAPPED)
async def test_waiting_messages_and_busy_turns_are_told(cluster: Cluster, client: tenure.Client) -> None:
    calm = await client.scale()
    assert (calm["members"], len(calm["nodes"]), calm["waiting"], calm["busy"]) == (2, 2, 0, 0.0)
    await client.schedule_many([(Waiter, f"w-{n}", {}) for n in range(40)])
    await client.schedule(Observer, id="observer")
    await client.publish_many([(f"w-{n % 40}", 0.1) for n in range(4_000)])
    await trio.sleep(5)
    loaded = await client.scale()
    done = 5 / 0.1 * 2 * 2  # on two nodes, two turns at once
    assert 4_000 - 2 * done < loaded["waiting"] < 4_000 - done / 2
    assert loaded["busy"] > 0.95
    assert {node["partitions"] for node in loaded["nodes"]} == {8}
    seen = await client.ask("observer", None)
    assert [id for id, _ in seen] == ["node-0", "node-1"]
    assert abs(sum(waiting for _, waiting in seen) - loaded["waiting"]) < done


@pytest.mark.tenure(nodes=1)
async def test_what_another_node_could_not_help_is_no_lag(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="paused")
    assert await client.ask("paused", Amount(1)) == 1
    await client.pause("paused")
    await client.publish_many([("paused", Amount(1))] * 500)
    await trio.sleep(3)
    assert (await client.scale())["waiting"] == 0
    assert [job["waiting"] for job in await client.jobs()] == [500]


async def test_a_node_that_is_told_to_leave_hands_over_and_ends(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="c")
    await client.publish("c", Amount(1))
    assert await client.remove_node("node-1") == "node-1"
    assert [node["id"] for node in (await client.scale())["nodes"]] == ["node-0"]
    assert await client.ask("c", Amount(1)) == 2
    with pytest.raises(tenure.Mistake, match="last node"):
        await client.remove_node("node-0")
    with pytest.raises(tenure.UnknownNode, match="there are node-0"):
        await client.remove_node("node-1")


async def removed(client: tenure.Client, nodes: list[str], apart_s: float = 0.0) -> list[str]:
    """Those that were refused."""
    refused = []

    async def remove(node: str, after_s: float) -> None:
        await trio.sleep(after_s)
        try:
            await client.remove_node(node)
        except tenure.Mistake as error:
            refused.append(str(error))

    async with trio.open_nursery() as nursery:
        for n, node in enumerate(nodes):
            nursery.start_soon(remove, node, n * apart_s)
    return [error.partition(" is the last node")[0] for error in refused]


@pytest.mark.parametrize("apart_s", [0.0, 0.1, 0.3, 0.45, 0.6])
@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_nodes_that_are_told_to_leave_at_once_one_stays(
    cluster: Cluster, client: tenure.Client, first: int, apart_s: float
) -> None:
    await client.schedule(Counter, id="c")
    [refused] = await removed(client, [f"node-{first}", f"node-{1 - first}"], apart_s)
    await trio.sleep(3)
    [info] = await client.nodes()
    assert (info.id, info.draining) == (refused, False)
    assert await client.ask("c", Amount(1)) == 1


@pytest.mark.tenure(nodes=4)
async def test_of_all_nodes_that_are_told_to_leave_at_once_one_stays(cluster: Cluster, client: tenure.Client) -> None:
    [refused] = await removed(client, [f"node-{n}" for n in range(4)])
    assert [(info.id, info.draining) for info in await client.nodes()] == [(refused, False)]


async def test_who_gives_up_before_a_node_is_told_to_leave_has_told_it_nothing(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_decided(*_: Any) -> bool:
        await trio.sleep_forever()

    monkeypatch.setattr(scaling, "another_stays", not_decided)
    with pytest.raises(tenure.NotDone, match="nobody can say whether node-1 was told to leave"):
        await client.remove_node("node-1", timeout_s=2)
    with trio.move_on_after(2) as given_up:
        await client.remove_node("node-1")
    assert given_up.cancelled_caught
    await trio.sleep(3)
    assert [(info.id, info.draining) for info in await client.nodes()] == [("node-0", False), ("node-1", False)]


async def test_a_frozen_node_leaves_when_it_wakes_up(cluster: Cluster, client: tenure.Client) -> None:
    await cluster.pause(1)
    with pytest.raises(tenure.NotDone, match="when it can"):
        await client.remove_node("node-1", timeout_s=0.5)
    await trio.sleep(3)  # taken for dead, and replaced
    await cluster.unpause(1)
    await trio.sleep(3)
    assert [node["id"] for node in (await client.scale())["nodes"]] == ["node-0"]


@pytest.mark.tenure(nodes=3)
async def test_down_to_a_number_the_last_names_leave(cluster: Cluster, client: tenure.Client) -> None:
    assert await client.scale_to(1) == ["node-2", "node-1"]
    assert await client.scale_to(1) == []
    with pytest.raises(tenure.Mistake, match="how to start one"):
        await client.scale_to(2)
    with pytest.raises(tenure.Mistake, match="can't reach it"):
        await client.add_nodes(spawn="tenure node app.py")
