"""The engine's defences, each with a way to switch it off. A mutant replaces a method (or a setting) for a while;
the engine itself has no switch for any of them. Each must make the simulation find a violation."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import trio

from tenure.scheduler.courier import Courier
from tenure.scheduler.cutting import Capture, Cutting
from tenure.scheduler.draft import Draft
from tenure.scheduler.grid.memory import Faults
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.inlanes import InLanes, Slot
from tenure.scheduler.journal import Journal
from tenure.scheduler.sweeping import Sweeping
from tenure.scheduler.taking import Taking
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Batch, Record, decode, encode

__all__ = ["DEFENCES", "REPLACED", "without"]

Mutant = Callable[[ExitStack], object]
MUTANTS: dict[str, Mutant] = {}
REPLACED: dict[str, tuple[type, str, Callable[..., Any]]] = {}
"""What of the engine each replaces, and by what."""


@contextmanager
def without(defence: str | None) -> Iterator[None]:
    """While open, the engine lacks this defence."""
    with ExitStack() as stack:
        if defence is not None:
            MUTANTS[defence](stack)
        yield


def _replaced(defence: str, target: type, method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Off, `target.method` is the decorated function."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        REPLACED[defence] = target, method, function
        MUTANTS[defence] = lambda stack: stack.enter_context(patch.object(target, method, function))
        return function

    return register


# -- the journal ----------------------------------------------------------------------------------


@_replaced("stop-when-taken", Journal, "commit")
async def _commit_into_the_next_slot(self: Journal, record: Record) -> None:
    record.after = self.state.last_id
    while not await self._append(record):
        self.slot += 1


@_replaced("write-once", Journal, "_put")
async def _overwrite(self: Journal, map: Map, key: bytes, value: bytes) -> None:
    await self.grid.set(map, self.partition, key, value)


@_replaced("fences", Imaging, "_is_fence")
def _clear_openings_too(self: Imaging, slot: int) -> bool:
    return False


@_replaced("claim-head", Journal, "_claim")
async def _claim_nothing(self: Journal, opening: str) -> bool:
    return True


@_replaced("confirm", Journal, "_confirm")
async def _confirm_nothing(self: Journal, doubts: list[tuple[int, bytes]]) -> None:
    doubts.clear()


@_replaced("predecessor", Journal, "_chains")
def _take_any_record(self: Journal, record: Record) -> bool:
    return True


@_replaced("record-identity", Journal, "write_once")
async def _take_any_for_mine(self: Journal, map: Map, key: bytes, value: bytes) -> bool:
    attempt = 0
    while True:
        try:
            await self._put(map, key, value)
            return True
        except GridError:
            attempt += 1
            await self.pause(attempt)


# -- lanes and commits ----------------------------------------------------------------------------

_freeze, _commit, _read = Draft.freeze, Tenure.commit, Taking._read


@_replaced("lane-cursor", Draft, "freeze")
def _forget_cursors(self: Draft, record: Record, *arguments: Any) -> Record:
    _freeze(self, record, *arguments)
    record.cursors = {}
    return record


@_replaced("gapless", InLanes, "_next_of")
def _pass_over_gaps(
    self: InLanes, slots: dict[tuple[int, int], bytes], cursor: tuple[int, int] | None
) -> tuple[int, int] | None:
    return min((at for at in slots if cursor is None or at >= cursor), default=None)


@_replaced("lane-chain", InLanes, "_may_begin")
def _begin_any_lane(self: InLanes, value: bytes, cursor: tuple[int, int] | None) -> bool:
    return True


@_replaced("output-after-commit", Tenure, "commit")
async def _send_before_commit(self: Tenure, *arguments: Any, **options: Any) -> None:
    commit = self.journal.commit

    async def sent_first(record: Record) -> None:
        self.courier.send(record.outbox, record.answers)
        await trio.lowlevel.checkpoint()
        await commit(record)
        record.outbox, record.answers = [], []

    with patch.object(self.journal, "commit", sent_first):
        await _commit(self, *arguments, **options)


@_replaced("outbox", Courier, "resume")
def _send_nothing_again(self: Courier) -> None:
    for partition, slots in self.tenure.state.outbox.items():
        self._below[partition] = slots[0][0]


@_replaced("verbatim", Courier, "resume")
def _cut_anew(self: Courier) -> None:
    """All that is left for a partition goes into one slot; the others are filled with nothing."""
    for partition, slots in self.tenure.state.outbox.items():
        envelopes = [envelope for _, slot in slots for envelope in decode(slot, Batch).envelopes]
        first, *rest = [n for n, _ in slots]
        self._below[partition] = first
        fillers = [(partition, n, encode(Batch([]))) for n in rest]
        self.send([(partition, first, encode(Batch(envelopes))), *fillers], [])
    self.send([], [(client, answer) for (client, _), answer in self.tenure.state.answers.items()])


@_replaced("mailbox-carried", Draft, "freeze")
def _carry_nothing(self: Draft, record: Record, *arguments: Any) -> Record:
    self.uncarried = {}
    return _freeze(self, record, *arguments)


@_replaced("cut-marks", Taking, "_read")
def _see_no_marks(self: Taking, slot: Slot) -> Batch:
    return Batch(_read(self, slot).envelopes)


@_replaced("stragglers", Capture, "taken")
def _record_nothing(self: Capture, slot: Slot, cut: int) -> None:
    pass


@_replaced("await-stragglers", Capture, "awaits")
def _await_nothing(self: Capture, channel: dict[int, int], lanes: InLanes, incarnation: int) -> bool:
    return False


@_replaced("stored-by-clients", Cutting, "_hear_clients")
async def _hear_no_clients(self: Cutting, capture: Capture) -> None:
    capture.hears_clients = False


@_replaced("sweep", Sweeping, "run")
async def _never_sweep(self: Sweeping) -> None:
    await trio.sleep_forever()


# -- the grid's settings --------------------------------------------------------------------------


def _acknowledge_without_backup(stack: ExitStack) -> None:
    """The stock settings of Hazelcast: a write that no backup holds is a success."""
    never = property(lambda self: False, lambda self, on: None)
    stack.enter_context(patch.object(Faults, "fail_on_indeterminate", never, create=True))


MUTANTS["indeterminate-flag"] = _acknowledge_without_backup

DEFENCES = tuple(MUTANTS)
