"""Every hazard of a read can be shown: failing, absent, stale; and short scans, which no grid may have."""

import pytest
import trio

from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.port import Map, Unknown
from tests.contract.helpers import scanned

P = 3
KEYS = [b"%03d" % number for number in range(50)]


async def connected(faults: Faults) -> tuple[FaultyCluster, FaultyGrid]:
    cluster = FaultyCluster(faults=faults, partitions=8, members=3)
    grid = cluster.connect()
    for key in KEYS:
        await grid.set(Map.INBOX, P, key, b"v")
    return cluster, grid


async def test_a_read_may_fail() -> None:
    faults = Faults()
    _, grid = await connected(faults)
    faults.once(Fault.READ_FAILED, times=2)
    with pytest.raises(Unknown):
        await grid.get(Map.INBOX, P, KEYS[0])
    with pytest.raises(Unknown):
        await grid.get_all(Map.INBOX, P, KEYS)
    assert faults.counts == {Fault.READ_FAILED: 2}


async def test_an_entry_that_is_there_may_read_absent() -> None:
    faults = Faults()
    _, grid = await connected(faults)
    faults.once(Fault.ABSENT, times=2)
    assert await grid.get(Map.INBOX, P, KEYS[0]) is None
    some = await grid.get_all(Map.INBOX, P, KEYS)
    assert 0 < len(some) < len(KEYS)
    assert faults.counts[Fault.ABSENT] == 1 + len(KEYS) - len(some)
    assert await grid.get(Map.INBOX, P, KEYS[0]) == b"v"


async def test_an_absent_read_of_nothing_is_no_fault() -> None:
    faults = Faults()
    _, grid = await connected(faults)
    faults.once(Fault.ABSENT)
    assert await grid.get(Map.INBOX, P, b"never there") is None
    assert faults.counts[Fault.ABSENT] == 0


async def test_a_read_may_see_what_was() -> None:
    faults = Faults()
    _, grid = await connected(faults)
    await grid.set(Map.INBOX, P, KEYS[0], b"new")
    await grid.delete(Map.INBOX, P, KEYS[1])
    await grid.set(Map.INBOX, P, b"added", b"x")
    faults.once(Fault.STALE, times=3)
    assert await grid.get(Map.INBOX, P, KEYS[0]) == b"v"
    assert await grid.get_all(Map.INBOX, P, [KEYS[0], KEYS[1], b"added"]) == {KEYS[0]: b"v", KEYS[1]: b"v"}
    assert faults.counts[Fault.STALE] == 4
    await trio.sleep(faults.stale_s + 0.1)
    assert await grid.get(Map.INBOX, P, KEYS[0]) == b"new", "only a moment back"


async def test_reads_fail_and_miss_in_trouble_only() -> None:
    faults = Faults({}, trouble_rates={Fault.ABSENT: 0.5, Fault.READ_FAILED: 0.2})
    cluster, grid = await connected(faults)

    async def missed() -> int:
        count = 0
        for key in KEYS:
            try:
                count += await grid.get(Map.INBOX, P, key) is None
            except Unknown:
                count += 1
        return count

    assert await missed() == 0
    target = next(id for id in cluster.members if id != cluster.primary(P))
    cluster.migrate(P, target)
    assert cluster.primary(P) == target
    assert await missed() > 10
    await trio.sleep(faults.trouble_s)
    assert await missed() == 0
    assert faults.counts[Fault.MIGRATED] == 1


async def test_a_scan_fails_rather_than_come_back_short() -> None:
    faults = Faults({Fault.ABSENT: 0.5, Fault.STALE: 0.2, Fault.READ_FAILED: 0.1})
    _, grid = await connected(faults)
    failed = 0
    for _ in range(40):
        try:
            assert [entry.key for entry in await scanned(grid, Map.INBOX, P, b"", page=20)] == KEYS
        except Unknown:
            failed += 1
    assert 0 < failed < 40


async def test_a_scan_comes_back_short_only_if_that_is_asked_for() -> None:
    faults = Faults()
    _, grid = await connected(faults)
    faults.once(Fault.SHORT_SCAN, times=2)
    assert len(await scanned(grid, Map.INBOX, P, b"", page=20)) < len(KEYS)
    assert faults.counts[Fault.SHORT_SCAN] == 1


async def test_a_read_may_be_blocked_or_slow() -> None:
    faults = Faults()
    faults.slow_s = (1.0, 1.0)
    _, grid = await connected(faults)
    faults.once(Fault.BLOCKED)
    began = trio.current_time()
    with pytest.raises(Unknown):
        await grid.get(Map.INBOX, P, KEYS[0], timeout_s=0.5)
    assert trio.current_time() - began == pytest.approx(0.5)
    faults.once(Fault.SLOW)
    assert await grid.get(Map.INBOX, P, KEYS[0]) == b"v"
    assert trio.current_time() - began >= 1.5
