"""Journals with something wrong in them: what can be passed over is, what can't is said, and nothing is thrown away."""

from typing import Any

import pytest

from tenure.scheduler import imaging
from tenure.scheduler.errors import PartitionLost
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.image import Frozen
from tenure.scheduler.imaging import Imaging, write_chunks
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.keys import HEAD, chunk_key, journal_key
from tenure.scheduler.wire import Head, ImageRef, Record, RecordKind, encode
from tests.pure.core.bench import FORMATION, Bench, P, rest

RUBBISH = b"\x01\x00\xc1rubbish"


async def commit(journal: Journal) -> str:
    record = Record(journal.new_id(), "", RecordKind.TURNS, journal.state.epoch, "n", 0)
    await journal.commit(record)
    return record.id


async def test_a_slot_that_nobody_can_read_is_passed_over_and_stays(bench: Bench) -> None:
    first = await bench.opened_journal()
    last = await commit(first)
    damaged = first.slot
    await bench.grid().set(Map.JOURNAL, P, journal_key(damaged), RUBBISH)
    with pytest.raises(TenureOver):
        await commit(first)
    second = await bench.opened_journal()
    assert any(f"slot {damaged} is undecodable" in report for report in bench.reports)
    assert second.state.epoch == 2
    assert (await bench.record(second.slot - 1)).after == last  # type: ignore[union-attr]
    await commit(second)
    images = Imaging(second)
    await images.write()
    await images.sweep()
    assert await bench.grid().get(Map.JOURNAL, P, journal_key(damaged)) == RUBBISH


async def test_a_committed_record_that_is_damaged_loses_the_partition_and_not_its_end_alone(bench: Bench) -> None:
    first = await bench.opened_journal()
    await commit(first)
    damaged = first.slot
    for _ in range(3):
        await commit(first)
    await bench.grid().set(Map.JOURNAL, P, journal_key(damaged), RUBBISH)
    with pytest.raises(PartitionLost, match="snapshot"):
        await bench.opened_journal()


@pytest.mark.parametrize("head", [None, Head("another forming", 1)])
async def test_a_head_that_is_gone_or_of_another_cluster_is_no_new_partition(bench: Bench, head: Head | None) -> None:
    await commit(await bench.opened_journal())
    if head is None:
        await bench.grid().delete(Map.HEADS, P, HEAD)
    else:
        await bench.grid().set(Map.HEADS, P, HEAD, encode(head))
    with pytest.raises(PartitionLost, match="snapshot"):
        await bench.journal(lost_after_s=3).read()


async def test_an_image_that_is_not_whole_is_not_taken_for_one(bench: Bench) -> None:
    first = await bench.opened_journal()
    await commit(first)
    await Imaging(first).write()
    await bench.grid().set(Map.IMAGES, P, chunk_key(1, 1, 0), RUBBISH)
    with pytest.raises(PartitionLost, match="not whole"):
        await bench.journal(lost_after_s=3).read()


async def test_a_zombie_is_refused_at_its_next_commit_also_when_its_slots_were_cleared(bench: Bench) -> None:
    zombie = await bench.opened_journal()
    await commit(zombie)
    owner = await bench.opened_journal()
    images = Imaging(owner)
    for _ in range(3):
        await commit(owner)
        await images.write()
    assert not await zombie.still_ours()
    assert await owner.still_ours()
    with pytest.raises(TenureOver):
        await commit(zombie)
    with pytest.raises(TenureOver):
        await Imaging(zombie).write()
    third = await bench.opened_journal()
    assert third.state.epoch == 3
    assert third.head.formation == FORMATION


async def test_a_zombie_is_refused_also_when_a_later_owner_has_swept(bench: Bench) -> None:
    """What stands in its next slot is the opening of the owner before, which is neither cleared nor swept."""
    zombie = await bench.opened_journal()
    second = await bench.opened_journal()
    await commit(second)
    await Imaging(second).write()
    third = await bench.opened_journal()
    await commit(third)
    images = Imaging(third)
    await images.write()
    await images.sweep()
    await rest()
    assert [slot for slot in range(third.slot) if await bench.record(slot) is not None] == [0, 1, 3]
    with pytest.raises(TenureOver):
        await commit(zombie)


async def test_a_sweep_leaves_the_image_that_is_being_written_and_takes_those_that_nobody_named(bench: Bench) -> None:
    zombie = await bench.opened_journal()
    await write_chunks(zombie, Frozen(zombie.state), zombie.state.epoch, 1)
    owner = await bench.opened_journal()
    images, move_head = Imaging(owner), owner.move_head

    async def sweep_before(head: Head) -> bool:
        await images.sweep()
        return await move_head(head)

    owner.move_head = sweep_before  # type: ignore[method-assign]
    await images.write()
    await rest()
    assert await bench.keys(Map.IMAGES) == [chunk_key(2, 1, 0)]
    next_owner = await bench.opened_journal()
    assert next_owner.head.image == owner.head.image


