"""A snapshot as lines for people and other programs: jobs, topics, dead letters, and what was on its way."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw

from tenure.scheduler.commands import shown
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.image import Extras
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.form import Part, RawBucket
from tenure.scheduler.snapshots.rehash import type_of
from tenure.scheduler.snapshots.stragglers import deliver
from tenure.scheduler.turnid import EVENTS
from tenure.scheduler.wire import Definition, Envelope, JobRecord, decode

__all__ = ["lines"]

_decode_record = msgspec.msgpack.Decoder(JobRecord).decode


async def lines(catalog: Catalog, name: str = "") -> AsyncIterator[dict[str, Any]]:
    """Everything in it, each with its `kind`. Raises `SnapshotDamaged`."""
    manifest = await catalog.read(name)
    for partition in range(manifest.partition_count):
        part = await catalog.part(manifest.parts[partition])
        jobs: dict[str, Raw] = {}
        async for bucket in catalog.buckets(part):
            for id in sorted(bucket.jobs.keys() | bucket.definitions.keys() | bucket.extras.keys()):
                if (line := _job(id, bucket)) is not None:
                    yield line
            if part.stragglers:
                jobs |= bucket.jobs
        for line in _rest(part, jobs, manifest.taken_ms):
            yield line


def _job(id: str, bucket: RawBucket) -> dict[str, Any] | None:
    definition = _definition(bucket.definitions.get(id))
    extras = bucket.extras.get(id, Extras())
    if bucket.place:  # very much waits for it: lines of their own follow that of the job
        more = [_message(envelope) for envelope in extras.mail]
        return {"kind": "waiting", "id": id, "place": bucket.place, "waiting": more} if more else None
    line: dict[str, Any] = {"kind": "job", "id": id}
    if id in bucket.jobs:
        line |= _record(_decode_record(bucket.jobs[id]))
    elif definition is not None and definition.wanted != "removed":
        line |= {"type": definition.type, "version": definition.version, "status": "not started"}
    elif not extras.mail:
        return None  # a tombstone
    if definition is not None and definition.wanted != "removed":
        line["parameters"] = shown(definition.parameters)
    line["waiting"] = [_message(envelope) for envelope in extras.mail]
    return line


def _definition(stored: bytes | None) -> Definition | None:
    try:
        return decode(stored, Definition) if stored is not None else None
    except (Undecodable, UnreadableFormat):
        return None


def _record(record: JobRecord) -> dict[str, Any]:
    timer = record.timer
    return {
        "type": record.type,
        "version": record.version,
        "application": record.application,
        "generation": record.generation,
        "status": record.status,
        "turns": record.turns,
        "state": shown(record.state),
        "timer": msgspec.structs.asdict(timer) if timer is not None and timer.first_ms() else None,
        "failure": record.failure.error if record.failure is not None else None,
        "topics": list(record.topics),
        "activities": [activity.name for activity in record.activities if not activity.has_ended],
    }


def _rest(part: Part, jobs: dict[str, Raw], at_ms: int) -> list[dict[str, Any]]:
    subscribers = {topic: dict.fromkeys(ids) for topic, ids in part.subscribers.items()}
    delivered = deliver(
        part.stragglers, subscribers, lambda name: [id for id, record in jobs.items() if type_of(record) == name], at_ms
    )
    on_the_way = [{"kind": "on_its_way", **_message(envelope)} for envelope in (*delivered.mail, *delivered.sent)]
    topics = [{"kind": "topic", "topic": topic, "subscribers": list(ids)} for topic, ids in subscribers.items()]
    letters = [
        {
            "kind": "dead_letter",
            **_message(letter.envelope),
            "reason": letter.reason,
            "detail": letter.detail,
            "at_ms": letter.at_ms,
        }
        for letter in (*part.dead, *delivered.undecodable)
    ]
    return [*on_the_way, *topics, *letters]


def _message(envelope: Envelope) -> dict[str, Any]:
    return {
        "to": envelope.to,
        "event": EVENTS.get(envelope.kind, "question"),
        "message": shown(envelope.body),
        "id": envelope.id,
        "source": envelope.source,
        "topic": envelope.topic,
    }
