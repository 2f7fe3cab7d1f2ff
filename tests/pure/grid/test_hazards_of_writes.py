"""Every hazard of a write can be shown, one by one, and is counted when it really happened."""

import pytest
import trio

from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster
from tenure.scheduler.grid.port import Map, Refused, Unknown

P = 3


def cluster(faults: Faults, *, members: int = 3, backups: int = 1) -> FaultyCluster:
    return FaultyCluster(faults=faults, partitions=8, members=members, backups=backups)


async def held_by(cluster: FaultyCluster, key: bytes) -> list[bytes | None]:
    """What each copy holds, the primary's first."""
    return [copy.entries[Map.JOURNAL].get(key) for copy in cluster.largest().copies[P]]


async def test_an_unknown_outcome_may_have_been_applied() -> None:
    faults = Faults()
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.APPLIED_UNKNOWN)
    with pytest.raises(Unknown):
        await grid.put_if_absent(Map.JOURNAL, P, b"k", b"v")
    assert await held_by(cluster_, b"k") == [b"v", b"v"]
    assert faults.counts == {Fault.APPLIED_UNKNOWN: 1}


async def test_an_unknown_outcome_may_never_be_applied() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    faults.once(Fault.DROPPED_UNKNOWN)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"k", b"v")
    await trio.sleep(60)
    assert await grid.get(Map.JOURNAL, P, b"k") is None
    assert faults.counts == {Fault.DROPPED_UNKNOWN: 1}


async def test_an_unknown_outcome_may_be_applied_up_to_20_s_later() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    faults.once(Fault.LATE_UNKNOWN)
    began = trio.current_time()
    with pytest.raises(Unknown):
        await grid.delete(Map.JOURNAL, P, b"k")
    assert trio.current_time() - began < 0.1
    landed_after_s = []
    for number in range(20):
        key = b"%d" % number
        faults.once(Fault.LATE_UNKNOWN)
        began = trio.current_time()
        with pytest.raises(Unknown):
            await grid.set(Map.JOURNAL, P, key, b"late")
        while await grid.get(Map.JOURNAL, P, key) is None:  # noqa: ASYNC110 (only reading shows it)
            await trio.sleep(0.05)
        landed_after_s.append(trio.current_time() - began)
    assert 1 < max(landed_after_s) <= 20.1
    assert faults.counts[Fault.LANDED_LATE] >= 20


async def test_a_late_put_if_absent_still_writes_only_once() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    faults.once(Fault.LATE_UNKNOWN)
    with pytest.raises(Unknown):
        await grid.put_if_absent(Map.JOURNAL, P, b"k", b"late")
    assert await grid.put_if_absent(Map.JOURNAL, P, b"k", b"next") is None
    await trio.sleep(25)
    assert await grid.get(Map.JOURNAL, P, b"k") == b"next"


async def test_an_abandoned_call_may_land_later_or_never() -> None:
    faults = Faults()
    faults.instant_share = 0
    faults.latency_s = (1, 1)
    grid = cluster(faults).connect()
    landed = []
    for number in range(40):
        with trio.move_on_after(0.5):
            await grid.set(Map.JOURNAL, P, b"%d" % number, b"abandoned")
        faults.latency_s = (0, 0)
        there = await grid.get(Map.JOURNAL, P, b"%d" % number)
        await trio.sleep(25)
        landed.append((there is not None, await grid.get(Map.JOURNAL, P, b"%d" % number) is not None))
        faults.latency_s = (1, 1)
    assert set(landed) == {(True, True), (False, True), (False, False)}
    assert faults.counts[Fault.LANDED_LATE] == landed.count((False, True))


async def test_a_write_that_no_backup_holds_is_unknown_and_lost_with_its_primary() -> None:
    faults = Faults()
    faults.weak_s = None
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.WEAK)
    began = trio.current_time()
    with pytest.raises(Unknown):
        await grid.put_if_absent(Map.JOURNAL, P, b"k", b"v")
    assert trio.current_time() - began == pytest.approx(faults.backup_wait_s, abs=0.1)
    assert await held_by(cluster_, b"k") == [b"v", None]
    cluster_.kill_member(str(cluster_.primary(P)))
    assert await grid.put_if_absent(Map.JOURNAL, P, b"k", b"another") is None
    assert faults.counts[Fault.WEAK] == faults.counts[Fault.WEAK_LOST] == 1


