"""What was acknowledged survives what the grid was told to survive."""

import pytest
import trio

from tenure.scheduler.grid.port import Map, OwnershipEvent, Refused, Unknown
from tests.contract.adapters import Adapter
from tests.contract.helpers import eventually, primary_partitions, scanned, surely


async def test_entries_survive_the_kill_of_a_member(adapter: Adapter) -> None:
    async with adapter.open(members=3, backups=1) as rig:
        victim, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            prefix = rig.fresh()
            there = {partition: prefix + b"%d" % partition for partition in range(0, grid.partition_count, 4)}
            assert set(there) & set(primary_partitions(grid, victim)), "the victim must have something to lose"
            for number, (partition, key) in enumerate(there.items()):
                if number % 2:
                    assert await grid.put_if_absent(Map.JOURNAL, partition, key, b"record") is None
                else:
                    await grid.set(Map.JOURNAL, partition, key, b"record")
            await rig.kill_member(victim)
            for partition, key in there.items():
                assert await surely(
                    lambda: grid.replace_if_same(Map.JOURNAL, partition, key, b"record", b"record"),  # noqa: B023
                    rig.fault_s,
                )
                assert await grid.put_if_absent(Map.JOURNAL, partition, key, b"mine") == b"record"
                assert [entry.key for entry in await scanned(grid, Map.JOURNAL, partition, prefix)] == [key]


async def test_what_is_acknowledged_while_a_member_dies_is_there_afterwards(adapter: Adapter) -> None:
    async with adapter.open(members=3, backups=1) as rig:
        victim, *others = reversed(await rig.members())
        async with rig.connect(others[0]) as grid:
            prefix = rig.fresh()
            acknowledged: list[tuple[int, bytes]] = []
            busy = True

            async def write(first: int) -> None:
                number = first
                while busy:
                    partition, key = number % grid.partition_count, prefix + b"%d" % number
                    try:
                        await grid.put_if_absent(Map.JOURNAL, partition, key, b"record", timeout_s=1)
                    except Unknown:
                        pass
                    else:
                        acknowledged.append((partition, key))
                    number += 8
                    await trio.sleep(0.001)

            async with trio.open_nursery() as nursery:
                for first in range(8):
                    nursery.start_soon(write, first)
                await trio.sleep(0.3)
                await rig.kill_member(victim)
                before = len(acknowledged)
                await eventually(lambda: len(acknowledged) > before + 200, rig.fault_s)
                busy = False
            for partition, key in acknowledged:
                there = await surely(lambda: grid.put_if_absent(Map.JOURNAL, partition, key, b"lost"), rig.fault_s)  # noqa: B023
                assert there == b"record"


async def test_nothing_is_lost_or_written_twice_while_members_come_and_go(adapter: Adapter) -> None:
    async with adapter.open(members=2, backups=1) as rig, rig.connect() as grid:
        prefix = rig.fresh()
        mine: dict[tuple[int, bytes], bytes] = {}
        busy = True

        async def write(first: int) -> None:
            number = first
            while busy:
                partition, key = number % grid.partition_count, prefix + b"%d" % number
                for value in (b"first", b"second"):
                    there = await surely(
                        lambda: grid.put_if_absent(Map.JOURNAL, partition, key, value),  # noqa: B023
                        rig.fault_s,
                    )
                    mine.setdefault((partition, key), there or value)
                    assert (there or value) == mine[partition, key] == b"first"
                number += 4
                await trio.sleep(0.002)

        async with trio.open_nursery() as nursery:
            for first in range(4):
                nursery.start_soon(write, first)
            await trio.sleep(0.2)
            joined = await rig.add_member()
            await eventually(lambda: primary_partitions(grid, joined), rig.fault_s)
            await trio.sleep(0.2)
            await rig.leave_member(joined)
            await eventually(lambda: not primary_partitions(grid, joined), rig.fault_s)
            await trio.sleep(0.2)
            busy = False
        assert len(mine) > 100
        for (partition, key), value in mine.items():
            assert await surely(lambda: grid.get(Map.JOURNAL, partition, key), rig.fault_s) == value  # noqa: B023


async def test_a_minority_is_refused_at_once_and_a_majority_goes_on(splitting_adapter: Adapter) -> None:
    async with splitting_adapter.open(members=3, split_protection=True) as rig:
        alone, *most = reversed(await rig.members())
        async with rig.connect(alone) as minority, rig.connect(most[0]) as majority:
            events: list[OwnershipEvent] = []
            key = rig.fresh()
            await minority.set(Map.JOURNAL, 40, key, b"before")
            async with minority.watch_ownership(events.append):
                await rig.split([[alone], most])
                began = trio.current_time()
                for call in (
                    lambda: minority.get(Map.JOURNAL, 40, key),
                    lambda: minority.get_all(Map.JOURNAL, 40, [key]),
                    lambda: minority.set(Map.JOURNAL, 40, key, b"refused"),
                    lambda: minority.put_if_absent(Map.JOURNAL, 40, key + b"new", b"refused"),
                    lambda: minority.replace_if_same(Map.JOURNAL, 40, key, b"before", b"refused"),
                    lambda: minority.delete(Map.JOURNAL, 40, key),
                    lambda: scanned(minority, Map.JOURNAL, 40, key),
                ):
                    with pytest.raises(Refused):
                        await call()
                assert trio.current_time() - began < 1
                assert await majority.replace_if_same(Map.JOURNAL, 40, key, b"before", b"during")
                await rig.heal()
                assert await surely(lambda: minority.get(Map.JOURNAL, 40, key), rig.fault_s) == b"during"
                assert await minority.get(Map.JOURNAL, 40, key + b"new") is None
                await eventually(lambda: OwnershipEvent.MERGED in events, rig.hint_s)


async def test_an_unprotected_split_acknowledges_on_both_sides_and_a_merge_keeps_one(
    splitting_adapter: Adapter,
) -> None:
    async with splitting_adapter.open(members=3, split_protection=False) as rig:
        alone, *most = reversed(await rig.members())
        async with rig.connect(alone) as minority, rig.connect(most[0]) as majority:
            key = rig.fresh()
            await rig.split([[alone], most])
            assert await minority.put_if_absent(Map.JOURNAL, 41, key, b"minority") is None
            assert await majority.put_if_absent(Map.JOURNAL, 41, key, b"majority") is None
            await rig.heal()
            assert await surely(lambda: minority.get(Map.JOURNAL, 41, key), rig.fault_s) == b"majority"
