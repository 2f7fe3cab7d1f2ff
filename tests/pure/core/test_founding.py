"""Where a restored partition begins: behind everything that an owner of before may still commit or delete."""

from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

import msgspec
import pytest
import trio

from tenure.scheduler import sweeping
from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import HEAD
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.founding import Founding
from tenure.scheduler.state import PartitionState
from tenure.scheduler.wire import Head, decode
from tests.pure.core import bench as benches
from tests.pure.core.bench import Bench, Opened, P, rest

NEW = "the next cluster"


class Counter(Job):
    n: int = 0

    def on_message(self, ctx: Context, message: int) -> int:
        self.n += 1
        return self.n


COUNTER = JobType("counter", Counter)


async def cleared(bench: Bench, **settings: int | float) -> Opened:
    """An owner whose journal is cleared up to its next slot."""
    opened = await bench.open(COUNTER, image_journal_slots_max=6, **settings)
    await bench.define("a", "counter")
    journal = opened.tenure.journal
    for n in range(60):
        await bench.publish("a", n)
        await rest(0.2)
        if journal.slot > 16 and journal.head.first == journal.slot:
            return opened
    raise AssertionError("its journal is never cleared to its end")


async def hold() -> None:
    pass


def founding(bench: Bench, hold: Callable[[], Awaitable[None]] = hold) -> Founding:
    numbers = count()
    return Founding(
        bench.grid(),
        P,
        formation=NEW,
        settings=NodeSettings(),
        new_id=lambda: f"restore.{next(numbers)}",
        random=Random(1),
        report=bench.reports.append,
        hold=hold,
    )


async def found(bench: Bench, new: Founding) -> None:
    await new.fence(bench.now_ms())
    await new.clear(Map.INBOX)
    await new.clear(Map.JOBS)
    await new.found(PartitionState(), NEW, 2)


async def slots(bench: Bench) -> list[int]:
    return [int.from_bytes(key, "big") for key in await bench.keys(Map.JOURNAL)]


async def test_an_owner_of_before_can_commit_nothing_though_its_journal_was_cleared(bench: Bench) -> None:
    old = await cleared(bench)
    next_slot = old.tenure.journal.slot
    new = founding(bench)
    await found(bench, new)
    assert new.slot > next_slot
    await bench.publish("a", 99)
    await bench.until(lambda: old.over)
    assert max(await slots(bench)) == new.slot - 1


async def test_a_sweep_of_an_owner_of_before_deletes_nothing_of_the_restored_cluster(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen between its look at the head and its clearing."""
    old = await cleared(bench, sweep_s=0.5)
    grid, still_ours, frozen = old.tenure.host.grid, old.tenure.journal.still_ours, trio.Event()

    async def then_frozen() -> bool:
        is_ours = await still_ours()
        grid.freeze()  # type: ignore[attr-defined]
        frozen.set()
        return is_ours

    with monkeypatch.context() as patches:
        patches.setattr(old.tenure.journal, "still_ours", then_frozen)
        patches.setattr(sweeping, "FIRST_CLEARING", 0)
        patches.setattr(sweeping, "SWEEPS_A_CLEARING", 1)
        with trio.fail_after(60):
            await frozen.wait()
    await found(bench, founding(bench))
    monkeypatch.setattr(benches, "FORMATION", NEW)
    bench.lane, bench._sent = bench.now_ms(), 0
    restored = await bench.open(COUNTER)
    await bench.define("a", "counter")
    for n in range(6):
        assert msgspec.msgpack.decode((await bench.ask("a", n)).body) == n + 1
    written = await slots(bench)
    grid.thaw()  # type: ignore[attr-defined]
    await rest(3)
    assert old.over
    assert [slot for slot in written if slot >= restored.tenure.journal.head.first] == [
        slot for slot in await slots(bench) if slot >= restored.tenure.journal.head.first
    ]
    await restored.kill()
    await bench.open(COUNTER)
    assert msgspec.msgpack.decode((await bench.ask("a", 9)).body) == 7


@pytest.mark.parametrize("fault", [Fault.ABSENT, Fault.DROPPED_UNKNOWN, Fault.APPLIED_UNKNOWN])
async def test_a_head_that_is_not_read_as_it_is_does_not_move_the_fence(bench: Bench, fault: Fault) -> None:
    old = await cleared(bench)
    next_slot = old.tenure.journal.slot
    new = founding(bench)
    bench.faults.once(fault, map=Map.HEADS, connection=new.grid, times=2)
    await new.fence(bench.now_ms())
    assert new.slot - 1 >= next_slot
    await bench.publish("a", 99)
    await bench.until(lambda: old.over)


async def test_an_image_that_is_finished_beside_the_fence_moves_the_fence(bench: Bench) -> None:
    """The old owner commits, and moves its head, between the restorer's look at the head and its claim."""
    old = await cleared(bench)
    looked = trio.Event()

    class Slow(Founding):
        async def _end(self) -> tuple[int, int]:
            end = await super()._end()
            if not looked.is_set():
                looked.set()
                for n in range(20):
                    await bench.publish("a", n)
                    await rest(0.2)
            return end

    new = founding(bench)
    new.__class__ = Slow
    await new.fence(bench.now_ms())
    await rest(1)
    assert new.slot > old.tenure.journal.head.first
    await bench.publish("a", 99)
    await bench.until(lambda: old.over)
    assert max(await slots(bench)) == new.slot - 1


@pytest.mark.parametrize("damage", [None, b"\x01\x00nonsense"])
async def test_a_head_that_is_lost_or_damaged_is_replaced(bench: Bench, damage: bytes | None) -> None:
    old = await cleared(bench)
    await old.kill()
    if damage is None:
        await bench.grid().delete(Map.HEADS, P, HEAD)
    else:
        await bench.grid().set(Map.HEADS, P, HEAD, damage)
    await found(bench, founding(bench))
    stored = await bench.grid().get(Map.HEADS, P, HEAD)
    assert stored is not None
    assert (decode(stored, Head).formation, decode(stored, Head).incarnation) == (NEW, 2)
