"""A node's log tells afterwards what happened: each big event once."""

from collections.abc import AsyncIterator

import pytest
import trio

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.chronicle import GATHERED_S, STOOD_STILL_S, UNANSWERED_S, Chronicle
from tenure.scheduler.grid.port import Unknown
from tenure.scheduler.node import Node
from tenure.testing import Cluster
from tests.api.test_formats import backend_of

PARTITIONS = 8


def nodes_of(cluster: Cluster) -> dict[int, Node]:
    return {number: running.node for number, running in backend_of(cluster)._nodes.items()}


@pytest.fixture
async def three(in_virtual_time: None) -> AsyncIterator[tuple[Cluster, list[str]]]:
    """Three nodes, and what the first one tells."""
    async with Cluster(nodes=3, members=3, partitions=PARTITIONS) as cluster:
        told: list[str] = []
        nodes_of(cluster)[0].host.tell = told.append
        await trio.sleep(5)
        told.clear()
        yield cluster, told


async def test_quiet_times_are_not_told_of(three: tuple[Cluster, list[str]]) -> None:
    _, told = three
    await trio.sleep(120)
    assert told == []


async def test_a_node_that_dies_and_what_is_taken_over(three: tuple[Cluster, list[str]]) -> None:
    cluster, told = three
    had = len(nodes_of(cluster)[2].tenures)
    before = len(nodes_of(cluster)[0].tenures)
    await cluster.kill(2)
    await trio.sleep(30)
    taken = len(nodes_of(cluster)[0].tenures) - before
    assert taken
    assert told[0] == f"node node-2 is gone, with {had} partitions; there are 2"
    assert f"took over {taken} partition{'s' * (taken != 1)} of node node-2, which had not closed them" in told
    assert len(told) == len(set(told))


async def test_nodes_that_come_and_leave(three: tuple[Cluster, list[str]]) -> None:
    cluster, told = three
    await cluster.add_node()
    await trio.sleep(10)
    await cluster.drain(1)
    await trio.sleep(30)
    assert [line for line in told if line.startswith("node ")] == [
        "node node-3 is there; there are 4",
        "node node-1 has left; there are 3",
    ]
    assert any("that node node-1 handed over" in line for line in told)
    assert not any("took over" in line for line in told)


async def test_members_that_come_and_go(three: tuple[Cluster, list[str]]) -> None:
    cluster, told = three
    await cluster.add_member()
    await trio.sleep(10)
    await cluster.kill_member(0)
    await trio.sleep(30)
    members = [line for line in told if line.startswith("member ")]
    assert [line.split(" ", 2)[2] for line in members] == ["is there; there are 4", "is gone; there are 3"]


async def test_the_time_without_an_answer(three: tuple[Cluster, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told = three
    node = nodes_of(cluster)[0]

    async def silent(*args: object) -> None:
        raise Unknown("no answer")

    with monkeypatch.context() as cut:
        cut.setattr(node._lookout, "look", silent)
        await trio.sleep(40)
    await trio.sleep(5)
    assert len(told) == 2
    assert told[0].startswith("no member has answered for 1.")
    assert told[0].endswith("all jobs of this node wait: no answer")
    assert told[1].startswith("members answer again, after 40.")


async def test_what_happens_together_is_told_together(autojump_clock: trio.testing.MockClock) -> None:
    told: list[str] = []
    chronicle = Chronicle("me", told.append)
    for _ in range(40):
        chronicle.took("other", handed_over=False)
        chronicle.tell_taken()
    chronicle.took("me", handed_over=True)
    chronicle.took("", handed_over=False)
    assert told == []
    await trio.sleep(GATHERED_S)
    chronicle.tell_taken()
    chronicle.tell_taken()
    assert told == [
        "opened 1 partition, for the first time",
        "opened 1 partition of its own again",
        "took over 40 partitions of node other, which had not closed them",
    ]


async def test_short_moments_are_not_told_of(autojump_clock: trio.testing.MockClock) -> None:
    told: list[str] = []
    chronicle = Chronicle("me", told.append)
    chronicle.unanswered("at first")
    chronicle.answered()
    await trio.sleep(UNANSWERED_S / 2)
    chronicle.unanswered("a moment")
    chronicle.answered()
    chronicle.late(STOOD_STILL_S / 2)
    chronicle.saw_members([])
    chronicle.saw_nodes({"me": NodeInfo("me", 1)})
    assert told == []
    chronicle.late(3 * STOOD_STILL_S)
    assert told == ["this node stood still for 3.0 s; others may have taken over what it had"]
