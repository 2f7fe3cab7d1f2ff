"""The record under construction: what turns have done since the last freeze."""

from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.budget import JOB_BYTES, envelope_bytes, job_bytes
from tenure.scheduler.texts import storable
from tenure.scheduler.wire import Answer, Batch, DeadLetter, Envelope, Record, encode

if TYPE_CHECKING:
    from tenure.scheduler.live import Live
    from tenure.scheduler.state import PartitionState

__all__ = ["Begun", "Draft", "slots_of"]

SLOT_BYTES_MAX = 512 * 1024
EDIT_BYTES = 20
_encode = msgspec.msgpack.Encoder().encode
_body_of = attrgetter("body")


Begun = tuple[int, int, int, str, int]


class _Changed(dict[str, "Live"]):
    """Jobs whose records are to be written. One that changes again replaces itself."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sizes: dict[str, int] = {}

    def __setitem__(self, id: str, live: "Live") -> None:
        size, sizes = JOB_BYTES + len(id) + len(live.state), self._sizes
        if live.activities or live.failure is not None or live.topics or live.pickled:
            size = job_bytes(live)
        self.size_bytes += size - sizes.get(id, 0)
        sizes[id] = size
        dict.__setitem__(self, id, live)  # which needs not be looked for


class Draft:
    """Effects that will be committed together. Becomes a `Record` once, when the journal is free."""

    def __init__(self) -> None:
        self.changed = _Changed()
        self.other_bytes = 0
        """About so many besides those jobs and what is sent."""
        self.sent_bytes = 0
        self.begun: dict[bytes, Begun] = {}
        self.gone: dict[str, None] = {}
        self.cursors: dict[bytes, tuple[int, int]] = {}
        self.forgotten: dict[bytes, None] = {}
        """Senders whose cursors go, and who have not begun a lane since."""
        self.watermark = 0
        self.uncarried: dict[str, Live] = {}
        """Jobs whose queue may have entries that are not in the mailbox."""
        self.done: dict[str, int] = {}
        """job -> how many entries of its committed mailbox are done"""
        self.recounted: dict[str, Live] = {}
        """Jobs whose mailbox entries have new attempt counts."""
        self.uncounted: dict[str, int] = {}
        """Of these: up to where their counts may have been taken back."""
        self.edited: list[tuple[str, int, int, Envelope | None]] = []
        """See `Record`."""
        self.sends: dict[int, list[Envelope]] = {}
        self.answers: list[tuple[bytes, Answer]] = []
        self.remembered: dict[tuple[str, str], tuple[int, Answer | None]] = {}
        self.buried: list[DeadLetter] = []
        self.exhumed: list[int] = []
        self.letters_dropped = self.letters_expired = 0
        self.steps: list[tuple[str, str, str, bytes]] = []
        self.subscribed: list[tuple[str, str, bool]] = []
        self.generations = 0
        self.acted: dict[str, None] = {}
        """Jobs whose activities have changed."""
        self.consumed: list[bytes] = []
        """The keys of slots that may be deleted once this is committed."""
        self.wanted = False
        """Is there anything here that must be committed?"""
        self._is_committed = False
        self._committed: trio.Event | None = None

    @property
    def committed(self) -> trio.Event:
        """Set when it is. Few ask."""
        if self._committed is None:
            self._committed = trio.Event()
            if self._is_committed:
                self._committed.set()
        return self._committed

    def tell_committed(self) -> None:
        """It is."""
        self._is_committed = True
        if self._committed is not None:
            self._committed.set()

    def put_in(self, live: "Live", place: int, envelope: Envelope) -> None:
        """At this place of its queue, in the midst of what is carried."""
        self.edited.append((live.id, self.done.get(live.id, 0) + place, 0, envelope))
        live.carried += 1
        live.mail_bytes += len(envelope.body)
        self.other_bytes += len(live.id) + EDIT_BYTES
        if live.id in self.uncounted:
            self.uncounted[live.id] += 1

    def take_out(self, live: "Live", place: int, envelopes: list[Envelope]) -> None:
        """So many that follow each other in its queue, and are carried."""
        self.edited.append((live.id, self.done.get(live.id, 0) + place, len(envelopes), None))
        live.carried -= len(envelopes)
        live.mail_bytes -= sum(len(envelope.body) for envelope in envelopes)
        self.other_bytes += len(live.id) + EDIT_BYTES

    def uncount(self, live: "Live", keep: int) -> None:
        """Take back attempts that were counted ahead, but for the first so many, also in what is committed."""
        if live.precounted > keep:
            self.uncounted[live.id] = max(self.uncounted.get(live.id, 0), live.precounted)
            self.recounted[live.id] = live
            live.uncount(keep)

    def take(self, sender: bytes, lane: int, n: int) -> None:
        """This sender's lane is taken up to here."""
        self.cursors[sender] = lane, n
        if self.forgotten:
            self.forgotten.pop(sender, None)

    def forget(self, sender: bytes, cursor: tuple[int, int]) -> None:
        """This client's lane was proved to have ended."""
        self.cursors.pop(sender, None)
        self.forgotten[sender] = None
        self.watermark = max(self.watermark, cursor[0])

    def size(self) -> int:
        """About so many bytes will its record have."""
        return self.changed.size_bytes + self.other_bytes + self.sent_bytes

    def send(self, envelope: Envelope, partition: int) -> None:
        """To a job or topic of that partition, with the commit."""
        self.sends.setdefault(partition, []).append(envelope)
        self.sent_bytes += envelope_bytes(envelope)

    def answer(self, envelope: Envelope, answer: Answer) -> None:
        """With the commit, to the client that asked (if it did)."""
        if envelope.reply:
            self.other_bytes += 40 + len(answer.body)
            self.answers.append((envelope.slot[:8], Answer(envelope.reply, answer.ok, answer.body)))
            self.wanted = True

    def answer_error(self, envelope: Envelope, name: str, text: str) -> None:
        """Say no, by name."""
        self.answer(envelope, Answer(0, False, Raw(_encode([name, storable(text)]))))

    def answer_value(self, envelope: Envelope, value: Any) -> None:
        """Any value that MessagePack holds."""
        self.answer(envelope, Answer(0, True, Raw(_encode(value))))

    def answer_state(self, live: "Live", envelope: Envelope) -> None:
        """The state as this draft will commit it: a zombie's commit fails, and so it never answers."""
        self.answer_value(envelope, [live.type_name, live.version, Raw(live.state), live.status])

    def freeze(self, record: Record, state: "PartitionState", encode: Callable[[object], bytes] = encode) -> Record:
        """Fill the record. Queues count as carried from now on."""
        record.jobs = {id: live.record() for id, live in self.changed.items()}
        record.gone = list(self.gone)
        record.cursors, record.forgotten, record.watermark = self.cursors, list(self.forgotten), self.watermark
        record.unmailed, record.edited = self.done, self.edited
        for id, live in self.uncarried.items():
            if len(live.queue) > live.carried:
                record.mailed[id] = mail = list(islice(live.queue, live.carried, None))
                live.mail_bytes += sum(map(len, map(_body_of, mail)))
                live.carried = len(live.queue)
        for id, live in self.recounted.items():
            if live.carried:
                record.attempted[id] = _attempts(live, self.uncounted.get(id, 1))
        if self.sends:
            record.outbox = _numbered(self.sends, state, encode)
        record.answers, record.buried, record.exhumed = self.answers, self.buried, self.exhumed
        record.letters_lost = (self.letters_dropped, self.letters_expired)
        record.begun = self.begun
        record.remembered = [(job, id, until, answer) for (job, id), (until, answer) in self.remembered.items()]
        record.steps, record.subscribed = self.steps, self.subscribed
        record.generations = self.generations
        return record


