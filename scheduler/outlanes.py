"""The sending end of a client's lanes, without I/O: it says what to do next, and is told how that went.

    publish ──► waiting ──► frozen in slot n ──► stored (tickets are told)
                               │ unknown: the same bytes into the same slot, until acknowledged or the lane is left

A lane never passes over a number. It is left when it is old: an acknowledgement that comes later than
half a lane's lifetime counts as unknown, since the receiver may have forgotten the lane by then.
`sending` drives them. Rules: `tests/models/lanes_model.py`.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from msgspec import Struct

from tenure.scheduler.keys import slot_key
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.wire import Batch, Envelope, Kind, encode

__all__ = ["Action", "OutLane", "Step", "Ticket", "Waiting"]


class Ticket:
    """One caller's messages: done when each of them is stored."""

    __slots__ = ("done", "doubtful", "pending", "sent")

    def __init__(self) -> None:
        self.pending = self.sent = 0
        self.doubtful = False
        self.done = False


class Action(Enum):
    """What a lane wants done."""

    BEGIN = auto()
    """Learn the partition's announced watermark, and say `begun(…)`."""
    LOOK = auto()
    """Read whether the slot `key` is gone, and say `looked(gone)`."""
    WRITE = auto()
    """Set the slot `key` to `value`, and say `stored()`, or `unsure()` where the outcome is not known."""
    DOUBT = auto()
    """The lane is too old to try on: say `give_up()`, and tell the tickets that it returns."""


class Step(NamedTuple):
    """The next thing to do."""

    action: Action
    key: bytes = b""
    value: bytes = b""


class Waiting(Struct, gc=False):
    """One message that waits to be stored."""

    envelope: Envelope
    ticket: Ticket
    size_bytes: int


def is_for(envelope: Envelope, jobs: set[str]) -> bool:
    """Is this a message that would wait in the mailbox of one of these?"""
    return envelope.to in jobs and envelope.kind == Kind.MESSAGE


