"""From the parts of a snapshot to the partitions of another cluster. Pure, but for rests between slices.

Records stay bytes, as a job is the same in any partition. What was on its way becomes part of the mailboxes.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import trio
from msgspec import Raw
from msgspec.structs import replace

from tenure.scheduler.activities import lose, restored
from tenure.scheduler.activities_port import Outcome
from tenure.scheduler.activities_wire import ActivityEvent, ActivityStatus
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.image import Extras
from tenure.scheduler.keys import partition_of
from tenure.scheduler.snapshots.form import Part, RawBucket
from tenure.scheduler.snapshots.kept import Identity, identity
from tenure.scheduler.snapshots.stragglers import deliver
from tenure.scheduler.state import PartitionState
from tenure.scheduler.wire import DeadLetter, Definition, Envelope, JobRecord, Kind, decode

__all__ = ["Rehash", "Restored"]

SLICE = 256
"""So many jobs, or messages, are dealt with before others have their turn."""
_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(JobRecord).decode


class Restored:
    """One partition of the new cluster."""

    def __init__(self) -> None:
        self.jobs: dict[str, Raw] = {}
        self.definitions: dict[str, bytes] = {}
        self.extras: dict[str, Extras] = {}
        self.subscribers: dict[str, list[str]] = {}
        self.dead: list[DeadLetter] = []

    async def state(self, watermark: int, generations: int = 0) -> PartitionState:
        """As its journal would tell it. All its lanes are new; client lanes up to the watermark are of before, and so
        are those generations that are nobody's here."""
        state = PartitionState()
        jobs: Any = self.jobs  # bytes of records, which are only written
        state.jobs, state.watermark, state.generations = jobs, watermark, generations
        for n, (id, extras) in enumerate(self.extras.items()):
            for piece in extras.parts():
                piece.hang_on(state, id)
                if len(piece.remembered) + len(piece.mail) >= SLICE:
                    await trio.lowlevel.checkpoint()
            if n % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
        state.subscribers = {topic: dict.fromkeys(jobs) for topic, jobs in self.subscribers.items() if jobs}
        letters = sorted(self.dead, key=lambda letter: (letter.at_ms, letter.n))
        state.dead = {n: replace(letter, n=n) for n, letter in enumerate(letters, 1)}
        state.buried_count = len(letters)
        return state


class Rehash:
    """Takes parts one by one; gives the partitions that were selected."""

    def __init__(
        self,
        count: int,
        selected: Iterable[int],
        *,
        cluster: str,
        now_ms: int,
        former: str = "",
        former_count: int = 0,
    ) -> None:
        """`former`: the cluster that the snapshot is of; `former_count`: how many partitions it has."""
        self.count, self.cluster, self.now_ms, self.former = count, cluster, now_ms, former
        self.partitions = {partition: Restored() for partition in selected}
        self.former_count = former_count or count
        self.strays: set[Identity] = set()
        """Dead letters, also of partitions that are not selected, which lay in other partitions than that of their
        names: what nobody could read is called by its slot."""
        self._sent: list[Envelope] = []
        self._pieces: dict[str, dict[int, Extras]] = {}
        """Of what hangs on a job, where that was cut, in any order."""

    def add_bucket(self, bucket: RawBucket) -> None:
        """Some jobs."""
        partitions, count, crc = self.partitions, self.count, zlib.crc32
        for id, record in bucket.jobs.items():
            if (target := partitions.get(crc(id.encode()) % count)) is not None:
                target.jobs[id] = record
        for id, definition in bucket.definitions.items():
            if (target := partitions.get(crc(id.encode()) % count)) is not None:
                target.definitions[id] = definition
        for id, extras in bucket.extras.items():
            if (target := partitions.get(crc(id.encode()) % count)) is not None:
                if bucket.place:
                    self._pieces.setdefault(id, {})[bucket.place] = extras
                else:
                    target.extras[id] = extras
        for id in bucket.active:
            if (target := partitions.get(crc(id.encode()) % count)) is not None:
                self._begin_activities_anew(id, target)

    def _begin_activities_anew(self, id: str, target: Restored) -> None:
        record = _decode_record(target.jobs[id])
        activities = []
        for activity in record.activities:
            if activity.status != ActivityStatus.CANCELLING:
                activities.append(restored(id, record.generation, activity, cluster=self.cluster, now_ms=self.now_ms))
                continue
            change = lose(activity, Outcome(status="failed"), self.now_ms)
            activities.append(change.activity)
            if change.event is not None:
                self._tell_end(id, change.event, activity.said, target)
        target.jobs[id] = Raw(_encode(replace(record, activities=tuple(activities))))

    def _tell_end(self, id: str, event: ActivityEvent, said: int, target: Restored) -> None:
        which = f"{event.id}.{event.attempt}.{event.status}.{said}"
        envelope = Envelope(id, Raw(_encode(event)), Kind.ACTIVITY, source=which, origin=self.cluster)
        mail = target.extras.setdefault(id, Extras()).mail
        # Whoever is to stop hears of it before.
        mail.insert(0 if mail and mail[0].kind == Kind.STOP else len(mail), envelope)

    def add_rest(self, part: Part, jobs_of_type: Callable[[str], list[str]]) -> None:
        """What a part has besides its buckets, after all of these."""
        subscribers = {topic: dict.fromkeys(jobs) for topic, jobs in part.subscribers.items()}
        delivered = deliver(part.stragglers, subscribers, jobs_of_type, self.now_ms, self.former)
        for topic, jobs in subscribers.items():
            if (target := self.partitions.get(partition_of(topic, self.count))) is not None:
                target.subscribers[topic] = list(jobs)
        for letter in (*part.dead, *delivered.undecodable):
            if partition_of(letter.envelope.to, self.former_count) != part.partition:
                self.strays.add(identity(letter.envelope))
            if (target := self.partitions.get(partition_of(letter.envelope.to, self.count))) is not None:
                target.dead.append(letter)
        self._post(delivered.mail)
        self._sent += delivered.sent

    def finish(self) -> dict[int, Restored]:
        """All parts are added."""
        for id, pieces in self._pieces.items():
            self._put_together(self.partitions[partition_of(id, self.count)], id, pieces)
        self._pieces = {}
        self._post(self._sent)
        self._sent = []
        return self.partitions

    def _put_together(self, target: Restored, id: str, pieces: dict[int, Extras]) -> None:
        whole, came = Extras([], {}, []), target.extras.pop(id, Extras())
        for place in sorted(pieces):
            whole.mail += pieces[place].mail
            whole.remembered |= pieces[place].remembered
            whole.steps += pieces[place].steps
        if whole.mail and whole.mail[0].kind == Kind.STOP:  # see `_tell_end`
            whole.mail[:0] = (envelope for envelope in came.mail if envelope.kind == Kind.ACTIVITY)
            came.mail = [envelope for envelope in came.mail if envelope.kind != Kind.ACTIVITY]
        whole.mail += came.mail
        target.extras[id] = whole

    def _post(self, mail: list[Envelope]) -> None:
        for envelope in mail:
            if (target := self.partitions.get(partition_of(envelope.to, self.count))) is not None:
                target.extras.setdefault(envelope.to, Extras()).mail.append(envelope)


def type_of(record: Raw) -> str:
    """The job type of a record's bytes."""
    return _decode_record(record).type


def is_wanted(definition: bytes) -> bool:
    """Is this the definition of a job, not of one that was removed? Of one that can't be read nobody knows that."""
    try:
        return decode(definition, Definition).wanted != "removed"
    except (Undecodable, UnreadableFormat):
        return True