async def test_with_the_stock_setting_such_a_write_is_acknowledged_and_lost() -> None:
    faults = Faults()
    faults.weak_s = None
    faults.fail_on_indeterminate = False
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.WEAK, times=2)
    assert await grid.put_if_absent(Map.JOURNAL, P, b"k", b"v") is None
    assert await grid.replace_if_same(Map.JOURNAL, P, b"k", b"v", b"v"), "not even this says that a backup has it"
    cluster_.kill_member(str(cluster_.primary(P)))
    assert await grid.get(Map.JOURNAL, P, b"k") is None
    assert faults.counts[Fault.WEAK_LOST] == 1


async def test_a_clean_replace_by_the_same_makes_a_weak_entry_strong() -> None:
    faults = Faults()
    faults.weak_s = None
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.WEAK)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"k", b"v")
    assert await grid.replace_if_same(Map.JOURNAL, P, b"k", b"v", b"v")
    cluster_.kill_member(str(cluster_.primary(P)))
    assert await grid.get(Map.JOURNAL, P, b"k") == b"v"
    assert faults.counts[Fault.WEAK_LOST] == 0


async def test_backups_get_a_weak_write_in_the_end_if_the_primary_lives() -> None:
    faults = Faults()
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    faults.once(Fault.WEAK)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"k", b"weak")
    await grid.set(Map.JOURNAL, P, b"k", b"newer")
    faults.once(Fault.WEAK)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"other", b"weak")
    await trio.sleep(faults.weak_s[1] if faults.weak_s else 0)
    assert await held_by(cluster_, b"k") == [b"newer", b"newer"], "a late backup never undoes what came after"
    assert await held_by(cluster_, b"other") == [b"weak", b"weak"]


async def test_a_weak_delete_comes_back_with_the_backup() -> None:
    faults = Faults()
    faults.weak_s = None
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    await grid.set(Map.INBOX, P, b"slot", b"message")
    faults.once(Fault.WEAK)
    with pytest.raises(Unknown):
        await grid.delete(Map.INBOX, P, b"slot")
    assert await grid.get(Map.INBOX, P, b"slot") is None
    cluster_.kill_member(str(cluster_.primary(P)))
    assert await grid.get(Map.INBOX, P, b"slot") == b"message"


async def test_without_backups_nothing_is_weak() -> None:
    faults = Faults()
    grid = cluster(faults, members=1).connect()
    faults.once(Fault.WEAK)
    await grid.set(Map.JOURNAL, P, b"k", b"v")
    assert faults.counts[Fault.WEAK] == 0


async def test_a_write_whose_backup_is_paused_is_weak_until_it_goes_on() -> None:
    faults = Faults()
    faults.weak_s = None
    cluster_ = cluster(faults)
    grid = cluster_.connect()
    backup = cluster_.largest().rows[P][1]
    cluster_.pause_member(backup)
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"k", b"v")
    assert await held_by(cluster_, b"k") == [b"v", None]
    cluster_.unpause_member(backup)
    assert await held_by(cluster_, b"k") == [b"v", b"v"]


async def test_a_refused_write_is_not_applied() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    faults.once(Fault.REFUSED)
    with pytest.raises(Refused):
        await grid.set(Map.JOURNAL, P, b"k", b"v")
    await trio.sleep(60)
    assert await grid.get(Map.JOURNAL, P, b"k") is None
    assert faults.counts == {Fault.REFUSED: 1}


async def test_a_blocked_write_ends_at_its_deadline_with_any_truth() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    truths = set()
    for number in range(30):
        key = b"%d" % number
        faults.once(Fault.BLOCKED)
        began = trio.current_time()
        with pytest.raises(Unknown):
            await grid.set(Map.JOURNAL, P, key, b"v", timeout_s=0.5)
        assert trio.current_time() - began == pytest.approx(0.5)
        at_once = await grid.get(Map.JOURNAL, P, key) is not None
        await trio.sleep(25)
        truths.add((at_once, await grid.get(Map.JOURNAL, P, key) is not None))
    assert truths == {(True, True), (False, True), (False, False)}
    assert faults.counts[Fault.BLOCKED] == 30


