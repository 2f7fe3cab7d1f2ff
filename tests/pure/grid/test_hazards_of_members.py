"""What happens to members: deaths noticed late, gradual moves, splits, lost partitions, cuts."""

import pytest
import trio

from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster
from tenure.scheduler.grid.port import Map, OwnershipEvent, Refused, Unknown

PARTITIONS = 8


def cluster(faults: Faults, *, members: int = 3, backups: int = 1, split_protection: bool = False) -> FaultyCluster:
    return FaultyCluster(
        faults=faults, partitions=PARTITIONS, members=members, backups=backups, split_protection=split_protection
    )


async def test_a_dead_member_answers_nobody_until_its_death_is_noticed() -> None:
    faults = Faults()
    faults.detection_s = (1.0, 1.0)
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    await grid.set(Map.JOBS, 0, b"k", b"v")
    victim = str(cluster_.primary(0))
    began = trio.current_time()
    cluster_.kill_member(victim)
    cluster_.kill_member(victim)
    with pytest.raises(Unknown):
        await grid.get(Map.JOBS, 0, b"k", timeout_s=0.5)
    assert victim in grid.ownership().primaries, "nobody knows yet"
    assert not cluster_.is_safe()
    assert await grid.get(Map.JOBS, 0, b"k") == b"v"
    assert 1.0 <= trio.current_time() - began < 1.2
    assert victim not in grid.ownership().primaries
    assert faults.counts[Fault.MEMBER_KILLED] == 1


async def test_partitions_move_one_by_one_and_backups_are_made_again() -> None:
    faults = Faults()
    faults.migration_s = (0.0, 2.0)
    cluster_ = cluster(faults)
    cluster_.kill_member("m0")
    lengths = set()
    while not cluster_.is_safe():
        lengths.add(sum(len(row) for row in cluster_.largest().rows))
        await trio.sleep(0.05)
    assert len(lengths) > 3
    assert all(len(row) == 2 for row in cluster_.largest().rows)


async def test_a_second_death_too_soon_loses_partitions_loudly() -> None:
    faults = Faults()
    faults.migration_s = (1.0, 2.0)
    cluster_ = cluster(faults)
    one, two = cluster_.largest().rows[5]
    grid = cluster_.connect(member=next(id for id in cluster_.members if id not in (one, two)))
    await grid.set(Map.HEADS, 5, b"k", b"v")
    told: list[OwnershipEvent] = []
    async with grid.watch_ownership(told.append):
        cluster_.kill_member(one)
        assert not cluster_.is_safe()
        cluster_.kill_member(two)
        await trio.sleep(3)
    assert await grid.get(Map.HEADS, 5, b"k") is None
    assert OwnershipEvent.PARTITION_LOST in told
    assert faults.counts[Fault.PARTITION_LOST] > 0


async def test_a_graceful_leave_takes_its_time_and_loses_nothing() -> None:
    faults = Faults()
    faults.migration_s = (0.5, 1.0)
    cluster_ = cluster(faults, backups=0)
    grid = cluster_.connect(member="m0")
    for partition in range(PARTITIONS):
        await grid.set(Map.JOBS, partition, b"k", b"v")
    cluster_.leave_member("m2")
    cluster_.leave_member("m2")
    assert "m2" in cluster_.members
    await trio.sleep(2)
    assert "m2" not in cluster_.members
    assert [await grid.get(Map.JOBS, partition, b"k") for partition in range(PARTITIONS)] == [b"v"] * PARTITIONS
    assert faults.counts[Fault.MEMBER_LEFT] == 1
    assert faults.counts[Fault.MEMBER_KILLED] == faults.counts[Fault.PARTITION_LOST] == 0


async def test_a_leaver_takes_weak_entries_along_to_whoever_follows_it() -> None:
    faults = Faults()
    faults.weak_s = None
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.WEAK)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, 0, b"k", b"weak")
    cluster_.leave_member(str(cluster_.primary(0)))
    assert await grid.get(Map.JOURNAL, 0, b"k") == b"weak"


