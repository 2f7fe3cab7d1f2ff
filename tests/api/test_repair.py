"""No entry of bookkeeping can end a cluster: what can be computed is, the rest is named, and a restore heals it."""

import os
from pathlib import Path

import pytest
import trio

import tenure
from tenure.cli.examination import examine_grid
from tenure.members import Standard
from tenure.nodes.guard import guard, join_cluster
from tenure.scheduler.assignment import ASSIGNMENT, Assignment
from tenure.scheduler.client import GridClient
from tenure.scheduler.cluster import ALIVE_S, MARKER, MarkerDamaged, find, find_or_form
from tenure.scheduler.cluster import Cluster as Marker
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.hangs import Hang, hang_key
from tenure.scheduler.keys import HEAD, WATERMARK, partition_of
from tenure.scheduler.repairing import damages
from tenure.scheduler.snapshots.request import CUT, REQUEST
from tenure.scheduler.wire import Head, decode, encode
from tenure.testing import Cluster
from tests.api.jobs import Counter
from tests.api.shell import Shell
from tests.api.test_formats import backend_of

PARTITIONS = 8
JUNK = [
    b"",
    b"\x00",
    b"g" * 64,
    b"\x01\x00" + b"\xc1" * 40,
    b"\x01\x00\x99\xc1",
    b"\x01\x00\xdd\xff\xff\xff\xff",
    b"\x07\x00\x90",
    b"\x01\x05\x90",
    b"\x01\x00" + b"\x91" * 5000,
]
"""As `findings/operator/garbage.py` had it."""


async def works(client: tenure.Client, n: int = 1) -> None:
    for id in ("a", "b", "c", "d"):
        assert await client.ask(id, {"n": 0}, timeout_s=30) == n


async def fill(client: tenure.Client) -> None:
    for id in ("a", "b", "c", "d"):
        await client.schedule(Counter, id=id, total=1)
    await works(client)


