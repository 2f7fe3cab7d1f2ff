"""Taking what lanes hold, and handing each message to whom it is for: a job's queue, a topic's subscribers, the
partition itself."""

from typing import TYPE_CHECKING

import trio
from msgspec import Raw, msgpack

from tenure.scheduler import commands
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.holding import HARD, OVERFLOW
from tenure.scheduler.inlanes import InLanes, Slot
from tenure.scheduler.journal import TenureOver
from tenure.scheduler.keys import is_partition_sender
from tenure.scheduler.live import Live
from tenure.scheduler.refusals import Refusals
from tenure.scheduler.wire import Batch, Envelope, Kind, decode

if TYPE_CHECKING:
    from tenure.scheduler.sightings import Closed
    from tenure.scheduler.tenure import Tenure
    from tenure.scheduler.turns import Turns

__all__ = ["Taking"]

GAP_PATIENCE_S = 0.01


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
        self._slots = self._messages = 0
        """Taken so far."""

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
        """Take what is next in each lane, up to a group."""
        lanes, draft, heard = self.inlanes, self.turns.draft, self.tenure.forgetting.heard
        cutting, holding, origin = self.tenure.cutting, self.holding, self.host.origin()
        messages = size_bytes = 0
        senders, lanes.fresh = lanes.fresh, {}
        last: bytes | None = None
        for sender in senders:
            while messages < self.settings.group_messages_max and size_bytes < self.settings.group_bytes_max:
                slot = lanes.next_slot(sender)
                if slot is None:
                    break
                read = self._read(slot)
                if read.cut > self.state.cut:
                    cutting.await_cut(sender, read.cut)
                    break
                if (holding.full or holding.letters_full) and not is_partition_sender(sender) and holding.stops(read):
                    self._held_back[sender] = None
                    break
                lanes.take(slot)
                if cutting.records:
                    cutting.taken(slot, read.cut)
                draft.take(sender, slot.lane, slot.n + 1)
                draft.consumed.append(slot.key)
                draft.wanted = True
                heard(sender)
                messages += len(batch := read.envelopes)
                self._slots += 1
                size_bytes += len(slot.value)
                index = 0
                try:
                    for index, envelope in enumerate(batch):
                        envelope.slot, envelope.index, envelope.origin = slot.key, index, origin
                        self.deliver(envelope)
                except Exception as error:
                    error.add_note(f"slot {slot.key.hex()}, message {index}: {slot.value[:512].hex()}")
                    raise
            else:
                if last is None:
                    last = sender
                else:
                    lanes.fresh[sender] = None
        self._messages += messages
        if last is not None:
            lanes.fresh[last] = None  # whoever was served goes to the end
            self.tenure.wake()
        self._mind_gaps()
        if lanes.outlived:
            self.host.grid.discard(Map.INBOX, self.partition, lanes.outlived)
            lanes.outlived = []
        if self.holding.has_news():
            self.holding.tell()

    def _read(self, slot: Slot) -> Batch:
        try:
            return decode(slot.value, Batch)
        except (Undecodable, UnreadableFormat) as error:
            if isinstance(error, UnreadableFormat) and self.host.formats.is_another_ones(error.format):
                # Not taken: it keeps its place until a node that reads it has this partition.
                self.host.unfit[self.partition] = f"{error} ({self.host.formats.who_reads(error.format)})"
                raise TenureOver(f"partition {self.partition}: {error}") from error
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

    def deliver(self, envelope: Envelope) -> None:
        """One message that was taken, to whom it is for."""
        kind = envelope.kind
        if kind == Kind.MESSAGE:
            live = self._by_id.get(envelope.to) or self.lives.of(envelope.to)
            if self.closed and self.tenure.sightings.refuses(live, envelope):
                self._refuse(live, envelope)
                return
            if envelope.reply and self.refusals.refuses(live, envelope):
                return
            live.queue.append(envelope)
            if len(live.queue) >= self._mailbox_messages_max or live.mail_bytes >= self._mailbox_bytes_max:
                if self._overflows(live, envelope):
                    return
                if not envelope.topic:
                    self.holding.filled(live.id, envelope.slot[:8])
            self.lives.readied[live.id] = live
            self.turns.draft.uncarried[live.id] = live
        elif kind == Kind.STATE:
            self._ask_state(envelope)
        elif kind == Kind.TOPIC:
            self._fan_out(envelope)
        elif kind == Kind.TYPE:
            self._to_type(envelope)
        elif kind == Kind.SUBSCRIBE:
            wanted = commands.body_of(envelope) is True
            self.turns.draft.subscribed.append((envelope.to, envelope.source, wanted))
            if wanted:
                self.tenure.subscribing.came(envelope.to, envelope.source)
        elif kind == Kind.COMMAND:
            commands.run(self.tenure, envelope)
        elif kind == Kind.CREDIT:
            self.tenure.credit.hear(envelope)
        elif kind == Kind.REPORT:
            self.tenure.supervisor.hear(envelope)
        else:
            self.tenure.dead_letters.bury(envelope, "Undecodable", f"no such kind of message: {kind}")

    def _overflows(self, live: Live, envelope: Envelope) -> bool:
        """Was this too much by far? Clients are stopped before they send more (see `holding`), partitions can't be; nor
        is a broadcast, or who publishes to a topic. A job that runs will get to it: what its senders had on their way
        while nobody owned it is no reason to refuse anything."""
        can_be_stopped = not envelope.topic and not is_partition_sender(envelope.slot[:8])
        if can_be_stopped or not self.holding.is_over(live, HARD):
            return False
        if self.holding.refusal(live) is None and not self.holding.is_over(live, OVERFLOW):
            return False
        live.queue.pop()
        envelope.topic = ""  # it is kept, also where it was for all subscribers of a topic
        self.tenure.dead_letters.bury(envelope, "MailboxFull", f"{len(live.queue)} messages wait for this job")
        return True

    def _refuse(self, live: Live, envelope: Envelope) -> None:
        envelope.topic = ""  # it is kept, also where it was for all subscribers of a topic
        detail = f"the application of job {live.id!r} is being shut down"
        self.tenure.dead_letters.bury(envelope, "ApplicationClosed", detail)
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

    def _fan_out(self, envelope: Envelope) -> None:
        for job in self.subscribers(envelope.to):
            sent = Envelope(job, envelope.body.copy(), Kind.MESSAGE, envelope.id, 0, envelope.source, topic=envelope.to)
            self.turns.draft.sends.setdefault(self.host.partition_of(job), []).append(sent)
        self.turns.draft.answer_value(envelope, None)

    def subscribers(self, topic: str) -> list[str]:
        jobs = dict(self.state.subscribers.get(topic, {}))
        for changed, job, wanted in self.turns.draft.subscribed:
            if changed == topic:
                if wanted:
                    jobs[job] = None
                else:
                    jobs.pop(job, None)
        return list(jobs)

    def _to_type(self, envelope: Envelope) -> None:
        ids = {id for id, record in self.state.jobs.items() if record.type == envelope.to}
        ids |= {id for id, live in self._by_id.items() if live.type_name == envelope.to}
        ids -= {id for id, live in self._by_id.items() if live.type_name != envelope.to}
        ids |= set(self.tenure.definitions.about_to_be(envelope.to))
        for id in sorted(ids):
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
        self.turns.draft.answer_value(envelope, len(ids))
