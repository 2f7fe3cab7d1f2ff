"""A partition's cut: the journal record at which its state enters a snapshot.

    asked, or a slot marked with the number comes ──► the next record is the cut ──► captured, as it is committed
                                                                                        │
    stragglers: unmarked slots of partitions, and what clients had stored ◄─────────────┘  recorded as they are taken

Nobody pauses. Committed state is immutable bytes, so a copy of the tables is a copy of the state. What a partition
sends after its cut is marked with the snapshot's number; whoever has not cut yet does so before it takes such a slot.
An unmarked slot that is taken after the cut was sent before its sender's: it belongs to the snapshot, as it was on
its way. The rules are those of `tests/models/snapshot_model.py`; change both together.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.image import Frozen
from tenure.scheduler.inlanes import InLanes, Slot
from tenure.scheduler.keys import is_partition_sender, sending_partition
from tenure.scheduler.snapshots.part import write_part

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Capture", "Cutting"]


class Capture:
    """One partition as it is in one snapshot: its state at the cut, and what was on its way to it."""

    def __init__(self, number: int, tenure: "Tenure") -> None:
        state = tenure.state
        self.number, self.partition = number, tenure.partition
        self.frozen: Frozen | None = Frozen(state)
        self.numbered = dict(state.numbered)
        self.cursors = {
            sending_partition(sender): n
            for sender, (lane, n) in state.cursors.items()
            if is_partition_sender(sender) and lane == tenure.host.incarnation
        }
        self.client_lanes_max = max(
            (lane for sender, (lane, _) in state.cursors.items() if not is_partition_sender(sender)), default=0
        )
        self.stragglers: list[tuple[bytes, bytes]] = []
        """Slots (key, value) in the order in which they are taken."""
        self.hears_clients = True
        """Until a scan that began after the cut has ended: then all is recorded that clients were told is stored."""
        self.definitions_before: dict[str, bytes] = {}
        """As they were at the cut, of jobs that have asked for their own end since."""
        self.scope = trio.CancelScope()

    def taken(self, slot: Slot, cut: int) -> None:
        """A slot was taken after the cut."""
        if cut < self.number if is_partition_sender(slot.sender) else self.hears_clients:
            self.stragglers.append((slot.key, slot.value))

    def heard_clients(self, lanes: InLanes) -> None:
        """What clients had stored before the cut has been taken by now, or waits here."""
        self.hears_clients = False
        self.stragglers += ((slot.key, slot.value) for slot in _waiting_of_clients(lanes))

    def awaits(self, channel: dict[int, int], lanes: InLanes, incarnation: int) -> bool:
        """Is something still to come that other partitions had numbered at their cuts? `channel`: up to where."""
        return any(lanes.taken_of(partition, incarnation) < end for partition, end in channel.items())


def _waiting_of_clients(lanes: InLanes) -> Iterator[Slot]:
    """In the order in which they would be taken, as far as nothing is missing."""
    ahead = InLanes(lanes.cursors, lanes.watermark, lanes.incarnation)
    for sender, slots in lanes.waiting.items():
        if not is_partition_sender(sender):
            ahead.waiting[sender] = dict(slots)
            while (slot := ahead.next_slot(sender)) is not None:
                ahead.take(slot)
                yield slot


class Cutting:
    """One tenure's part in snapshots."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self.records = False
        """Must slots that are taken be shown to us?"""
        self.capture: Capture | None = None
        self._wanted, self._begun = 0, False
        self._held: dict[bytes, None] = {}
        """Senders whose next slot is marked with a number that we have not cut for yet."""

    def begin(self) -> None:
        """The tenure begins: a snapshot may be under way, and what the last tenure had captured for it is gone."""
        self._begun = True
        self.hear()

    def hear(self) -> None:
        """Look at what is asked for."""
        if not self._begun:
            return
        number = self.tenure.host.snapshots.number
        if number > self.tenure.state.cut:
            self._want(number)
        elif number == self.tenure.state.cut and number and self.capture is None:
            self.capture = Capture(number, self.tenure)  # to stand for the one that is gone
            self.capture.frozen = None
            self.tenure.start(self._write, self.capture)

    def _want(self, number: int) -> None:
        if number > self._wanted:
            self._wanted = number
            self.tenure.want_commit()

    def await_cut(self, sender: bytes, number: int) -> None:
        """This sender's next slot was sent after its cut: ours must be committed before it is taken."""
        self._held[sender] = None
        self._want(number)

    def is_wanted(self) -> bool:
        """Is a record to be the cut, as soon as one can be?"""
        return self._wanted > self.tenure.state.cut

    def due(self) -> int:
        """The number that the next record is the cut for, or 0. What is on its way at a cut is whole slots: one that is
        half dealt with comes to its end first."""
        return self._wanted if self.is_wanted() and not self.tenure.taking.begun else 0

    def committed(self, number: int) -> None:
        """The cut is committed. Nothing has happened since, as no slot is taken while a record is in flight."""
        if self.capture is not None:
            self.capture.scope.cancel()
        self.capture, self.records = Capture(number, self.tenure), True
        self.tenure.inlanes.fresh.update(self._held)
        self._held.clear()
        self.tenure.wake()
        self.tenure.start(self._write, self.capture)

    def taken(self, slot: Slot, cut: int) -> None:
        """A slot was taken."""
        assert self.capture is not None
        self.capture.taken(slot, cut)

    def will_change(self, id: str, definition: bytes) -> None:
        """A job's own turn is about to have its definition changed."""
        if self.capture is not None and self.capture.frozen is not None:
            self.capture.definitions_before.setdefault(id, definition)

    async def _write(self, capture: Capture) -> None:
        with capture.scope:
            if capture.frozen is not None:
                await self._hear_clients(capture)
            await write_part(self.tenure, capture)
        if self.capture is capture:
            self.records = False
            capture.frozen = None
            capture.stragglers.clear()

    async def _hear_clients(self, capture: Capture) -> None:
        async with self.tenure.host.snapshots.scans:
            await self._scan()
        capture.heard_clients(self.tenure.inlanes)

    async def _scan(self) -> None:
        tenure, attempt = self.tenure, 0
        while True:
            try:
                async for page in tenure.host.grid.scan(Map.INBOX, tenure.partition):
                    for entry in page:
                        tenure.offer_slot(entry.key, entry.value)
                return
            except GridError:
                attempt += 1
                await tenure.journal.pause(attempt)

    def reads_definitions(self) -> bool:
        """Is somebody going to read all definitions for a snapshot, so that nobody else need?"""
        return self.capture is not None and self.capture.frozen is not None and not self.capture.scope.cancel_called
