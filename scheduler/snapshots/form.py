"""What a snapshot is made of, and its bytes.

    snapshots/NAME.json          the manifest: all parts with their digests. Written last; without it there is none
    parts/ATTEMPT/00017          one partition: its buckets, its topics, dead letters, and what was on its way to it
    packs/ATTEMPT/00017-0        buckets of one partition, one behind the other; later snapshots refer to them too
    restores/FORMATION.json      a note that one of them was restored, or is being: into which cluster

A *bucket* holds some jobs of a partition, by a hash of their ids: records, definitions, mailboxes; or a piece of what
hangs on one job, where that is very much. It is known by the digest of its content. Numbers are part of the format:
they never change.
"""

import hashlib
import zlib
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.formats import FIRST
from tenure.scheduler.image import Extras
from tenure.scheduler.snapshots.errors import SnapshotDamaged
from tenure.scheduler.wire import DeadLetter, JobRecord, decode

__all__ = [
    "Bucket",
    "BucketRef",
    "Manifest",
    "Part",
    "PartRef",
    "RawBucket",
    "RestoreNote",
    "bucket_count",
    "bucket_of",
    "compressed",
    "digest_of",
    "is_of",
    "manifest_bytes",
    "manifest_path",
    "note_path",
    "pack_path",
    "part_path",
    "read_manifest",
    "read_note",
    "unpack",
]

FORMAT = 1
RESTORES = "restores"
JOBS_PER_BUCKET = 32
BYTES_PER_BUCKET = 64 * 1024
COMPRESSION = 1
T = TypeVar("T")


class Bucket(Struct, array_like=True):
    """Some jobs of one partition."""

    jobs: dict[str, JobRecord] = {}
    definitions: dict[str, bytes] = {}
    """As they stand in the grid."""
    extras: dict[str, Extras] = {}
    active: list[str] = []
    """Jobs with activities."""
    place: int = 0
    """Of what hangs on one job, where that is so much that it is cut: which piece this is, from 1 on. Who does not know
    this would take the last piece for all: such a bucket is marked (see `formats`). 0: it is whole."""


class RawBucket(Struct, array_like=True):
    """The same, with records as bytes, for those who only move them."""

    jobs: dict[str, Raw] = {}
    definitions: dict[str, bytes] = {}
    extras: dict[str, Extras] = {}
    active: list[str] = []
    place: int = 0


class BucketRef(Struct, array_like=True, frozen=True):
    """Where a bucket is."""

    pack: int
    """Which of the part's packs."""
    offset: int
    length: int
    digest: bytes
    """Of its content, not compressed."""
    jobs: int


class Part(Struct, array_like=True):
    """One partition in one snapshot."""

    partition: int
    buckets: list[BucketRef]
    packs: list[tuple[str, int]]
    """(path, size in bytes)"""
    jobs: int
    dead: list[DeadLetter]
    subscribers: dict[str, list[str]]
    stragglers: list[tuple[bytes, bytes]]
    """Slots (key, value) that were on their way, in the order in which they are to be taken."""
    numbered: dict[int, int]
    cursors: dict[int, int]
    client_lanes_max: int = 0
    format: int = FORMAT
    generations: int = 0
    """None of these is given again (see `tombstones`)."""


class PartRef(Struct, frozen=True):
    """Where a part is."""

    path: str
    digest: str


class Manifest(Struct, frozen=True):
    """One whole snapshot."""

    name: str
    taken_ms: int
    """When it was begun, by its coordinator's clock: what clients had been told is stored by then is in it."""
    formation: str
    incarnation: int
    partition_count: int
    parts: list[PartRef]
    jobs: int
    size_bytes: int
    """All that is needed to restore it."""
    written_bytes: int
    """What was written for it: the rest was there."""
    duration_s: float
    packs: list[str] = []
    """All that its parts refer to; empty also where the version that wrote it did not say."""
    grid_format: int = FIRST
    """What the cluster's values were written in (see `scheduler.formats`)."""
    format: int = FORMAT
    checksum: str = ""
    """Of all else that is stored, whether or not this version knows of it."""


