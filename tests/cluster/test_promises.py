"""Every promise, on real processes under load: what was acknowledged takes effect once, in order, whatever ends."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

import tenure
from tenure.connect import parse_cluster
from tenure.members import MemberSettings
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.port import Map
from tenure.scheduler.keys import partition_of
from tenure.scheduler.wire import Record, RecordKind, decode
from tenure.testing import Cluster
from tenure.testing.hazelcast_cluster import HazelcastBackend
from tests.cluster import ledger as ledger_application
from tests.cluster.ledger import ACCOUNTS, OUTSIDE, Ledger, under_load

pytestmark = pytest.mark.cluster

PAUSE_MAX_MS = 10_000
"""Far above what the benchmark measures on a machine of its own: here it is only to end within reason."""
COUNT = MemberSettings().partition_count
JVM = "com.hazelcast.core.server.HazelcastMemberStarter"


async def test_nodes_killed_under_load() -> None:
    async with under_load(members=2) as (cluster, ledger):
        await cluster.kill(0)
        await trio.sleep(3)
        assert await cluster.add_node() == 2
        await trio.sleep(1)
        await cluster.kill(1)
        await trio.sleep(3)
        assert await ledger.check() < PAUSE_MAX_MS


async def test_members_killed_under_load() -> None:
    async with under_load(members=3) as (cluster, ledger):
        await cluster.kill_member(0)
        await trio.sleep(4)
        assert await cluster.add_member() == 3
        await trio.sleep(4)  # for its share to be there twice
        await cluster.kill_member(1)
        await trio.sleep(4)
        assert await ledger.check() < PAUSE_MAX_MS


async def test_as_many_members_killed_at_once_as_there_are_backups() -> None:
    async with under_load(members=5, backups=2) as (cluster, ledger):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.kill_member, 0)
            nursery.start_soon(cluster.kill_member, 1)
        await trio.sleep(4)
        assert await ledger.check() < PAUSE_MAX_MS


async def test_a_member_that_freezes_costs_time_but_no_message() -> None:
    async with under_load(members=3) as (_, ledger):
        member = a_member()
        member.suspend()
        await trio.sleep(4)
        member.resume()
        await ledger.check()  # a frozen member is no dead one: it can stop the grid for longer than it is frozen


async def test_a_member_frozen_for_longer_than_it_is_waited_for_is_left_behind_and_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HazelcastBackend, "member_settings", {"heartbeat_max_s": 5})
    async with (
        under_load(members=3) as (cluster, ledger),
        HazelcastGrid.connect(parse_cluster(await cluster.address())) as grid,
    ):
        before = set(grid.ownership().members)
        member = a_member()
        member.suspend()
        frozen_s = trio.current_time()
        with trio.fail_after(15):  # its connections seem to stand, until a client's heartbeat finds out
            while len(grid.ownership().members) == 3:  # noqa: ASYNC110
                await trio.sleep(0.05)
        left = set(grid.ownership().members)
        stored = sum(ledger.acknowledged.values())
        await trio.sleep_until(frozen_s + HazelcastSettings.heartbeat_s + 4)
        assert sum(ledger.acknowledged.values()) > stored, "a majority goes on"
        member.resume()
        with trio.fail_after(25):
            while len(grid.ownership().members) < 3:  # noqa: ASYNC110
                await trio.sleep(0.05)
        [gone], [came] = before - left, set(grid.ownership().members) - left
        assert gone.address == came.address
        assert gone.id != came.id, "whoever knew it by its old name knows that it has nothing of what it had"
        await trio.sleep(2)
        await ledger.check()


async def test_partitions_whose_copies_are_all_gone_are_named_and_the_others_go_on() -> None:
    app = Path(ledger_application.__file__)
    async with Cluster(nodes=1, members=5, grid="hazelcast", app=app) as cluster, cluster.client() as client:
        ids = [f"account-{n}" for n in range(2 * ACCOUNTS)]
        await client.schedule_many([(ledger_application.Account, id, {}) for id in ids])
        assert {await client.ask(id, {"n": 1}) for id in ids} == {1}
        async with trio.open_nursery() as nursery:  # three are left, which is a majority; there was one backup
            nursery.start_soon(cluster.kill_member, 0)
            nursery.start_soon(cluster.kill_member, 1)
        lost = await lost_partitions(client)
        alive = [id for id in ids if partition_of(id, COUNT) not in lost]
        assert {await client.ask(id, {"n": 2}, timeout_s=30) for id in alive} == {2}
        gone = next(id for id in ids if partition_of(id, COUNT) in lost)
        with pytest.raises(tenure.PartitionLost, match=rf"partition {partition_of(gone, COUNT)} is lost"):
            await client.ask(gone, {"n": 2}, timeout_s=3)
        assert set(await lost_partitions(client)) == set(lost), "lost ones are not taken for new ones"


async def test_a_node_and_its_member_killed_at_the_same_moment() -> None:
    async with under_load(members=3) as (cluster, ledger):
        await cluster.kill(0)
        await cluster.kill_member(0)
        await trio.sleep(4)
        assert await ledger.check() < PAUSE_MAX_MS


async def test_a_node_that_wakes_up_from_a_long_sleep_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    monkeypatch.setenv(OUTSIDE, str(outside))
    async with under_load(members=2) as (cluster, ledger):
        sleeper = await node_id(ledger, "node-0")
        await cluster.pause(0)
        await trio.sleep(4)  # past `gone_after_s`: others have taken over
        assert await owned_by(ledger, sleeper) == 0
        await cluster.unpause(0)
        await trio.sleep(4)
        await ledger.check()
        assert await owned_by(ledger, sleeper) > 0, "it is welcome again, as anybody"
        assert_fenced(outside)
        late = await late_records(cluster, sleeper)
        assert late == []


async def test_a_node_drained_under_load() -> None:
    async with under_load(members=2) as (cluster, ledger):
        await cluster.drain(0)
        await trio.sleep(1)
        assert await cluster.nodes() == [1]
        assert await ledger.check() < PAUSE_MAX_MS


async def test_all_nodes_restarted_one_after_the_other_under_load() -> None:
    async with under_load(nodes=3, members=2) as (cluster, ledger):
        for old in range(3):
            await cluster.add_node()
            await cluster.drain(old)
        assert await cluster.nodes() == [3, 4, 5]
        assert await ledger.check() < PAUSE_MAX_MS


async def test_members_join_and_leave_under_load() -> None:
    async with under_load(members=2) as (cluster, ledger):
        assert await cluster.add_member() == 2
        await trio.sleep(2)
        await cluster.remove_member(0)
        assert await cluster.members() == [1, 2]
        await trio.sleep(2)
        assert await ledger.check() < PAUSE_MAX_MS


async def test_without_any_event_nothing_is_lost_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither nodes nor clients hear of anything, but for the answers to what is asked when all is over."""
    monkeypatch.setattr(HazelcastBackend, "node_options", ("--no-events", "--set", "sweep_s=0.2"))
    listen, is_over = HazelcastGrid.listen, trio.Event()

    def hard_of_hearing(grid: HazelcastGrid, map: Map, on_entries: Any, **options: Any) -> Any:
        return listen(grid, map, lambda events: is_over.is_set() and on_entries(events), **options)

    monkeypatch.setattr(HazelcastGrid, "listen", hard_of_hearing)
    monkeypatch.setattr(HazelcastGrid, "watch_ownership", deaf)
    async with under_load(members=3) as (cluster, ledger):
        await trio.sleep(2)
        await cluster.kill(0)
        await trio.sleep(4)
        await cluster.kill_member(0)
        await trio.sleep(4)
        await cluster.add_member()
        await trio.sleep(2)
        is_over.set()
        await ledger.check()


