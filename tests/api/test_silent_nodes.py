"""Nodes of which nothing is heard: who would drain or stop one is told so, and what to do."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.grid.port import Map
from tenure.scheduler.wire import encode
from tenure.testing import Cluster
from tests.api.shell import Shell

SILENT = NodeInfo("frozen-1", 7, pid=4711, name="frozen", rules=2)


async def _one_has_fallen_silent(client: tenure.Client) -> None:
    await client._home._value.grid.set(Map.NODES, 0, NODE_PREFIX + SILENT.id.encode(), encode(SILENT), ttl_s=60)


@pytest.mark.parametrize("command", ["drain", "drain --dry-run", "drain --undo", "stop", "stop --drain"])
@pytest.mark.parametrize("name", ["frozen", "frozen-1"])
def test_commands_say_that_it_is_silent(shell: Shell, command: str, name: str) -> None:
    shell.before = _one_has_fallen_silent
    shell(*command.split(), name, code=1)
    assert "frozen-1 is silent: it is frozen, or has ended (process 4711 on its machine)" in shell.err
    assert "nothing to hand over" in shell.err
    assert "No node is called" not in shell.err
    shell(*command.split(), name, "--json", code=1)
    assert json.loads(shell.err)["error"] == "NodeSilent"


def test_a_selector_leaves_it_out(shell: Shell) -> None:
    shell.before, shell.nodes = _one_has_fallen_silent, 2
    assert shell("drain", "name=frozen", "--json") == []
    assert [row["id"] for row in shell("drain", "not node=node-1", "--json")] == ["node-0"]
    shell("drain", "nobody", code=1)
    assert "No node is called 'nobody'" in shell.err


CALLS: list[Callable[[tenure.Client], Awaitable[Any]]] = [
    lambda client: client.drain("node-1"),
    lambda client: client.undrain("node-1"),
    lambda client: client.stop("node-1"),
    lambda client: client.stop("node-1", drain=True),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.tenure(nodes=2, partitions=4)
async def test_clients_are_told_the_same(
    cluster: Cluster, client: tenure.Client, call: Callable[[tenure.Client], Awaitable[Any]]
) -> None:
    await cluster.pause(1)
    with trio.fail_after(4), pytest.raises(tenure.NodeSilent, match="node-1 is silent"):
        await call(client)
    await cluster.unpause(1)
    await trio.sleep(5)
    assert {len(info.owned) for info in await client.nodes()} == {2}, "it takes part again: nobody has told it anything"
    assert await client.drain("node-1") == "node-1"


@pytest.mark.tenure(nodes=2, partitions=4)
async def test_who_was_called_the_same_before_and_is_silent_is_not_meant(
    cluster: Cluster, client: tenure.Client
) -> None:
    """A node that was killed, and is started again under its name."""
    before = NodeInfo("node-1-before", 7, pid=4711, name="node-1", rules=2)
    grid = client._home._value.grid
    await grid.set(Map.NODES, 0, NODE_PREFIX + before.id.encode(), encode(before), ttl_s=60)
    assert await client.drain("node-1") == "node-1"
    assert await client.undrain("node-1") == "node-1"
