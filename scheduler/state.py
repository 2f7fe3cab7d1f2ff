"""A partition's whole state, as its journal tells it. Pure: records in, state out; no grid, no clock.

The owner's memory and a successor's replay are the same function of the same records, so whatever
was committed is there after a handoff, and whatever was not, is not.
"""

from collections import deque
from collections.abc import Iterable
from itertools import groupby, islice, takewhile
from operator import itemgetter
from typing import Any
from weakref import WeakSet

from tenure.scheduler.turnid import step_turn
from tenure.scheduler.wire import Answer, DeadLetter, Envelope, JobRecord, Record, RecordKind

__all__ = ["PartitionState", "Remembered", "remembered_bytes"]

Remembered = tuple[int, Answer | None]
FORGOTTEN_AT_ONCE = 10_000


class PartitionState:
    """Everything that is committed in one partition."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.mail: dict[str, deque[Envelope]] = {}
        """Messages that were read and whose turns have not finished, oldest first."""
        self.cursors: dict[bytes, tuple[int, int]] = {}
        """sender -> (its lane, the next slot that has not been taken)"""
        self.begun: dict[bytes, tuple[int, int, int, str, int]] = {}
        """sender -> how far its next slot has been dealt with (see `Record`)"""
        self.watermark = 0
        """Client lanes born at or before this, and not in `cursors`, are dead."""
        self.outbox: dict[int, deque[tuple[int, bytes]]] = {}
        """partition -> (slot number, its bytes), not known to be stored"""
        self.numbered: dict[int, int] = {}
        """partition -> the number of the next slot of our lane to it"""
        self.answers: dict[tuple[bytes, int], Answer] = {}
        """Not known to have reached their clients' maps."""
        self.remembered: dict[str, dict[str, Remembered]] = {}
        self.remembered_count = self.remembered_bytes = 0
        self.dead: dict[int, DeadLetter] = {}
        self.buried_count = 0
        self.letters_lost = (0, 0)
        """Dead letters that were dropped, and that have expired, in all."""
        self.steps: dict[str, dict[tuple[str, str], bytes]] = {}
        """job -> (turn, name) -> result of a finished `once` step"""
        self.subscribers: dict[str, dict[str, None]] = {}
        """topic -> jobs, in the order in which they came"""
        self.cut = 0
        """The last snapshot for which this partition has committed its cut."""
        self.generations = 0
        """Jobs of up to this generation may have been forgotten: none of them is given again."""

        self.epoch = 0
        self.owner = ""
        self.last_id = ""
        self.closed_for: str | None = None
        """If the last record is a closing: the successor that it names ('' for anyone)."""
        self.next_slot = 0
        self.frozen: WeakSet[Any] = WeakSet()
        """What holds the state at an earlier position (see `image`): told of each job before what it has changes."""

    def apply(self, record: Record, slot: int) -> None:
        """Add one committed record, which stands in `slot`."""
        if self.frozen:
            self._about_to_change(record)
        self.last_id, self.next_slot = record.id, slot + 1
        self.closed_for = record.successor if record.kind == RecordKind.CLOSING else None
        if record.kind == RecordKind.OPENING:
            self.epoch, self.owner = record.epoch, record.node
        self._apply_mail(record)
        # A record is a bag of tables. What it takes away comes first: what it has besides came after that.
        for id in record.gone:
            self._forget(id, self.remembered.pop(id, {}))
            for table in (self.jobs, self.steps):
                table.pop(id, None)
        self.jobs.update(record.jobs)
        for job, turn, name, result in record.steps:
            if job in self.jobs:
                self.steps.setdefault(job, {})[turn, name] = result
        if self.begun:
            for sender in record.cursors:
                self.begun.pop(sender, None)
        self.begun.update(record.begun)
        for sender in record.forgotten:
            self.cursors.pop(sender, None)
        self.cursors.update(record.cursors)
        self.watermark = max(self.watermark, record.watermark)
        self._apply_sent(record)
        for job, id, until_ms, answer in record.remembered:
            self.remember(job, id, until_ms, answer)
        for letter in record.buried:
            self.dead[letter.n] = letter
            self.buried_count = max(self.buried_count, letter.n)
        for n in record.exhumed:
            self.dead.pop(n, None)
        if record.letters_lost != (0, 0):
            dropped, expired = record.letters_lost
            self.letters_lost = (self.letters_lost[0] + dropped, self.letters_lost[1] + expired)
        self.cut = max(self.cut, record.cut)
        self.generations = max(self.generations, record.generations)
        for topic, job, wanted in record.subscribed:
            jobs = self.subscribers.setdefault(topic, {})
            if wanted:
                jobs[job] = None
            else:
                jobs.pop(job, None)
            if not jobs:
                del self.subscribers[topic]

    def _about_to_change(self, record: Record) -> None:
        jobs = dict.fromkeys((*record.mailed, *record.unmailed, *record.attempted, *record.gone))
        for rows in (record.edited, record.remembered, record.steps):
            jobs.update((row[0], None) for row in rows)
        for frozen in self.frozen:
            for job in jobs:
                frozen.copied(job)

    def _apply_mail(self, record: Record) -> None:
        for job, edits in groupby(record.edited, key=itemgetter(0)):
            self._edit_mail(job, edits)
        for job, envelopes in record.mailed.items():
            self.mail.setdefault(job, deque()).extend(envelopes)
        for job, count in record.unmailed.items():
            box = self.mail[job]
            done = [box.popleft() for _ in range(count)]
            if not box:
                del self.mail[job]
            if job in self.steps:
                self._drop_steps(job, done)
        for job, attempts in record.attempted.items():
            for envelope, count in zip(self.mail[job], attempts, strict=False):
                envelope.attempts = count

    def _edit_mail(self, job: str, edits: Iterable[tuple[str, int, int, Envelope | None]]) -> None:
        box, out = list(self.mail[job]), []
        for _, at, count, envelope in edits:
            if envelope is not None:
                box.insert(at, envelope)
            else:
                out += box[at : at + count]
                del box[at : at + count]
        if box:
            self.mail[job] = deque(box)
        else:
            del self.mail[job]
        if out and job in self.steps:
            self._drop_steps(job, out)

    def _drop_steps(self, job: str, done: list[Envelope]) -> None:
        record = self.jobs.get(job)
        over = {step_turn(job, record.generation, envelope) for envelope in done} if record is not None else set()
        steps = {key: result for key, result in self.steps[job].items() if key[0] not in over}
        if steps:
            self.steps[job] = steps
        else:
            del self.steps[job]

    def _apply_sent(self, record: Record) -> None:
        for partition, n, slot in record.outbox:
            self.outbox.setdefault(partition, deque()).append((n, slot))
            self.numbered[partition] = n + 1
        for partition, below in record.arrived.items():
            waiting = self.outbox.get(partition)
            while waiting and waiting[0][0] < below:
                waiting.popleft()
            if waiting is not None and not waiting:
                del self.outbox[partition]
        for client, answer in record.answers:
            self.answers[client, answer.n] = answer
        for key in record.answered:
            self.answers.pop(key, None)

    def remember(self, job: str, id: str, until_ms: int, answer: Answer | None) -> None:
        """That this job has had a message of this id. In the table, what was remembered last comes last."""
        known = self.remembered.setdefault(job, {})
        if (before := known.pop(id, None)) is not None:
            self._forget(job, {id: before})
        known[id] = (until_ms, answer)
        self.remembered_count += 1
        self.remembered_bytes += remembered_bytes(job, id, answer)

    def _forget(self, job: str, ids: dict[str, Remembered]) -> None:
        self.remembered_count -= len(ids)
        self.remembered_bytes -= sum(remembered_bytes(job, id, answer) for id, (_, answer) in ids.items())

    def forget_expired(self, job: str, now_ms: int) -> bool:
        """Drop remembered ids of a job whose time is over; False: there may be more of them. Not journaled: a replay
        brings them back, expired as before.

        The oldest come first; one that is kept for longer than those behind it is looked at when its time comes.
        """
        known = self.remembered.get(job, {})
        oldest = takewhile(lambda one: one[1][0] <= now_ms, known.items()) if job else _over(known, now_ms)
        over = dict(islice(oldest, FORGOTTEN_AT_ONCE))
        if over:
            for frozen in self.frozen:
                frozen.copied(job)
            self._forget(job, over)
            for id in over:
                del known[id]
        if not known:
            self.remembered.pop(job, None)
        return len(over) < FORGOTTEN_AT_ONCE

    def meta(self) -> dict[str, Any]:
        """All but the jobs and what hangs on each of them, for an image."""
        return {
            "cursors": self.cursors,
            "watermark": self.watermark,
            "outbox": {partition: list(slots) for partition, slots in self.outbox.items()},
            "numbered": self.numbered,
            "answers": [(client, answer) for (client, _), answer in self.answers.items()],
            "dead": list(self.dead.values()),
            "buried_count": self.buried_count,
            "letters_lost": self.letters_lost,
            "subscribers": {topic: list(jobs) for topic, jobs in self.subscribers.items()},
            "epoch": self.epoch,
            "owner": self.owner,
            "last_id": self.last_id,
            "closed_for": self.closed_for,
            "next_slot": self.next_slot,
            "cut": self.cut,
            "generations": self.generations,
            "begun": self.begun,
        }


def remembered_bytes(job: str, id: str, answer: Answer | None) -> int:
    """About so many does it have in an image."""
    return 24 + len(job) + len(id) + (0 if answer is None else len(answer.body))


def _over(known: dict[str, Remembered], now_ms: int) -> list[tuple[str, Remembered]]:
    return [(id, one) for id, one in known.items() if one[0] <= now_ms]
