"""What snapshots there are at a place: naming, listing, verifying, keeping so many."""

import math
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import trio

from tenure.scheduler.errors import Mistake
from tenure.scheduler.snapshots.errors import SnapshotDamaged, StoreFailed, UnknownSnapshot, one_of_them
from tenure.scheduler.snapshots.form import (
    RESTORES,
    BucketRef,
    Manifest,
    Part,
    PartRef,
    RawBucket,
    RestoreNote,
    manifest_bytes,
    manifest_path,
    read_manifest,
    read_note,
    unpack,
)
from tenure.scheduler.snapshots.stores import Missing, Store
from tenure.scheduler.snapshots.stragglers import on_the_way

__all__ = ["Catalog", "Verdict"]

AT_ONCE = 8
ORPHAN_AGE_S = 3600.0
"""What no manifest names may belong to one that is about to be written."""
RESTORE_S_MAX = 86_400.0
"""A restore may take so long: what it reads is kept until then, unless it says that it has ended. One that was
interrupted can't, and is to be run again."""


class Verdict(NamedTuple):
    """What was found of one snapshot."""

    name: str
    jobs: int
    size_bytes: int
    problems: list[str]


class Catalog:
    """The snapshots at one place."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._unwritten = ""
        """The manifest that could not be written."""

    # -- naming and reading -----------------------------------------------------------------------

    async def names(self) -> list[str]:
        """Oldest first."""
        found = []
        for stored in await self.store.files("snapshots"):
            folder, _, file = stored.path.rpartition("/")
            if folder == "snapshots" and file.endswith(".json") and not file.startswith("."):
                found.append(file.removesuffix(".json"))
        return sorted(found)

    async def next_name(self, now_ms: int) -> tuple[str, Manifest | None]:
        """A name behind all others, whatever the clock says; and the newest that can be read, to be referred to."""
        names = await self.names()
        at = datetime.fromtimestamp(now_ms / 1000, UTC)
        while names and _name(at) <= names[-1]:
            at = max(at, _time_of(names[-1]) or at) + timedelta(milliseconds=1)
        for name in reversed(names):
            try:
                return _name(at), await self.read(name)
            except (SnapshotDamaged, UnknownSnapshot):
                continue
        return _name(at), None

    async def read(self, name: str = "") -> Manifest:
        """This one's manifest, or the newest. Raises `UnknownSnapshot`, `SnapshotDamaged`."""
        if not name:
            names = await self.names()
            if not names:
                raise UnknownSnapshot("there is no snapshot here; `tenure snapshot` takes one")
            name = names[-1]
        try:
            return read_manifest(await self.store.read(manifest_path(name)), name)
        except Missing as error:
            raise UnknownSnapshot(f"there is no snapshot {name!r} here; see `tenure snapshots list`") from error

    async def add(self, manifest: Manifest) -> None:
        """From now on it is there."""
        try:
            await self.store.write(manifest_path(manifest.name), manifest_bytes(manifest))
        except StoreFailed:
            self._unwritten = manifest.name
            raise

    async def has_failed_to_add(self, name: str) -> bool:
        """Is this manifest not there, and comes no more? Only then what it names may go. Raises `StoreFailed`."""
        if self._unwritten != name or not self.store.fails_for_good:
            return False
        path = manifest_path(name)
        return all(stored.path != path for stored in await self.store.files("snapshots"))

    async def part(self, ref: PartRef) -> Part:
        """One partition's part. Raises `SnapshotDamaged`."""
        try:
            stored = await self.store.read(ref.path)
        except Missing as error:
            raise SnapshotDamaged(f"{ref.path} is missing") from error
        return unpack(stored, Part, bytes.fromhex(ref.digest), ref.path)

    async def packs_of(self, refs: Iterable[PartRef]) -> set[str]:
        """All that these parts refer to, by what they say themselves. Raises `SnapshotDamaged`."""
        found: set[str] = set()
        limiter = trio.Semaphore(AT_ONCE)

        async def look(ref: PartRef) -> None:
            async with limiter:
                found.update(path for path, _ in (await self.part(ref)).packs)

        with one_of_them():
            async with trio.open_nursery() as nursery:
                for ref in refs:
                    nursery.start_soon(look, ref)
        return found

    async def buckets(self, part: Part) -> AsyncIterator[RawBucket]:
        """All of a part. Raises `SnapshotDamaged`."""
        by_pack: dict[int, list[BucketRef]] = {}
        for ref in part.buckets:
            by_pack.setdefault(ref.pack, []).append(ref)
        for pack, refs in by_pack.items():
            path, size_bytes = part.packs[pack]
            try:
                content = await self.store.read(path)
            except Missing as error:
                raise SnapshotDamaged(f"{path} is missing") from error
            if len(content) != size_bytes:
                raise SnapshotDamaged(f"{path} has {len(content)} bytes, and should have {size_bytes}")
            for n, ref in enumerate(refs):
                small = content[ref.offset : ref.offset + ref.length]
                yield unpack(small, RawBucket, ref.digest, f"{path} at {ref.offset}")
                if n % 8 == 7:
                    await trio.lowlevel.checkpoint()

    # -- looking ----------------------------------------------------------------------------------

    async def verify(self, name: str = "") -> Verdict:
        """Read all of it, and compare every checksum; and what partitions say of each other."""
        manifest = await self.read(name)
        problems: list[str] = []
        parts: dict[int, Part] = {}
        jobs = 0
        limiter = trio.Semaphore(AT_ONCE)

        async def look(partition: int) -> None:
            nonlocal jobs
            async with limiter:
                try:
                    part = parts[partition] = await self.part(manifest.parts[partition])
                    async for bucket in self.buckets(part):
                        jobs += len(bucket.jobs)
                except SnapshotDamaged as error:
                    problems.append(f"partition {partition}: {error}")

        with one_of_them():
            async with trio.open_nursery() as nursery:
                for partition in range(manifest.partition_count):
                    nursery.start_soon(look, partition)
        if not problems:
            problems += _disagreements(parts)
            unnamed = {path for part in parts.values() for path, _ in part.packs} - set(manifest.packs)
            if unnamed and manifest.packs:  # versions that named none are none the worse for it
                problems.append(f"its manifest does not name {', '.join(sorted(unnamed))}")
            if jobs != manifest.jobs:
                problems.append(f"{jobs} jobs were found, and {manifest.jobs} are promised")
        return Verdict(manifest.name, jobs, manifest.size_bytes, sorted(problems))

    # -- keeping ----------------------------------------------------------------------------------

    async def forsake(self, attempt: str) -> None:
        """Delete what an attempt has written that is no snapshot, and becomes none."""
        for folder in ("parts", "packs"):
            for stored in await self.store.files(f"{folder}/{attempt}"):
                await self.store.delete(stored.path)

    async def retain(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` snapshots, and what only they needed; returns their names. Those that
        are being restored stay, too. Raises `SnapshotDamaged` where one of those to be kept can't be read:
        then nothing is deleted."""
        if keep < 1:
            raise Mistake(f"keep at least one snapshot, not {keep}")
        folders = ("parts", "packs", "unfinished", "snapshots")
        # Before the manifests: what those need that are added meanwhile is not among them, or known.
        files = [stored for folder in folders for stored in await self.store.files(folder)]
        names, restoring = await self.names(), await self._being_restored()
        gone = [name for name in names[:-keep] if name not in restoring]
        kept = [name for name in names if name not in gone]
        needed = await self._needed(kept)
        for name in gone:
            await self.store.delete(manifest_path(name))
        # A restore makes its note, then looks for the manifest: if it has found what we have just deleted, we find its
        # note. What it needs is not known any more, so all stays until it must have ended.
        if await self._being_restored() - set(kept):
            return gone
        for stored in files:
            if stored.path in needed or stored.path.endswith(".json"):
                continue
            if stored.age_s > ORPHAN_AGE_S:
                await self.store.delete(stored.path)
        return gone

    async def notes(self, age_s_max: float = math.inf) -> list[RestoreNote]:
        """Of restores from here, those that began no longer ago. Raises `SnapshotDamaged`."""
        return [
            read_note(await self.store.read(stored.path), stored.path)
            for stored in await self.store.files(RESTORES)
            if stored.path.endswith(".json") and stored.age_s <= age_s_max
        ]

    async def _being_restored(self) -> set[str]:
        return {note.name for note in await self.notes(RESTORE_S_MAX) if not note.has_ended}

    async def _needed(self, kept: list[str]) -> set[str]:
        needed: set[str] = set()
        for name in kept:
            try:
                manifest = await self.read(name)
                packs = set(manifest.packs) or await self.packs_of(manifest.parts)
            except SnapshotDamaged as error:
                raise SnapshotDamaged(
                    f"{error}. So it is not known what snapshot {name} needs, and nothing older was deleted: delete "
                    f"{manifest_path(name)} if it can't be repaired"
                ) from error
            needed |= {*(ref.path for ref in manifest.parts), *packs}
        return needed


def _disagreements(parts: dict[int, Part]) -> list[str]:
    """What one partition had sent at its cut, the other has taken, or it was on its way: exactly once."""
    found = []
    for receiver, part in parts.items():
        coming = on_the_way(part)
        for sender, other in parts.items():
            expected = list(range(part.cursors.get(sender, 0), other.numbered.get(receiver, 0)))
            if coming.get(sender, []) != expected:
                found.append(
                    f"partition {receiver}: of partition {sender} the slots {coming.get(sender, [])} were on their "
                    f"way, and should be {expected}"
                )
    return found


def _name(at: datetime) -> str:
    return at.strftime("%Y%m%dT%H%M%S.") + f"{at.microsecond // 1000:03}Z"


def _time_of(name: str) -> datetime | None:
    try:
        return datetime.strptime(name, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None
