"""What a snapshot is made of, and how it becomes the partitions of another cluster."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure.scheduler.activities import begin
from tenure.scheduler.activities_wire import ActivityEvent, ActivityPolicy, ActivityStatus
from tenure.scheduler.definitions import removed
from tenure.scheduler.image import Extras
from tenure.scheduler.keys import partition_of, partition_sender, slot_key
from tenure.scheduler.snapshots.coordinator import channels_of
from tenure.scheduler.snapshots.errors import SnapshotDamaged
from tenure.scheduler.snapshots.form import (
    Bucket,
    Manifest,
    Part,
    PartRef,
    RawBucket,
    bucket_count,
    bucket_of,
    compressed,
    digest_of,
    manifest_bytes,
    read_manifest,
    unpack,
)
from tenure.scheduler.snapshots.kept import identity
from tenure.scheduler.snapshots.rehash import Rehash, is_wanted
from tenure.scheduler.snapshots.request import Cut
from tenure.scheduler.snapshots.stragglers import deliver, on_the_way
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import Batch, DeadLetter, Definition, Envelope, JobRecord, Kind, Status, encode

NOW = 1_000_000
CLIENT = b"\x07client!"


def record(type: str = "t", **changes: Any) -> JobRecord:
    return replace(JobRecord(type, 1, 1, 1, Status.RUNNING, b"\x80"), **changes)


def raw(bucket: Bucket) -> RawBucket:
    content = encode(bucket)
    return unpack(compressed(content), RawBucket, digest_of(content), "it")


def part(**changes: Any) -> Part:
    return Part(**{**empty_part(), **changes})


def empty_part() -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in ("buckets", "packs", "dead", "stragglers")}
    return {"partition": 0, "jobs": 0, "subscribers": {}, "numbered": {}, "cursors": {}, **lists}


def slot(sender: bytes, n: int, *envelopes: Envelope) -> tuple[bytes, bytes]:
    return slot_key(sender, 1, n), encode(Batch(list(envelopes)))


def body(value: Any) -> Raw:
    return Raw(msgspec.msgpack.encode(value))


def test_a_manifest_is_known_by_its_checksum() -> None:
    manifest = Manifest("n", 1, "f", 1, 2, [PartRef("p", "00")], 3, 4, 5, 0.5)
    stored = manifest_bytes(manifest)
    assert replace(read_manifest(stored, "n"), checksum="") == manifest
    for changed in (stored.replace(b'"jobs": 3', b'"jobs": 4'), stored[:-20], b"", stored.replace(b'"f"', b'"g"')):
        with pytest.raises(SnapshotDamaged):
            read_manifest(changed, "n")
    later = manifest_bytes(replace(manifest, format=2))
    with pytest.raises(SnapshotDamaged, match="format 2"):
        read_manifest(later, "n")


def test_buckets_are_found_by_what_is_left_of_the_hash() -> None:
    assert [bucket_count(jobs) for jobs in (0, 31, 32, 3700)] == [1, 1, 2, 128]
    ids = [f"job-{n}" for n in range(20_000)]
    mine = [id for id in ids if partition_of(id, 7) == 3]
    filled = [bucket_of(id, 7, 64) for id in mine]
    assert len(set(filled)) == 64
    assert max(filled.count(n) for n in range(64)) < 3 * len(mine) / 64


def test_what_is_on_its_way_is_what_was_numbered_and_not_taken() -> None:
    cuts = {
        0: Cut(1, numbered={1: 5, 0: 2}, cursors={0: 2, 1: 9}),
        1: Cut(1, numbered={0: 9}, cursors={0: 3}),
    }
    assert channels_of(cuts) == {1: {0: 5}}
    stragglers = [slot(partition_sender(0), 3), slot(CLIENT, 7), slot(partition_sender(0), 4)]
    assert on_the_way(part(stragglers=stragglers)) == {0: [3, 4]}


def test_stragglers_become_mail_in_their_order() -> None:
    subscribers = {"news": {"a": None}}
    stragglers = [
        slot(CLIENT, 0, Envelope("x", body(1), id="once", reply=7), Envelope("news", body(2), Kind.TOPIC)),
        slot(partition_sender(4), 1, Envelope("news", body(True), Kind.SUBSCRIBE, source="b")),
        slot(partition_sender(4), 2, Envelope("news", body(3), Kind.TOPIC), Envelope("typed", body(4), Kind.TYPE)),
        slot(partition_sender(4), 3, Envelope("news", body(False), Kind.SUBSCRIBE, source="a")),
        slot(CLIENT, 1, Envelope("x", body("?"), Kind.STATE, reply=8), Envelope("", body({}), Kind.COMMAND, reply=9)),
        slot(CLIENT, 2, Envelope("x", body(5))),
        (slot_key(CLIENT, 1, 3), b"\x01\x00nonsense"),
    ]
    found = deliver(stragglers, subscribers, lambda name: ["p", "q"] if name == "typed" else [], NOW, "before")
    assert [(e.to, e.body, e.topic) for e in found.mail] == [
        ("x", body(1), ""),
        ("p", body(4), "*"),
        ("q", body(4), "*"),
        ("x", body(5), ""),
    ]
    assert [(e.to, e.body, e.topic) for e in found.sent] == [
        ("a", body(2), "news"),
        ("a", body(3), "news"),
        ("b", body(3), "news"),
    ]
    assert subscribers == {"news": {"b": None}}
    assert [letter.reason for letter in found.undecodable] == ["Undecodable"]
    assert (found.mail[0].id, found.mail[0].reply) == ("once", 0)
    # Each has a turn id of its own, as it would have had.
    assert {envelope.origin for envelope in (*found.mail, *found.sent)} == {"before"}
    turns = [turn_id(e.to, 1, e) for e in (*found.mail, *found.sent)]
    assert len(set(turns)) == len(turns)
    same = Envelope("a", body(0), slot=slot_key(CLIENT, 1, 0), index=1)
    assert turn_id("a", 1, same) not in turns


def test_letters_that_lie_in_another_partition_than_that_of_their_name_are_known() -> None:
    """What nobody could read is called by its slot, and lies where it came in."""
    names = [f"job-{n}" for n in range(20)]
    here = partition_of(names[0], 3)
    letters = [DeadLetter(n, Envelope(name, slot=bytes([n]) * 24), "r", "", 0) for n, name in enumerate(names)]
    rehash = Rehash(7, range(7), cluster="c", now_ms=NOW, former_count=3)
    rehash.add_rest(part(partition=here, dead=letters), lambda name: [])
    strays = [letter.envelope for letter in letters if partition_of(letter.envelope.to, 3) != here]
    assert 0 < len(strays) < len(letters)
    assert rehash.strays == {identity(envelope) for envelope in strays}
    assert sum(len(found.dead) for found in rehash.finish().values()) == len(letters)


def test_definitions_of_jobs_are_told_from_tombstones() -> None:
    definition = Definition("t", body({}), 1, 1, "running")
    assert is_wanted(encode(definition))
    assert not is_wanted(encode(removed(definition, NOW)))
    assert is_wanted(b"\x01\x00nonsense"), "nobody knows"


async def test_each_job_comes_to_its_partition_with_all_that_it_has() -> None:
    ids = [f"job-{n}" for n in range(50)]
    bucket = Bucket({}, {}, {}, [])
    for id in ids:
        bucket.jobs[id] = record()
        bucket.definitions[id] = b"definition"
    bucket.extras["job-7"] = Extras([Envelope("job-7", body("first"))], {"order": (9, None)}, [("turn", "step", b"1")])
    rehash = Rehash(3, range(3), cluster="c", now_ms=NOW)
    rehash.add_bucket(raw(bucket))
    letters = [DeadLetter(n, Envelope("job-9"), "r", "", at) for n, at in ((8, 50), (3, 20))]
    stragglers = [slot(CLIENT, 0, Envelope("job-7", body("second")), Envelope("t", body("third"), Kind.TOPIC))]
    rehash.add_rest(part(subscribers={"t": ["job-7"]}, dead=letters, stragglers=stragglers), lambda name: [])
    found = rehash.finish()
    assert sorted(id for restored in found.values() for id in restored.jobs) == sorted(ids)
    for partition, restored in found.items():
        assert {partition_of(id, 3) for id in (*restored.jobs, *restored.definitions)} == {partition}
    state = await found[partition_of("job-7", 3)].state(watermark=77)
    assert [envelope.body for envelope in state.mail["job-7"]] == [body("first"), body("second"), body("third")]
    assert (state.remembered["job-7"], state.steps["job-7"]) == ({"order": (9, None)}, {("turn", "step"): b"1"})
    assert (state.watermark, state.cursors, state.numbered, state.cut) == (77, {}, {}, 0)
    assert (await found[partition_of("t", 3)].state(0)).subscribers == {"t": {"job-7": None}}
    dead = await found[partition_of("job-9", 3)].state(0)
    assert [letter.at_ms for letter in dead.dead.values()] == [20, 50]
    assert (list(dead.dead), dead.buried_count) == ([1, 2], 2)


async def test_what_hangs_on_a_job_is_put_together_of_pieces_that_come_in_any_order() -> None:
    whole = Extras([Envelope("j", body(n)) for n in range(2000)], {f"order-{n}": (9, None) for n in range(1500)})
    pieces = [raw(Bucket({}, {}, {"j": piece}, [], place)) for place, piece in enumerate(whole.parts(), 1)]
    assert len(pieces) > 6
    rehash = Rehash(1, [0], cluster="c", now_ms=NOW)
    rehash.add_bucket(raw(Bucket({"j": record()}, {}, {}, [])))
    for bucket in (*pieces[3:], *pieces[:3]):
        rehash.add_bucket(bucket)
    rehash.add_rest(part(stragglers=[slot(CLIENT, 0, Envelope("j", body("last")))]), lambda name: [])
    state = await rehash.finish()[0].state(0)
    assert [envelope.body for envelope in state.mail["j"]] == [*(body(n) for n in range(2000)), body("last")]
    assert list(state.remembered["j"]) == [f"order-{n}" for n in range(1500)]


async def test_the_end_of_an_activity_is_told_before_a_stop_also_where_much_waits_behind_that() -> None:
    activity = begin("j", 1, "j/1/started", "x", "process", {}, ActivityPolicy(), cluster="before", now_ms=NOW)
    cancelling = replace(activity, status=ActivityStatus.CANCELLING)
    rehash = Rehash(1, [0], cluster="after", now_ms=NOW)
    rehash.add_bucket(raw(Bucket({"j": record(activities=(cancelling,))}, {}, {}, ["j"])))
    for place, kinds in ((2, [Kind.MESSAGE]), (1, [Kind.STOP, Kind.MESSAGE])):
        rehash.add_bucket(raw(Bucket({}, {}, {"j": Extras([Envelope("j", kind=kind) for kind in kinds])}, [], place)))
    kinds = [envelope.kind for envelope in rehash.finish()[0].extras["j"].mail]
    assert kinds == [Kind.ACTIVITY, Kind.STOP, Kind.MESSAGE, Kind.MESSAGE]


def test_only_what_was_selected_is_held() -> None:
    bucket = Bucket({f"job-{n}": record() for n in range(50)}, {}, {}, [])
    rehash = Rehash(5, [2], cluster="c", now_ms=NOW)
    rehash.add_bucket(raw(bucket))
    rehash.add_rest(part(stragglers=[slot(CLIENT, 0, *(Envelope(f"job-{n}") for n in range(50)))]), lambda name: [])
    (found,) = rehash.finish().values()
    assert set(found.jobs) == {f"job-{n}" for n in range(50) if partition_of(f"job-{n}", 5) == 2} == set(found.extras)


@pytest.mark.parametrize("waiting", [[], [Kind.MESSAGE], [Kind.STOP]])
def test_activities_begin_anew_and_those_that_were_to_end_have_ended(waiting: list[int]) -> None:
    activity = begin("j", 1, "j/1/started", "x", "process", {}, ActivityPolicy(), cluster="before", now_ms=NOW)
    cancelling = replace(activity, id="other", name="y", status=ActivityStatus.CANCELLING)
    running = replace(activity, status=ActivityStatus.RUNNING, nonce="n", attempt=2)
    bucket = Bucket({"j": record(activities=(running, cancelling))}, {}, {}, ["j"])
    bucket.extras["j"] = Extras([Envelope("j", kind=kind) for kind in waiting])
    rehash = Rehash(1, [0], cluster="after", now_ms=NOW)
    rehash.add_bucket(raw(bucket))
    rehash.add_rest(part(), lambda name: [])
    restored = rehash.finish()[0]
    begun, ended = msgspec.msgpack.decode(restored.jobs["j"], type=JobRecord).activities
    assert (begun.status, begun.attempt, begun.nonce) == (ActivityStatus.WANTED, 3, "")
    assert begun.run != running.run
    assert (ended.status, ended.outcome) == (ActivityStatus.ENDED, "cancelled")
    kinds = [envelope.kind for envelope in restored.extras["j"].mail]
    assert kinds == ([Kind.ACTIVITY, Kind.STOP] if waiting == [Kind.STOP] else [*waiting, Kind.ACTIVITY])
    told = restored.extras["j"].mail[kinds.index(Kind.ACTIVITY)]
    assert msgspec.msgpack.decode(told.body, type=ActivityEvent).status == "cancelled"
