"""Which nodes there are is asked again while a member fails over, and said to be unknown if that takes too long."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import tenure
from tenure.cli.ends import Exit, explain
from tenure.clients.node_rows import node_rows
from tenure.clients.scaling import settled
from tenure.scheduler.grid.memory import Fault, Faults
from tenure.scheduler.grid.port import Map, Refused
from tenure.scheduler.nodes_seen import PATIENCE_S
from tenure.testing import Cluster

FAULTS = Faults()
bad_grid = pytest.mark.tenure(nodes=2, faults=FAULTS)
Call = Callable[[tenure.Client], Awaitable[Any]]


@pytest.fixture(autouse=True)
def well_again() -> None:
    FAULTS.end()


def scans_fail(client: tenure.Client, times: int) -> None:
    """As while a member fails over: this client's scans of what nodes say."""
    grid = client._home._value.grid
    for _ in range(times):
        FAULTS.once(Fault.READ_FAILED, map=Map.NODES, connection=grid)


CALLS: dict[str, Call] = {
    "nodes": lambda client: client.nodes(),
    "scale": lambda client: client.scale(),
    "scale_to": lambda client: client.scale_to(2),
    "remove_node": lambda client: client.remove_node("node-1"),
    "drain": lambda client: client.drain("node-1"),
    "workers": lambda client: client.workers(),
    "upgrade_status": lambda client: client.upgrade_status(),
    "rows": lambda client: node_rows(client._home._value.grid),
    "settled": lambda client: settled(client._home._value.grid),
}


@pytest.mark.parametrize("name", CALLS)
@bad_grid
async def test_a_failed_scan_is_done_again(cluster: Cluster, client: tenure.Client, name: str) -> None:
    before = FAULTS.counts[Fault.READ_FAILED]
    scans_fail(client, 3)
    await CALLS[name](client)
    assert FAULTS.counts[Fault.READ_FAILED] > before


@bad_grid
async def test_what_can_not_be_read_for_long_is_not_known(cluster: Cluster, client: tenure.Client) -> None:
    scans_fail(client, 10_000)
    began_s = trio.current_time()
    with pytest.raises(tenure.NotDone, match="members have not answered for 30 s"):
        await client.scale()
    assert PATIENCE_S <= trio.current_time() - began_s < 2 * PATIENCE_S


def test_a_grid_that_does_not_answer_is_no_surprise_to_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(Refused("split-brain protection"), as_json=False) == Exit.UNREACHABLE
    assert capsys.readouterr().err == (
        "tenure: The members do not answer: split-brain protection. See `tenure doctor`.\n"
    )