async def test_a_slow_write_takes_effect_in_time_or_after_its_deadline() -> None:
    faults = Faults()
    faults.slow_s = (1.0, 1.0)
    grid = cluster(faults).connect()
    faults.once(Fault.SLOW, times=2)
    began = trio.current_time()
    await grid.set(Map.JOURNAL, P, b"in time", b"v", timeout_s=2)
    assert trio.current_time() - began >= 1
    with pytest.raises(Unknown):
        await grid.set(Map.JOURNAL, P, b"too late", b"v", timeout_s=0.5)
    assert await grid.get(Map.JOURNAL, P, b"too late") is None
    await trio.sleep(1)
    assert await grid.get(Map.JOURNAL, P, b"too late") == b"v"


@pytest.mark.parametrize("is_another", [False, True])
async def test_put_if_absent_may_be_told_of_what_is_gone(is_another: bool) -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    await grid.set(Map.JOURNAL, P, b"k", b"gone")
    if is_another:
        await grid.set(Map.JOURNAL, P, b"k", b"another")
    else:
        await grid.delete(Map.JOURNAL, P, b"k")
    faults.once(Fault.STALE_TAKEN)
    assert await grid.put_if_absent(Map.JOURNAL, P, b"k", b"v") == b"gone"
    assert not await grid.replace_if_same(Map.JOURNAL, P, b"k", b"gone", b"gone")
    assert faults.counts == {Fault.STALE_TAKEN: 1}
    faults.once(Fault.STALE_TAKEN)
    await trio.sleep(faults.stale_s + 0.1)
    assert await grid.put_if_absent(Map.JOURNAL, P, b"k", b"v") == (b"another" if is_another else None)


async def test_a_discard_may_be_forgotten() -> None:
    faults = Faults()
    grid = cluster(faults).connect()
    await grid.set(Map.INBOX, P, b"a", b"")
    await grid.set(Map.INBOX, P, b"b", b"")
    faults.once(Fault.DISCARD_LOST)
    grid.discard(Map.INBOX, P, [b"a"])
    grid.discard(Map.INBOX, P, [b"b"])
    await trio.sleep(1)
    assert await grid.get_all(Map.INBOX, P, [b"a", b"b"]) == {b"a": b""}
    assert faults.counts == {Fault.DISCARD_LOST: 1}


async def test_a_fault_strikes_only_what_it_was_meant_for() -> None:
    faults = Faults()
    cluster_ = cluster(faults)
    grid, other = cluster_.connect(), cluster_.connect()
    faults.once(Fault.REFUSED, map=Map.HEADS, partition=P, connection=other)
    await grid.set(Map.HEADS, P, b"k", b"v")
    await other.set(Map.JOURNAL, P, b"k", b"v")
    await other.set(Map.HEADS, P + 1, b"k", b"v")
    with pytest.raises(Refused):
        await other.set(Map.HEADS, P, b"k", b"v")
    await other.set(Map.HEADS, P, b"k", b"v")


async def test_rates_strike_as_often_as_they_say_and_end_when_told() -> None:
    faults = Faults({Fault.APPLIED_UNKNOWN: 0.2, Fault.REFUSED: 0.1})
    grid = cluster(faults).connect()
    outcomes = {Unknown: 0, Refused: 0}
    for number in range(1000):
        try:
            await grid.set(Map.JOURNAL, P, b"%d" % number, b"")
        except (Unknown, Refused) as error:
            outcomes[type(error)] += 1
    assert 150 < outcomes[Unknown] == faults.counts[Fault.APPLIED_UNKNOWN] < 250
    assert 70 < outcomes[Refused] == faults.counts[Fault.REFUSED] < 130
    faults.end()
    for number in range(200):
        await grid.set(Map.JOURNAL, P, b"%d" % number, b"")


def test_a_wrong_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        Faults({Fault.APPLIED_UNKNOWN: 0.7, Fault.WEAK: 0.7})
    with pytest.raises(ValueError, match="has no rate"):
        Faults({Fault.MEMBER_KILLED: 0.1})
    with pytest.raises(ValueError, match="can't strike a call"):
        Faults().once(Fault.SPLIT)
