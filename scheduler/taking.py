"""Taking what lanes hold, and handing each message to whom it is for: a job's queue, a topic's subscribers, the
partition itself."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import trio
from msgspec import Raw, msgpack

from tenure.scheduler import commands
from tenure.scheduler.bodies import DEPTH_MAX
from tenure.scheduler.budget import ENVELOPE_BYTES, envelope_bytes
from tenure.scheduler.draft import Begun
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.holding import FLOOD_BYTES, HARD, HARD_BYTES
from tenure.scheduler.inlanes import InLanes, Slot
from tenure.scheduler.journal import TenureOver
from tenure.scheduler.keys import is_partition_sender
from tenure.scheduler.live import Live
from tenure.scheduler.refusals import Refusals
from tenure.scheduler.salvage import salvaged, why_odd
from tenure.scheduler.wire import Batch, Envelope, Kind, decode

if TYPE_CHECKING:
    from tenure.scheduler.sightings import Closed
    from tenure.scheduler.tenure import Tenure
    from tenure.scheduler.turns import Turns

__all__ = ["Taking"]

GAP_PATIENCE_S = 0.01
MAILED_BYTES = 64
"""A message in a mailbox has so many more than in its slot: where it came from."""
COPIES_A_LOOK = 64
"""So many copies of a message are made between two looks at the clock and the draft."""
LARGE_BYTES = 4096
"""A message that is larger has a look at them before each copy."""
TYPICAL_ID = 40
MESSAGE = Kind.MESSAGE
Left = tuple[str, int]
"""(the last that got it, how many have)"""


class Taking:
    """How one tenure takes messages."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.settings = tenure, tenure.host, tenure.settings
        self.partition, self.state = tenure.partition, tenure.state
        self.turns: Turns = tenure.turns
        self.inlanes: InLanes = tenure.inlanes
        self.lives, self._by_id = tenure.lives, tenure.lives.by_id
        self.closed: dict[str, Closed] = {}
        """Applications that are being shut down, and what of theirs is refused (see `sightings`)."""
        self.holding = tenure.holding
        self._held_back: dict[bytes, None] = {}
        """Clients' lanes that are not taken from, for a job that is full."""
        self._gaps: dict[bytes, tuple[float, float]] = {}
        """By the slot that is missing first: since when (or since the last look), and how long until the next look."""
        self.refusals = Refusals(tenure)
        self._mailbox_messages_max = self.settings.mailbox_messages_max
        self._mailbox_bytes_max = self.settings.mailbox_bytes_max
        self._odd: dict[int, str] = {}
        """Of the slot that was read last: the places of messages that nobody can read, and why."""
        self._slots = self._messages = 0
        """Taken so far."""
        self.begun: dict[bytes, Begun] = dict(self.state.begun)
        """sender -> how far its next slot has been dealt with"""
        self._for_room: dict[bytes, None] = {}
        """Senders whose messages to topics wait for room in the outbox."""
        self._is_cut_awaited = False
        self._ordered: dict[str, list[str]] = {}
        """The subscribers of a topic that very many have, in the order in which they get a message."""
        self._budget, self._pace = tenure.host.budget, tenure.host.pace
        self._ends_s = 0.0

    def gap_s(self) -> float:
        """When, on trio's clock, to read a slot whose event may have been lost."""
        return min((since_s + patience_s for since_s, patience_s in self._gaps.values()), default=float("inf"))

    def untaken(self) -> int:
        """About how many messages have come in and are not taken: slots hold as many as those before them. What a full
        job holds back is not counted."""
        lanes = self.inlanes.waiting.items()
        slots = sum(len(slots) for sender, slots in lanes if sender not in self._held_back)
        return slots * max(1, self._messages) // max(1, self._slots)

    def let_go_on(self) -> None:
        """A job takes messages again: those who were stopped for it may go on."""
        self.inlanes.fresh.update(self._held_back)
        self._held_back.clear()
        self.tenure.wake()

    def take(self) -> None:
        """Take what is next in each lane, up to a group, and to what a record has room for."""
        lanes, draft, heard = self.inlanes, self.turns.draft, self.tenure.forgetting.heard
        cutting, holding = self.tenure.cutting, self.holding
        changed, taken_bytes, clock = draft.changed, self._budget.taken_bytes, self._pace.clock
        messages = size_bytes = 0
        self.refusals.go_on()
        ends_s = self._ends_s = self._half_of_the_slice()
        senders, lanes.fresh = self._senders(), {}
        last: bytes | None = None
        for sender in senders:
            while (
                messages < self.settings.group_messages_max
                and size_bytes < self.settings.group_bytes_max
                and changed.size_bytes + draft.other_bytes + draft.sent_bytes < taken_bytes
                and clock() < ends_s
            ):  # as `must_end` says
                begun = self.begun.get(sender)
                if begun is None and (self.begun or self._is_cut_awaited) and self._awaits_cut():
                    break
                slot = lanes.next_slot(sender, None if begun is None else begun[:2])
                if slot is None:
                    break
                read = self._read(slot)
                if read.cut > self.state.cut:
                    cutting.await_cut(sender, read.cut)
                    break
                is_full = bool(holding.full or holding.letters_full or self.tenure.remembering.is_full)
                if is_full and begun is None and not is_partition_sender(sender) and holding.stops(sender, read):
                    self._held_back[sender] = None
                    break
                heard(sender)
                size_bytes += len(slot.value)
                draft.other_bytes += len(slot.value) + len(read.envelopes) * MAILED_BYTES
                if not self._deal_with(slot, read.envelopes, begun):
                    last = sender if sender not in self._for_room else last
                    break
                lanes.take(slot)
                if cutting.records:
                    cutting.taken(slot, read.cut)
                draft.take(sender, slot.lane, slot.n + 1)
                draft.consumed.append(slot.key)
                draft.wanted = True
                messages += len(read.envelopes)
                self._slots += 1
            else:
                if last is None:
                    last = sender
                else:
                    lanes.fresh[sender] = None
        self._messages += messages
        if last is not None:
            lanes.fresh[last] = None  # whoever was served goes to the end
            self.tenure.wake()
        if lanes.waiting or self._gaps:
            self._mind_gaps()
        if lanes.outlived:
            self.host.grid.discard(Map.INBOX, self.partition, lanes.outlived)
            lanes.outlived = []
        if holding.has_news():
            holding.tell()

    def rests(self) -> bool:
        """Is there nothing to take, or to say of what was taken, before something else happens?"""
        lanes = self.inlanes
        waits = lanes.fresh or lanes.waiting or lanes.outlived or self._gaps or self._for_room or self._is_cut_awaited
        return not waits and not self.holding.has_news()

    def _half_of_the_slice(self) -> float:
        """Until when to take: turns have the other half."""
        now_s = self._pace.clock()
        return now_s + (self._pace.ends_s - now_s) / 2

    def must_end(self) -> bool:
        """Is what this record, or this pass, may take in used up?"""
        return self.turns.draft.size() >= self._budget.taken_bytes or self._pace.clock() >= self._ends_s

    def _senders(self) -> dict[bytes, None]:
        """Whose lanes to look at."""
        fresh = self.inlanes.fresh
        if not self._for_room and not self._is_cut_awaited:
            return fresh
        if self._for_room and not self.tenure.outbox_is_full():
            fresh.update(self._for_room)
            self._for_room.clear()
        if self._is_cut_awaited and (self._for_room or not self.tenure.cutting.is_wanted()):
            self._is_cut_awaited = False
            fresh.update(dict.fromkeys(self.inlanes.waiting))
        return fresh

    def _awaits_cut(self) -> bool:
        """Is the cut of a snapshot wanted, and slots are half dealt with? These first: a cut has whole slots. But where
        one waits for room in the outbox, nobody knows for how long, and others do not wait for it."""
        if self._for_room:
            return False
        if self.begun and self.tenure.cutting.is_wanted():
            self._is_cut_awaited = True
        return self._is_cut_awaited

    def _deal_with(self, slot: Slot, batch: list[Envelope], begun: Begun | None) -> bool:
        """Hand on what is in a slot. False: the rest is for later records, which go on where this one ends."""
        first, after, count = (0, "", 0) if begun is None else begun[2:]
        origin, key, odd, deliver = self.host.origin(), slot.key, self._odd, self._deliver_message
        by_id, readied, uncarried = self._by_id, self.lives.readied, self.turns.draft.uncarried
        # Most are messages that nobody waits for, to a job that is here and has room: these are handed on right away.
        most, most_bytes = (0, 0) if self.closed else (self._mailbox_messages_max - 1, self._mailbox_bytes_max)
        index = first
        try:
            for index, envelope in enumerate(batch[first:] if first else batch, first):
                envelope.slot, envelope.index, envelope.origin = key, index, origin
                if (odd or len(envelope.body) > DEPTH_MAX) and self._bury_odd(envelope):
                    after, count = "", 0
                    continue
                if envelope.kind == MESSAGE:
                    live = by_id.get(to := envelope.to)
                    if (
                        live is None
                        or len(queue := live.queue) >= most
                        or live.mail_bytes >= most_bytes
                        or envelope.reply
                        or envelope.id
                    ):
                        deliver(envelope)
                    else:
                        queue.append(envelope)
                        readied[to] = uncarried[to] = live
                    continue
                left: Left | None = (after, count)
                if index == first or not self.must_end():
                    left = self.deliver(envelope, after, count)
                if left is not None:
                    at = (slot.lane, slot.n, index, *left)
                    if at != begun and at[2:] != (0, "", 0):
                        self.begun[slot.sender] = self.turns.draft.begun[slot.sender] = at
                        self.turns.draft.wanted = True
                    return False
                after, count = "", 0
        except Exception as error:
            error.add_note(f"slot {slot.key.hex()}, message {index}: {slot.value[:512].hex()}")
            raise
        if begun is not None:
            del self.begun[slot.sender]
            self.turns.draft.begun.pop(slot.sender, None)
        return True

    def _bury_odd(self, envelope: Envelope) -> bool:
        """What nobody could read becomes a dead letter, so that those who read what it lies in read on."""
        why = self._odd.get(envelope.index) or why_odd(envelope)
        if not why:
            return False
        if envelope.kind not in (Kind.MESSAGE, Kind.STATE, Kind.COMMAND):
            envelope.to, envelope.kind = f"message {envelope.index} of slot {envelope.slot.hex()}", Kind.MESSAGE
        self.tenure.dead_letters.bury(envelope, "Undecodable", why)
        return True

    def _read(self, slot: Slot) -> Batch:
        self._odd = {}
        try:
            return decode(slot.value, Batch)
        except (Undecodable, UnreadableFormat) as error:
            if isinstance(error, UnreadableFormat) and self.host.formats.is_another_ones(error.format):
                # Not taken: it keeps its place until a node that reads it has this partition.
                self.host.unfit[self.partition] = f"{error} ({self.host.formats.who_reads(error.format)})"
                raise TenureOver(f"partition {self.partition}: {error}") from error
            if (found := salvaged(slot.value)) is not None:
                batch, self._odd = found
                return batch
            # Its bytes are kept; whoever sent it sent nothing that we could do.
            envelope = Envelope(f"slot {slot.key.hex()}", Raw(msgpack.encode(slot.value)), slot=slot.key)
            self.tenure.dead_letters.bury(envelope, type(error).__name__, str(error))
            return Batch([])

    def _mind_gaps(self) -> None:
        """Slots that wait for others that have not come: their events may have been lost, so read these.

        Soon, if one has just been found; ever more rarely, if it is never there.
        """
        if not self.inlanes.waiting:
            self._gaps.clear()
            return
        now_s, before, keys = trio.current_time(), self._gaps, []
        self._gaps = {}
        for gap in list(self.inlanes.gaps()):
            since_s, patience_s = before.get(gap[0], (now_s, GAP_PATIENCE_S))
            if now_s >= since_s + patience_s:
                keys += gap
                self.inlanes.drop_outlived(gap[0][:8])
                since_s, patience_s = now_s, min(2 * patience_s, self.settings.sweep_s)
            self._gaps[gap[0]] = since_s, patience_s
        if keys:
            self.tenure.start(self._read_slots, keys)

    async def _read_slots(self, keys: list[bytes]) -> None:
        try:
            for key, value in (await self.host.grid.get_all(Map.INBOX, self.partition, keys)).items():
                self.tenure.offer_slot(key, value)
        except GridError:
            pass

    def deliver(self, envelope: Envelope, after: str = "", count: int = 0) -> "Left | None":
        """One message that was taken, to whom it is for. One that is for many may be left half done, if this record has
        no room for more: then it is for those behind `after` next time, `count` having got it."""
        kind = envelope.kind
        if kind == Kind.MESSAGE:
            self._deliver_message(envelope)
        elif kind == Kind.STATE:
            self._ask_state(envelope)
        elif kind == Kind.TOPIC:
            return self._fan_out(envelope, after, count)
        elif kind == Kind.TYPE:
            return self._to_type(envelope, after, count)
        elif kind == Kind.SUBSCRIBE:
            self._ordered.pop(envelope.to, None)
            wanted = commands.body_of(envelope) is True
            self.turns.draft.subscribed.append((envelope.to, envelope.source, wanted))
            self.turns.draft.other_bytes += envelope_bytes(envelope)
            if wanted:
                self.tenure.subscribing.came(envelope.to, envelope.source)
        elif kind == Kind.COMMAND:
            return commands.run(self.tenure, envelope, after, count)
        elif kind == Kind.CREDIT:
            self.tenure.credit.hear(envelope)
        elif kind == Kind.REPORT:
            self.tenure.supervisor.hear(envelope)
        else:
            self.tenure.dead_letters.bury(envelope, "Undecodable", f"no such kind of message: {kind}")
        return None

    def _deliver_message(self, envelope: Envelope) -> None:
        to = envelope.to
        live = self._by_id.get(to) or self.lives.of(to)
        if self.closed and self.tenure.sightings.refuses(live, envelope):
            self._refuse(live, envelope)
            return
        if envelope.reply and self.refusals.refuses(live, envelope):
            return
        queue = live.queue
        queue.append(envelope)
        if len(queue) >= self._mailbox_messages_max or live.mail_bytes >= self._mailbox_bytes_max:
            if self._overflows(live, envelope):
                return
            if not envelope.topic:
                self.holding.filled(to, envelope.slot[:8])
        if envelope.id and self.tenure.remembering.is_full:
            self.holding.ids_filled(to, envelope)
        self.lives.readied[to] = live
        self.turns.draft.uncarried[to] = live

    def _overflows(self, live: Live, envelope: Envelope) -> bool:
        """Was this too much by far? Clients are stopped before they send more (see `holding`), partitions can't be; nor
        is a broadcast, or who publishes to a topic. A job that runs will get to it: what its senders had on their way
        while nobody owned it is no reason to refuse anything."""
        can_be_stopped = not envelope.topic and not is_partition_sender(envelope.slot[:8])
        if can_be_stopped or not self.holding.is_over(live, HARD, HARD_BYTES):
            return False
        if self.holding.refusal(live) is None and not self.holding.is_over(live, HARD, FLOOD_BYTES):
            return False
        live.queue.pop()
        self.tenure.dead_letters.keep(envelope, "MailboxFull", f"{len(live.queue)} messages wait for this job")
        return True

    def _refuse(self, live: Live, envelope: Envelope) -> None:
        detail = f"the application of job {live.id!r} is being shut down"
        self.tenure.dead_letters.keep(envelope, "ApplicationClosed", detail)
        self.lives.ready(live)  # to be forgotten

    def _ask_state(self, envelope: Envelope) -> None:
        live = self.lives.of(envelope.to)
        if live.exists() and (not live.queue or not live.may_run()):
            self.turns.draft.answer_state(live, envelope)
            return
        # Behind what was sent before; or its definition must be looked up first.
        live.queue.append(envelope)
        self.turns.draft.uncarried[live.id] = live
        self.lives.ready(live)

    def _fan_out(self, envelope: Envelope, after: str, count: int) -> "Left | None":
        """To every subscriber. Where there are too many for one record, in the order of their ids: who comes or goes
        meanwhile gets it or not, and nobody twice."""
        subscribers = self.subscribers(envelope.to)
        jobs: Iterable[str] = subscribers
        draft, partition_of = self.turns.draft, self.host.partition_of
        each = ENVELOPE_BYTES + len(envelope.body) + len(envelope.id) + len(envelope.to) + TYPICAL_ID
        if after or each * len(subscribers) > self._budget.taken_bytes - draft.size() or self.tenure.outbox_is_full():
            ordered = self._in_order(envelope.to, subscribers)
            jobs = islice(ordered, bisect_right(ordered, after), None)
            limit = self._steps()
        else:
            limit = None
        for job in jobs:
            if limit is not None and limit(envelope):
                return after, count
            sent = Envelope(job, envelope.body.copy(), Kind.MESSAGE, envelope.id, 0, envelope.source, topic=envelope.to)
            draft.send(sent, partition_of(job))
            after, count = job, count + 1
        draft.answer_value(envelope, None)
        return None

    def _steps(self) -> "Callable[[Envelope], bool]":
        """Asked before each copy of a message that is for many: must the rest wait? The first always goes, if there is
        room in the outbox."""
        n = 0

        def must_wait(envelope: Envelope) -> bool:
            nonlocal n
            n += 1
            if n % COPIES_A_LOOK != 1 and len(envelope.body) < LARGE_BYTES:
                return False
            if envelope.kind == Kind.TOPIC and self.tenure.outbox_is_full():
                self._for_room[envelope.slot[:8]] = None  # its sender
                return True
            return n > 1 and self.must_end()

        return must_wait

    def _in_order(self, topic: str, jobs: Iterable[str]) -> list[str]:
        """Kept from one record to the next, as long as nobody comes or goes."""
        ordered = self._ordered.get(topic)
        if ordered is None:
            self._ordered.clear()
            ordered = self._ordered[topic] = sorted(jobs)
        return ordered

    def subscribers(self, topic: str) -> dict[str, None]:
        jobs = self.state.subscribers.get(topic, {})
        if all(changed != topic for changed, _, _ in self.turns.draft.subscribed):
            return jobs
        jobs = dict(jobs)
        for changed, job, wanted in self.turns.draft.subscribed:
            if changed == topic:
                if wanted:
                    jobs[job] = None
                else:
                    jobs.pop(job, None)
        return jobs

    def _to_type(self, envelope: Envelope, after: str, count: int) -> "Left | None":
        """To every job of a type that is here, in the order of their ids."""
        ids = {id for id, record in self.state.jobs.items() if record.type == envelope.to}
        ids |= {id for id, live in self._by_id.items() if live.type_name == envelope.to}
        ids -= {id for id, live in self._by_id.items() if live.type_name != envelope.to}
        ids |= set(self.tenure.definitions.about_to_be(envelope.to))
        must_wait, each = self._steps(), envelope_bytes(envelope) + MAILED_BYTES
        for id in sorted(id for id in ids if id > after):
            if must_wait(envelope):
                return after, count
            self.deliver(
                Envelope(
                    id,
                    envelope.body,
                    Kind.MESSAGE,
                    envelope.id,
                    0,
                    envelope.source,
                    envelope.slot,
                    envelope.index,
                    topic="*",
                    origin=envelope.origin,
                )
            )
            self.turns.draft.other_bytes += each
            after, count = id, count + 1
        self.turns.draft.answer_value(envelope, count)
        return None
