"""Who is primary for what, and hints that it changed."""

from tenure.scheduler.grid.port import Map, OwnershipEvent
from tests.contract.adapters import Adapter
from tests.contract.helpers import eventually, primary_partitions, surely


async def test_ownership_shows_the_members_and_a_primary_for_each_partition(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig, rig.connect() as grid, rig.connect() as other:
        members = await rig.members()
        ownership = grid.ownership()
        assert sorted(member.id for member in ownership.members) == sorted(members)
        assert len(ownership.primaries) == grid.partition_count
        assert set(ownership.primaries) == set(members)
        assert ownership.paired in members
        assert ownership.primaries == other.ownership().primaries
        assert len({(member.host, member.port) for member in ownership.members}) == 3


async def test_a_connection_is_paired_as_it_was_told(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        for member in await rig.members():
            async with rig.connect(member) as grid:
                assert grid.ownership().paired == member


async def test_primaries_are_spread_evenly(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig, rig.connect() as grid:
        counts = [len(primary_partitions(grid, member)) for member in await rig.members()]
        assert sum(counts) == grid.partition_count
        assert max(counts) - min(counts) <= 2


async def test_a_member_that_joins_is_seen_and_takes_its_share(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        events: list[OwnershipEvent] = []
        before = grid.ownership()
        key = rig.fresh()
        for partition in range(0, grid.partition_count, 5):
            await grid.set(Map.JOBS, partition, key, b"%d" % partition)
        async with grid.watch_ownership(events.append):
            member = await rig.add_member()
            await eventually(lambda: len(primary_partitions(grid, member)) >= grid.partition_count // 4, rig.fault_s)
            await eventually(lambda: {OwnershipEvent.MEMBERS, OwnershipEvent.PARTITIONS} <= set(events), rig.hint_s)
        assert member in {member.id for member in grid.ownership().members}
        assert grid.ownership().version > before.version
        assert before.version >= 0
        for partition in range(0, grid.partition_count, 5):
            value = await surely(lambda: grid.get(Map.JOBS, partition, key), rig.fault_s)  # noqa: B023
            assert value == b"%d" % partition


async def test_a_member_that_leaves_is_gone_and_its_entries_are_not(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        leaver, *stayers = reversed(await rig.members())
        async with rig.connect(stayers[0]) as grid:
            events: list[OwnershipEvent] = []
            key = rig.fresh()
            for partition in range(0, grid.partition_count, 5):
                await grid.set(Map.JOBS, partition, key, b"%d" % partition)
            async with grid.watch_ownership(events.append):
                await rig.leave_member(leaver)
                await eventually(lambda: set(grid.ownership().primaries) == set(stayers), rig.fault_s)
                await eventually(lambda: {m.id for m in grid.ownership().members} == set(stayers), rig.fault_s)
                await eventually(lambda: OwnershipEvent.MEMBERS in events, rig.hint_s)
            assert OwnershipEvent.PARTITION_LOST not in events
            for partition in range(0, grid.partition_count, 5):
                value = await surely(lambda: grid.get(Map.JOBS, partition, key), rig.fault_s)  # noqa: B023
                assert value == b"%d" % partition


async def test_a_member_that_is_killed_is_gone_and_backups_take_over(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        victim, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            events: list[OwnershipEvent] = []
            async with grid.watch_ownership(events.append):
                await rig.kill_member(victim)
                await eventually(lambda: set(grid.ownership().primaries) == set(others), rig.fault_s)
                await eventually(lambda: OwnershipEvent.MEMBERS in events, rig.hint_s)
            assert OwnershipEvent.PARTITION_LOST not in events


async def test_a_connection_pairs_again_when_its_member_is_gone(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        victim, *others = reversed(await rig.members())
        async with rig.connect(victim) as grid:
            await rig.kill_member(victim)
            await eventually(lambda: grid.ownership().paired in others, rig.fault_s)


async def test_a_closed_watcher_is_not_called(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        closed: list[OwnershipEvent] = []
        open_: list[OwnershipEvent] = []
        async with grid.watch_ownership(open_.append):
            async with grid.watch_ownership(closed.append):
                pass
            await rig.add_member()
            await eventually(lambda: open_, rig.fault_s)
        assert closed == []