@asynccontextmanager
async def deaf(*_arguments: object, **_options: object) -> AsyncIterator[None]:
    """In place of what would tell."""
    yield


# -- how it is seen ---------------------------------------------------------------------------------


async def node_id(ledger: Ledger, name: str) -> str:
    """The id of the node of this name."""
    return next(node.id for node in await ledger.client.nodes() if node.name == name)


def a_member() -> psutil.Process:
    """The process of one of the members that this test has started."""
    for process in psutil.Process().children():
        try:
            if JVM in process.cmdline():
                return process
        except psutil.Error:
            continue  # it has ended, and nobody has asked how
    pytest.fail("no member runs")


async def lost_partitions(client: tenure.Client) -> frozenset[int]:
    """Those that their node says are lost, when it has had time to find out."""
    found: frozenset[int] = frozenset()
    with trio.fail_after(30):
        while True:
            await trio.sleep(2)
            lost = frozenset(partition for node in await client.nodes() for partition in node.lost)
            if lost and lost == found:
                return lost
            found = lost


async def owned_by(ledger: Ledger, node: str) -> int:
    """How many partitions this node serves."""
    return sum(partition["node"] == node for partition in await ledger.client.partitions())


def assert_fenced(outside: Path) -> None:
    """An outside system that refuses lower fences than the highest it has seen, sees each turn of a job once, in order.

    Handler bodies may run again; with the same turn id then, and a higher fence.
    """
    highest: dict[str, int] = defaultdict(int)
    turns: dict[str, list[str]] = defaultdict(list)
    for line in outside.read_text().splitlines():
        job, fence, turn, _ = line.split()
        if int(fence) <= highest[job]:
            continue  # refused: a sleeper
        highest[job] = int(fence)
        if turn not in turns[job][-1:]:
            turns[job].append(turn)
    assert turns
    for ids in turns.values():
        assert len(ids) == len(set(ids)), "a turn came back after its successor"


async def late_records(cluster: Cluster, node: str) -> list[int]:
    """Journal slots in which this node wrote after another had opened the partition."""
    late = []
    async with HazelcastGrid.connect(parse_cluster(await cluster.address())) as grid:
        for partition in range(grid.partition_count):
            slots: dict[bytes, bytes] = {}
            async for page in grid.scan(Map.JOURNAL, partition):
                slots |= {entry.key: entry.value for entry in page}
            epoch, last = 0, ""
            for key in sorted(slots):
                record = decode(slots[key], Record)
                if record.kind == RecordKind.OPENING:
                    epoch = max(epoch, record.epoch)
                elif record.node == node and record.epoch < epoch and record.after == last:
                    late.append(partition)
                last = record.id
    return late