async def test_a_partition_moves_at_any_moment_and_pauses_as_it_does() -> None:
    faults = Faults()
    faults.migration_pause_s = (0.3, 0.3)
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    await grid.set(Map.JOBS, 0, b"k", b"v")
    target = next(id for id in cluster_.members if id not in cluster_.largest().rows[0])
    began = trio.current_time()
    cluster_.migrate(0, target)
    assert cluster_.primary(0) == target
    assert await grid.get(Map.JOBS, 0, b"k") == b"v"
    assert 0.3 <= trio.current_time() - began < 0.4
    assert faults.counts[Fault.MIGRATED] == 1
    cluster_.migrate(0, target)
    assert faults.counts[Fault.MIGRATED] == 1, "it is there already"


async def test_a_move_by_hand_in_the_middle_of_a_rebalance_upsets_nothing() -> None:
    faults = Faults()
    faults.migration_s = (0.1, 1.0)
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    for partition in range(PARTITIONS):
        await grid.set(Map.JOBS, partition, b"k", b"v")
    joined = cluster_.add_member()
    await trio.sleep(0.5)
    for partition in range(PARTITIONS):
        cluster_.migrate(partition, joined)
    assert not cluster_.is_safe()
    await trio.sleep(1)
    assert cluster_.is_safe()
    assert [await grid.get(Map.JOBS, partition, b"k") for partition in range(PARTITIONS)] == [b"v"] * PARTITIONS


async def test_faults_can_be_followed_as_they_happen() -> None:
    faults = Faults()
    seen: list[tuple[Fault, str]] = []
    faults.on_fault = lambda fault, what: seen.append((fault, what))
    cluster_ = cluster(faults)
    cluster_.pause_member("m1")
    assert cluster_.living == ["m0", "m2"]
    cluster_.unpause_member("m1")
    cluster_.kill_member("m2")
    assert seen[:2] == [(Fault.MEMBER_PAUSED, "m1"), (Fault.MEMBER_KILLED, "m2")]
    assert sum(faults.counts.values()) == len(seen)


async def test_nothing_moves_off_a_dead_member() -> None:
    faults = Faults()
    faults.detection_s = (1.0, 1.0)
    cluster_ = cluster(faults, backups=0)
    grid = cluster_.connect(member="m1")
    await grid.set(Map.JOBS, 0, b"k", b"v")
    victim = str(cluster_.primary(0))
    cluster_.kill_member(victim)
    cluster_.migrate(0, next(id for id in cluster_.members if id != victim))
    await trio.sleep(2)
    assert await grid.get(Map.JOBS, 0, b"k") is None
    assert faults.counts[Fault.PARTITION_LOST] > 0


async def test_without_protection_both_sides_acknowledge_and_the_smaller_loses() -> None:
    faults = Faults()
    cluster_ = cluster(faults)
    minority, majority = cluster_.connect(member="m2"), cluster_.connect(member="m0")
    await majority.set(Map.JOBS, 0, b"before", b"v")
    cluster_.split([["m2"], ["m0", "m1"]])
    for partition in range(PARTITIONS):
        await minority.set(Map.JOBS, partition, b"k", b"minority")
        await majority.put_if_absent(Map.JOBS, partition, b"k", b"majority")
    assert set(minority.ownership().primaries) == {"m2"}
    told: list[OwnershipEvent] = []
    async with minority.watch_ownership(told.append):
        cluster_.heal()
        await trio.sleep(1)
    for partition in range(PARTITIONS):
        assert await minority.get(Map.JOBS, partition, b"k") == b"majority"
    assert await minority.get(Map.JOBS, 0, b"before") == b"v"
    assert OwnershipEvent.MERGED in told
    assert faults.counts[Fault.SPLIT] == faults.counts[Fault.HEALED] == faults.counts[Fault.SIDE_DISCARDED] == 1
    assert cluster_.is_safe()