class OutLane:
    """The lanes from one client to one partition, one after another."""

    def __init__(self, sender: bytes, settings: ClientSettings, encode: Callable[[object], bytes] = encode) -> None:
        self.sender, self.settings, self._encode = sender, settings, encode
        self.waiting: deque[Waiting] = deque()
        self.frozen: list[Waiting] = []
        self._bytes = b""
        self.tried = False
        """Was the frozen slot ever tried with an unknown outcome?"""
        self.lane = 0
        self.formation = ""
        """The cluster in which it was begun,"""
        self.incarnation = 0
        """and its incarnation: what lands after a restore is known by it."""
        self.begun_s = 0.0
        self.n = 0
        self.room_below = 0
        """Slots below this may be written: those a window before them are gone."""
        self.last_lane = 0
        self.after = (0, 0)
        """Where the last lane that stored anything ended."""
        self.waiting_bytes = 0
        self._freed_bytes = 0

    def add(self, envelope: Envelope, ticket: Ticket, size_bytes: int) -> None:
        """One more message, behind all others."""
        self.waiting.append(Waiting(envelope, ticket, size_bytes))
        self.waiting_bytes += size_bytes
        ticket.pending += 1
        ticket.done = False

    def has_something(self) -> bool:
        """Is something waiting?"""
        return bool(self.frozen or self.waiting)

    def next_step(self, now_s: float) -> Step | None:
        """What to do next; None: nothing is waiting."""
        if not self.frozen and not self.waiting:
            return None
        age_s = now_s - self.begun_s
        if self.lane and age_s > self.settings.lane_lifetime_s / (2 if self.tried else 4):
            if self.tried:
                return Step(Action.DOUBT)
            self._leave()
        if not self.lane:
            return Step(Action.BEGIN)
        if self.n >= self.room_below:
            return Step(Action.LOOK, slot_key(self.sender, self.lane, self._oldest_in_window()))
        if not self.frozen:
            self._freeze()
        return Step(Action.WRITE, slot_key(self.sender, self.lane, self.n), self._bytes)

    def _oldest_in_window(self) -> int:
        # Half a window ahead of need, so that a look is rare and the receiver has had time.
        return max(0, self.n - max(1, self.settings.window_slots // 2))

    def begun(self, watermark: int, wall_ms: int, now_s: float, formation: str = "", incarnation: int = 0) -> None:
        """A new lane: born after every lane that the partition may forget, and after our own last one.

        `now_s`: before the watermark was asked for.
        """
        if self.last_lane and formation != self.formation and (self.formation or incarnation > 1):
            self.after = (0, 0)  # where our last lane ended is nothing to the cluster that was restored since
        self.formation, self.incarnation = formation, incarnation
        self.lane = self.last_lane = max(wall_ms, watermark + 1, self.last_lane + 1)
        self.begun_s, self.n = now_s, 0
        self.room_below = self.settings.window_slots

    def looked(self, gone: bool) -> None:
        """Is the slot that was asked for consumed? Then so is all before it."""
        if gone:
            self.room_below = self._oldest_in_window() + self.settings.window_slots + 1

    def stored(self, now_s: float) -> list[Ticket]:
        """The frozen slot was acknowledged; returns the tickets that this completes."""
        if now_s - self.begun_s > self.settings.lane_lifetime_s / 2:
            return self.give_up()
        self.n += 1
        return self._settle(doubtful=False)

    def unsure(self) -> None:
        """The outcome is not known: the next step is the same write again."""
        self.tried = True

    def _settle(self, doubtful: bool) -> list[Ticket]:
        done = []
        size_bytes = 0
        for waiting in self.frozen:
            size_bytes += waiting.size_bytes
            ticket = waiting.ticket
            ticket.pending = pending = ticket.pending - 1
            ticket.doubtful |= doubtful
            if not pending:
                ticket.done = True
                done.append(ticket)
        self._free(size_bytes)
        self.frozen, self._bytes, self.tried = [], b"", False
        return done

    def give_up(self) -> list[Ticket]:
        """The frozen slot will not be tried again: its messages are in doubt, and the lane must be left."""
        # In this order: what is in doubt must not be taken along into the next lane, since it may be stored here.
        done = self._settle(doubtful=True)
        self._leave()
        return done

    def forsake(self) -> list[Ticket]:
        """The cluster is another one, and knows nothing of our lanes: what was tried is in doubt, the rest goes on."""
        done = self._settle(doubtful=True) if self.tried else []
        self._leave()
        self.after = (0, 0)
        return done

    def put(self, waiting: Waiting) -> None:
        """The same, of what was held back until now."""
        self.waiting.append(waiting)
        self.waiting_bytes += waiting.size_bytes

    def take_out(self, jobs: set[str]) -> list[Waiting]:
        """What waits for jobs that take no more. What is frozen stays: it may be stored."""
        held = [waiting for waiting in self.waiting if is_for(waiting.envelope, jobs)]
        if held:
            self._free(sum(waiting.size_bytes for waiting in held))
            self.waiting = deque(waiting for waiting in self.waiting if not is_for(waiting.envelope, jobs))
        return held

    def withdraw(self, ticket: Ticket) -> None:
        """Its caller has stopped waiting: what was never tried will not be."""
        kept = deque(waiting for waiting in self.waiting if waiting.ticket is not ticket)
        self._free(sum(waiting.size_bytes for waiting in self.waiting if waiting.ticket is ticket))
        self.waiting = kept

    def _free(self, size_bytes: int) -> None:
        self.waiting_bytes -= size_bytes
        self._freed_bytes += size_bytes

    def freed_bytes(self) -> int:
        """What was settled or withdrawn since this was last asked."""
        freed_bytes, self._freed_bytes = self._freed_bytes, 0
        return freed_bytes

    def _leave(self) -> None:
        # A lane that has stored nothing is no link in the chain: its successor follows what it followed.
        if self.n:
            self.after = (self.lane, self.n)
        self.lane = 0
        # What is frozen was never tried: it goes along.
        self.waiting.extendleft(reversed(self.frozen))
        self.frozen, self._bytes = [], b""

    def _freeze(self) -> None:
        size_bytes, messages_max, bytes_max = 0, self.settings.batch_messages_max, self.settings.batch_bytes_max
        frozen, waiting = self.frozen, self.waiting
        envelopes = []
        while waiting and len(frozen) < messages_max:
            first = waiting[0]
            size_bytes += first.size_bytes
            if frozen and size_bytes > bytes_max:
                break
            frozen.append(first)
            envelopes.append(first.envelope)
            waiting.popleft()
        batch = Batch(envelopes, incarnation=self.incarnation, holds_back=True)
        if self.n == 0:
            batch.after_lane, batch.after_n = self.after
        self._bytes = self._encode(batch)