async def test_what_is_committed_while_an_image_is_written_is_the_next_owners_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await bench.opened_journal()
    await commit(owner)
    move_head = owner.move_head

    async def commit_behind(*arguments: Any) -> ImageRef:
        ref = await write_chunks(*arguments)
        await commit(owner)
        return ref

    async def commit_before(head: Head) -> bool:
        await commit(owner)
        return await move_head(head)

    monkeypatch.setattr(imaging, "write_chunks", commit_behind)
    monkeypatch.setattr(owner, "move_head", commit_before)
    await Imaging(owner).write()
    await rest()
    last = await commit(owner)
    next_owner = await bench.opened_journal()
    assert (await bench.record(next_owner.slot - 1)).after == last  # type: ignore[union-attr]
    with pytest.raises(TenureOver):
        await commit(owner)


@pytest.mark.parametrize("fault", [Fault.APPLIED_UNKNOWN, Fault.DROPPED_UNKNOWN, Fault.WEAK])
async def test_an_owner_that_does_not_hear_whether_it_has_moved_the_head_goes_on(bench: Bench, fault: Fault) -> None:
    owner = await bench.opened_journal()
    await commit(owner)
    bench.faults.once(fault, map=Map.HEADS)
    await Imaging(owner).write()
    await commit(owner)
    assert await owner.still_ours()
    assert (await bench.opened_journal()).head.image == owner.head.image


@pytest.mark.parametrize("fault", [Fault.APPLIED_UNKNOWN, Fault.DROPPED_UNKNOWN, Fault.REFUSED])
async def test_the_head_names_no_image_before_all_of_it_is_there(bench: Bench, fault: Fault) -> None:
    owner = await bench.opened_journal()
    await commit(owner)
    bench.faults.once(fault, map=Map.IMAGES, times=3)
    await Imaging(owner).write()
    assert (await bench.opened_journal()).head.image == owner.head.image


async def half_opened(journal: Journal) -> bool:
    """All of an opening but the claim."""
    await journal.follow()
    doubts = journal.doubts.copy()
    await journal._confirm(doubts)
    assert not doubts
    state = journal.state
    return await journal._append(Record(journal.new_id(), state.last_id, RecordKind.OPENING, state.epoch + 1, "n", 0))


async def test_an_opening_that_was_passed_over_still_stands_before_a_zombies_next_slot(bench: Bench) -> None:
    """Two have read too little: one opens in a slot that was cleared, one behind it, where a zombie comes next."""
    zombie = await bench.opened_journal()
    stale, staler = bench.journal(), bench.journal()
    for journal in (stale, staler):
        await journal.read()
    await staler.follow()
    await commit(zombie)
    await Imaging(zombie).write()
    assert await half_opened(staler)
    assert await half_opened(stale)
    assert stale.slot - 1 == zombie.slot
    owner = await bench.opened_journal()
    assert zombie.slot in owner.openings
    await Imaging(owner).write()
    with pytest.raises(TenureOver):
        await commit(zombie)


async def test_what_is_before_an_opening_that_nobody_claimed_is_confirmed_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await bench.opened_journal()
    await commit(owner)
    last = owner.slot - 1
    unclaimed = bench.journal()
    await unclaimed.read()
    assert await half_opened(unclaimed)
    third = bench.journal()
    await third.read()
    confirmed: list[bytes] = []
    replace_if_same = third.grid.replace_if_same

    async def heard(map: Map, partition: int, key: bytes, old: bytes, new: bytes) -> bool:
        if map == Map.JOURNAL:
            confirmed.append(key)
        return await replace_if_same(map, partition, key, old, new)

    monkeypatch.setattr(third.grid, "replace_if_same", heard)
    await third.open("n", lambda: 0)
    assert confirmed == [journal_key(last), journal_key(last + 1)]
    assert third.state.epoch == 3


async def test_what_was_passed_over_at_the_end_is_confirmed_too(bench: Bench) -> None:
    owner = await bench.opened_journal()
    await commit(owner)
    stray = encode(Record("stray", "of a record that is lost", RecordKind.OPENING, 7, "n", 0))
    await bench.grid().set(Map.JOURNAL, P, journal_key(owner.slot), stray)
    third = bench.journal()
    await third.read()
    await third.follow()
    assert [slot for slot, _ in third.doubts] == [owner.slot - 1, owner.slot]
    assert third.doubts[-1][1] == stray


async def test_a_record_that_is_lost_while_the_next_owner_opens_is_no_part_of_what_it_owns(bench: Bench) -> None:
    owner = await bench.opened_journal()
    kept = await commit(owner)
    lost = owner.slot
    await commit(owner)
    opener = bench.journal()
    await opener.read()
    await opener.follow()
    await bench.grid().delete(Map.JOURNAL, P, journal_key(lost))  # no backup had it, and its member died
    await opener.open("n", lambda: 0, followed=True)
    assert (await bench.record(lost)).after == kept  # type: ignore[union-attr]
    assert opener.slot == lost + 1
    again = await bench.opened_journal()
    assert again.state.last_id != opener.state.last_id
    assert again.state.epoch == opener.state.epoch + 1