async def test_a_side_without_any_copy_of_a_partition_says_so() -> None:
    faults = Faults()
    cluster_ = cluster(faults, backups=0)
    minority = cluster_.connect(member="m2")
    told: list[OwnershipEvent] = []
    async with minority.watch_ownership(told.append):
        cluster_.split([["m0", "m1"], ["m2"]])
        await trio.sleep(1)
    assert OwnershipEvent.PARTITION_LOST in told


async def test_with_protection_only_the_majority_goes_on() -> None:
    faults = Faults()
    cluster_ = cluster(faults, members=5, split_protection=True)
    minority, majority = cluster_.connect(member="m4"), cluster_.connect(member="m0")
    cluster_.split([["m0", "m1", "m2"], ["m3", "m4"]])
    with pytest.raises(Refused):
        await minority.set(Map.JOBS, 0, b"k", b"v")
    await majority.set(Map.JOBS, 0, b"k", b"v")
    cluster_.heal()
    assert await minority.get(Map.JOBS, 0, b"k") == b"v"
    assert faults.counts[Fault.SIDE_DISCARDED] == 0, "a refused side has nothing to lose"


async def test_too_few_members_are_refused_without_any_split() -> None:
    cluster_ = cluster(Faults(), split_protection=True)
    grid = cluster_.connect(member="m0")
    cluster_.kill_member("m2")
    await grid.set(Map.JOBS, 0, b"k", b"v")
    cluster_.kill_member("m1")
    with pytest.raises(Refused):
        await grid.set(Map.JOBS, 0, b"k", b"v")


async def test_when_all_members_are_gone_a_connection_is_cut_off_and_comes_back_to_nothing() -> None:
    faults = Faults()
    cluster_ = cluster(faults, members=1)
    grid = cluster_.connect()
    await grid.set(Map.JOBS, 0, b"k", b"v")
    told: list[OwnershipEvent] = []
    async with grid.watch_ownership(told.append):
        cluster_.kill_member("m0")
        with pytest.raises(Unknown):
            await grid.get(Map.JOBS, 0, b"k")
        assert grid.ownership().paired is None
        assert set(grid.ownership().primaries) == {None}
        cluster_.add_member()
        assert await grid.get(Map.JOBS, 0, b"k") is None
        await trio.sleep(1)
    assert [told[0], told[-1]] == [OwnershipEvent.DISCONNECTED, OwnershipEvent.PARTITION_LOST]
    assert OwnershipEvent.RECONNECTED in told
    assert faults.counts[Fault.PARTITION_LOST] == PARTITIONS


async def test_a_connection_may_be_cut_off_alone() -> None:
    faults = Faults()
    cluster_ = cluster(faults)
    cut, other = cluster_.connect(), cluster_.connect()
    told: list[OwnershipEvent] = []
    heard: list[object] = []
    async with cut.watch_ownership(told.append), cut.listen(Map.JOBS, heard.extend, key=(0, b"k")):
        cut.cut()
        assert cut.ownership().paired is None
        with pytest.raises(Unknown):
            await cut.get(Map.JOBS, 0, b"k", timeout_s=0.5)
        await other.set(Map.JOBS, 0, b"k", b"v")
        cut.mend()
        assert await cut.get(Map.JOBS, 0, b"k") == b"v"
        await trio.sleep(1)
    assert told == [OwnershipEvent.DISCONNECTED, OwnershipEvent.RECONNECTED]
    assert heard == []
    assert faults.counts == {Fault.CONNECTION_CUT: 1, Fault.EVENT_LOST: 1}


async def test_calm_ends_everything() -> None:
    faults = Faults({Fault.REFUSED: 0.5, Fault.READ_FAILED: 0.5})
    cluster_ = cluster(faults, members=4)
    grid = cluster_.connect()
    faults.drop_all_events = True
    cluster_.split([["m0", "m1"], ["m2", "m3"]])
    cluster_.pause_member("m1")
    grid.freeze()
    grid.cut()
    cluster_.calm()
    await trio.sleep(25)
    assert cluster_.is_safe()
    for number in range(50):
        await grid.set(Map.JOBS, number % PARTITIONS, b"k", b"%d" % number)
        assert await grid.get(Map.JOBS, number % PARTITIONS, b"k") == b"%d" % number