@pytest.mark.parametrize(
    "stored",
    [*JUNK, encode(Assignment(2**63, ("x",) * PARTITIONS)), encode(Assignment(9, ("x",))), encode(Assignment(-1, ()))],
)
@pytest.mark.usefixtures("in_virtual_time")
async def test_a_damaged_assignment_is_computed_again(stored: bytes) -> None:
    async with Cluster(nodes=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await fill(client)
        grid = backend_of(cluster).grid_cluster.connect()
        await grid.set(Map.NODES, 0, ASSIGNMENT, stored)
        await trio.sleep(5)
        found = decode(await grid.get(Map.NODES, 0, ASSIGNMENT) or b"", Assignment)
        assert len(found.owners) == PARTITIONS
        await works(client)
        await cluster.kill(0)
        await works(client)
        assert await cluster.add_node() == 2
        await works(client)


@pytest.mark.usefixtures("in_virtual_time")
async def test_damaged_heartbeats_orders_and_requests_are_in_nobodys_way(tmp_path: Path) -> None:
    async with Cluster(nodes=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await fill(client)
        await client.snapshot(str(tmp_path))
        grid = backend_of(cluster).grid_cluster.connect()
        for n, junk in enumerate(JUNK):
            for key in (b"node/%d" % n, b"order/%d" % n, b"leave/%d" % n, b"order/node-0", b"junk%d" % n, REQUEST):
                await grid.set(Map.NODES, 0, key, junk)
            for partition in range(PARTITIONS):
                await grid.set(Map.HEADS, partition, CUT, junk)
        await trio.sleep(5)
        await works(client)
        assert len(await client.nodes()) == 2
        await client.snapshot(str(tmp_path))
        assert len(await client.snapshots(str(tmp_path))) == 2


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.usefixtures("in_virtual_time")
async def test_a_damaged_marker_is_written_again_by_a_node_that_lives(junk: bytes) -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    cluster, _ = await join_cluster(grid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: guard(grid, cluster, gone_after_s=10))
        await trio.sleep(1)
        await grid.set(Map.NODES, 0, MARKER, junk)
        await trio.sleep(5)
        assert await find(grid) == cluster
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.usefixtures("in_virtual_time")
async def test_a_damaged_marker_is_made_again_of_the_heads_by_a_node_that_comes(junk: bytes) -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    cluster, _ = await join_cluster(grid)
    await grid.set(Map.HEADS, 0, HEAD, b"garbage")
    await grid.delete(Map.HEADS, 1, HEAD)
    await grid.set(Map.NODES, 0, MARKER, junk)
    assert await join_cluster(grid) == (cluster, False)


@pytest.mark.usefixtures("in_virtual_time")
async def test_a_damaged_marker_of_a_cluster_that_nobody_can_tell_is_left_alone() -> None:
    """In the middle of a restore, heads are of two."""
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    await join_cluster(grid)
    await grid.set(Map.HEADS, 2, HEAD, encode(Head("other", 2)))
    await grid.set(Map.NODES, 0, MARKER, b"garbage")
    with pytest.raises(MarkerDamaged, match=r"tenure repair.*tenure restore URL --replace"):
        await join_cluster(grid)
    assert await grid.get(Map.NODES, 0, MARKER) == b"garbage"
    (damage,) = (damage for damage in await damages(grid, 1) if damage.where == "marker")
    assert damage.mend is None
    assert "heads are of two clusters" in damage.remedy


@pytest.mark.usefixtures("in_virtual_time")
async def test_where_all_is_lost_an_empty_cluster_may_take_the_place_of_a_damaged_marker() -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    await grid.set(Map.NODES, 0, MARKER, b"garbage")
    with pytest.raises(MarkerDamaged):
        await join_cluster(grid)
    cluster, _ = await join_cluster(grid, begin_anew_if_lost=True)
    assert cluster.anew


# -- heads ----------------------------------------------------------------------------------------


async def damage_heads(grid: Grid) -> None:
    for partition, junk in zip((1, 2, 3), (b"garbage", b"\x01\x00\x99\xc1", b"\x07\x00\x90"), strict=True):
        await grid.set(Map.HEADS, partition, HEAD, junk)
    await grid.delete(Map.HEADS, 4, HEAD)


@pytest.mark.parametrize("has_nodes", [True, False])
@pytest.mark.usefixtures("in_virtual_time")
async def test_a_restore_heals_damaged_heads(tmp_path: Path, has_nodes: bool) -> None:
    async with Cluster(nodes=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await fill(client)
        await client.snapshot(str(tmp_path))
        grid = backend_of(cluster).grid_cluster.connect()
        if not has_nodes:
            for node in await cluster.nodes():
                await cluster.kill(node)
        await damage_heads(grid)
        await grid.set(Map.HEADS, 5, WATERMARK, b"\x07\x00\x90")
        await grid.set(Map.NODES, 0, MARKER, b"garbage")
        await grid.set(Map.JOBS, 6, b"junk", b"junk")
        with pytest.raises(tenure.NotRestorable, match="this cluster has jobs"):
            await client.restore(str(tmp_path))
        await client.restore(str(tmp_path), replace=True)
        assert await damages(grid, 1) == []
        if not has_nodes:
            marker = await find(grid)
            assert marker is not None
            backend_of(cluster)._marker = marker
            await cluster.add_node()
        await works(client)


@pytest.mark.usefixtures("in_virtual_time")
async def test_a_damaged_head_parks_its_partition_by_name_and_repair_says_how_to_go_on() -> None:
    async with Cluster(nodes=1, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await fill(client)
        grid = backend_of(cluster).grid_cluster.connect()
        await damage_heads(grid)
        await cluster.kill(0)
        await cluster.add_node()
        await trio.sleep(10)
        (node,) = [node for node in await client.nodes() if node.id == "node-1"]
        assert {1, 2, 4} <= {*node.lost, *node.unfit}
        rest = next(id for id in ("a", "b", "c", "d") if partition_of(id, PARTITIONS) not in (1, 2, 3, 4))
        assert await client.ask(rest, {"n": 1}) == 2
        found = {damage.where: damage for damage in await damages(grid, 1)}
        assert found.keys() == {f"partition {n}" for n in (1, 2, 3, 4)}
        assert all("tenure restore URL --replace" in damage.remedy for damage in found.values())
        assert all(damage.mend is None for damage in found.values())


# -- the command ----------------------------------------------------------------------------------


async def damaged(grid: Grid) -> Marker:
    marker = await find_or_form(grid, "mine")
    await grid.set(Map.NODES, 0, MARKER, b"garbage")
    await grid.set(Map.NODES, 0, ASSIGNMENT, b"\x01\x00\xc1")
    await grid.set(Map.NODES, 0, b"node/x", os.urandom(30))
    await grid.set(Map.NODES, 0, b"zzz", b"of a later version")
    await grid.set(Map.HEADS, 3, WATERMARK, b"\x07\x00\x90")
    return marker


@pytest.mark.usefixtures("in_virtual_time")
async def test_what_is_damaged_is_named_and_mended() -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    marker = await damaged(grid)
    verdicts = {verdict.about: verdict for verdict in await examine_grid(grid, timeout_s=1)}
    assert verdicts["bookkeeping"].standard is Standard.BAD
    assert "tenure repair" in verdicts["bookkeeping"].next_step
    found = await damages(grid, 77)
    assert [damage.where for damage in found] == [
        "marker",
        "assignment",
        "entry 'node/x'",
        "entry 'zzz'",
        "partition 3",
    ]
    for damage in found:
        if damage.mend is not None:
            await damage.mend()
    (left,) = await damages(grid, 1)
    assert not left.harms
    assert await find(grid) == marker
    assert decode(await grid.get(Map.HEADS, 3, WATERMARK) or b"", int) == 77


@pytest.mark.usefixtures("in_virtual_time")
async def test_the_word_of_a_node_that_hangs_is_known_and_taken_away_where_it_can_not_be_read() -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    await find_or_form(grid, "mine")
    await grid.set(Map.NODES, 0, hang_key("n"), encode(Hang("n", 1, "a job", "a turn")))
    assert await damages(grid, 1) == []
    await grid.set(Map.NODES, 0, hang_key("n"), b"g" * 64)
    (damage,) = await damages(grid, 1)
    assert (damage.where, damage.remedy) == ("entry 'hang/n'", "it is taken away")


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.usefixtures("in_virtual_time")
async def test_a_restore_that_was_left_locks_nobody_out_for_good(settled: bool) -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    before = await find_or_form(grid, "mine")
    left = Marker("new", 2, PARTITIONS, False, restoring="snap", settled=settled, former=encode(before))
    await grid.set(Map.NODES, 0, MARKER, encode(left))
    began_s = trio.current_time()
    (damage,) = await damages(grid, 1)
    assert trio.current_time() - began_s >= ALIVE_S, "who restores would have been heard of"
    assert "restore of snapshot snap was interrupted" in damage.finding
    if settled:
        assert damage.mend is None
        assert "tenure restore URL --replace" in damage.remedy
    else:
        assert damage.mend is not None
        await damage.mend()
        assert await find(grid) == before


@pytest.mark.usefixtures("in_virtual_time")
async def test_a_restore_under_way_is_no_damage() -> None:
    grid = MemoryCluster(partitions=PARTITIONS).connect()
    before = await find_or_form(grid, "mine")
    left = Marker("new", 2, PARTITIONS, False, restoring="snap", former=encode(before))
    await grid.set(Map.NODES, 0, MARKER, encode(left))

    async def beat() -> None:
        await trio.sleep(3)
        await grid.set(Map.NODES, 0, MARKER, encode(Marker("new", 2, PARTITIONS, False, restoring="snap", beat=1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        assert await damages(grid, 1) == []


def test_the_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.repair.connected_grid", shell._connected_grid)
    shell.nodes, shell.partitions = 0, PARTITIONS
    shell("repair")
    assert shell.err == "0 things mended, 0 left.\n"

    async def before(client: tenure.Client) -> None:
        await client._home.run(_damage)

    shell.before = before
    shell("repair", "--dry-run", code=1)
    assert shell.err == "4 things would be mended, 1 left.\n"
    rows = shell("repair", "--json")
    assert [row["where"] for row in rows if row["mended"]] == ["marker", "assignment", "entry 'node/x'", "partition 3"]
    assert "✓ marker" not in shell.out

    async def with_a_head(client: tenure.Client) -> None:
        await before(client)
        await client._home.run(_damage_heads)

    shell.before = with_a_head
    shell("repair", code=1)
    assert "✗ partition 1: its head can't be read" in shell.out
    assert "✓ marker" in shell.out
    assert shell.err == "4 things mended, 5 left.\n"


async def _damage(client: GridClient) -> None:
    await damaged(client.grid)


async def _damage_heads(client: GridClient) -> None:
    await damage_heads(client.grid)