def _attempts(live: "Live", least: int) -> list[int]:
    """At so many at least; what follows behind the last of these has none, and had none."""
    counts = [envelope.attempts for envelope in live.queue]
    while len(counts) > least and not counts[-1]:
        counts.pop()
    return counts


def _numbered(
    sends: dict[int, list[Envelope]], state: "PartitionState", encode: Callable[[object], bytes]
) -> list[tuple[int, int, bytes]]:
    """Cut into slots and numbered: from here on, these very bytes go into these very slots."""
    # A record that is a cut is before it: what it sends has the number of the cut before.
    return [
        (partition, state.numbered.get(partition, 0) + n, encode(Batch(batch, cut=state.cut)))
        for partition, envelopes in sends.items()
        for n, batch in enumerate(_cut(envelopes))
    ]


def _cut(envelopes: list[Envelope]) -> Iterator[list[Envelope]]:
    batch: list[Envelope] = []
    size_bytes = 0
    for envelope in envelopes:
        size_bytes += len(envelope.body) + 64
        if batch and size_bytes > SLOT_BYTES_MAX:
            yield batch
            batch, size_bytes = [], len(envelope.body)
        batch.append(envelope)
    yield batch


def slots_of(envelopes: list[Envelope]) -> int:
    """How many slots these become; more behind them change nothing of that, but for the last."""
    return sum(1 for _ in _cut(envelopes))