class RestoreNote(Struct, frozen=True):
    """A restore of one of the snapshots. The next one's incarnation is higher, and what it reads is kept meanwhile."""

    formation: str
    incarnation: int
    name: str
    at_ms: int
    has_ended: bool = False
    """It reads no more."""


# -- places ---------------------------------------------------------------------------------------


def manifest_path(name: str) -> str:
    """Where a snapshot's manifest is."""
    return f"snapshots/{name}.json"


def part_path(attempt: str, partition: int) -> str:
    """Where a partition's part is."""
    return f"parts/{attempt}/{partition:05}"


def pack_path(attempt: str, partition: int, n: int) -> str:
    """Where a pack of it is."""
    return f"packs/{attempt}/{partition:05}-{n}"


def note_path(formation: str) -> str:
    """Where the note of a restore is: by the cluster that it made."""
    return f"{RESTORES}/{formation}.json"


def is_of(attempt: str, path: str) -> bool:
    """Was this part or pack written by this attempt?"""
    return path.split("/")[1] == attempt


def bucket_count(jobs: int, size_bytes: int = 0) -> int:
    """How many buckets: a power of two, so that it rarely changes."""
    return 1 << max(jobs // JOBS_PER_BUCKET, size_bytes // BYTES_PER_BUCKET).bit_length()


def bucket_of(id: str, partition_count: int, count: int) -> int:
    """The bucket of a job, by what its partition leaves of the hash of its id."""
    return zlib.crc32(id.encode()) // partition_count % count


# -- bytes ----------------------------------------------------------------------------------------


def digest_of(content: bytes) -> bytes:
    """What content is known by."""
    return hashlib.blake2b(content, digest_size=16).digest()


def compressed(content: bytes) -> bytes:
    """Quickly, as turns wait for it."""
    return zlib.compress(content, COMPRESSION)


def unpack(stored: bytes, type: type[T], digest: bytes | None = None, what: str = "") -> T:
    """Back; raises `SnapshotDamaged`. `digest`: that of the content, where it is known."""
    try:
        content = zlib.decompress(stored)
        if digest is not None and digest_of(content) != digest:
            raise SnapshotDamaged(f"{what} is damaged: its checksum is wrong")
        return decode(content, type)
    except (zlib.error, Undecodable) as error:
        raise SnapshotDamaged(f"{what} is damaged: {error}") from error
    except UnreadableFormat as error:
        raise SnapshotDamaged(f"{what} can't be read by this version of Tenure: {error}") from error


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest as it is stored, with its checksum."""
    fields = msgspec.structs.asdict(manifest)
    encoded = msgspec.json.encode({**fields, "checksum": _checksum(fields)})
    return msgspec.json.format(encoded, indent=1) + b"\n"


def read_manifest(stored: bytes, name: str) -> Manifest:
    """Back; raises `SnapshotDamaged`. One of another version may have more fields than we know, or fewer."""
    try:
        fields = msgspec.json.decode(stored, type=dict[str, Any])
        format = fields.get("format", FORMAT)
        if format != FORMAT:
            raise SnapshotDamaged(f"snapshot {name} has format {format}; this version of Tenure reads format {FORMAT}")
        if fields.get("checksum") != _checksum(fields):
            raise SnapshotDamaged(f"the manifest of snapshot {name} is damaged: its checksum is wrong")
        return msgspec.convert(fields, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotDamaged(f"the manifest of snapshot {name} is damaged: {error}") from error


def read_note(stored: bytes, path: str) -> RestoreNote:
    """Back; raises `SnapshotDamaged`."""
    try:
        return msgspec.json.decode(stored, type=RestoreNote)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotDamaged(
            f"{path} is damaged: {error}. It keeps the incarnation of a cluster that was restored from here; the next "
            "one's must be higher. If that cluster never ran, delete the file; if it did, put one of the others in its "
            "place, with an incarnation above all of theirs. Nothing was changed"
        ) from error


def _checksum(fields: dict[str, Any]) -> str:
    """Of the fields in the order in which they are stored, as JSON without spaces, the checksum's own value empty."""
    return digest_of(msgspec.json.encode({**fields, "checksum": ""})).hex()
