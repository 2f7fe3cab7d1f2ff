"""Restoring a snapshot, into a cluster of any size and partition count.

    read all of it ──► marker: restoring ──► wait until who was here has noticed ──► each partition: fence, clear,
                          ▲                                                            │   definitions, image, head
                          └── interrupted: run it again ◄──────────────────────────────┤
                                                                                       ▼
                                                                  marker: formed, of a new incarnation

Before the marker nothing is changed, and all has been read once. Under it no node opens a partition, and clients wait.
What was in the cluster before is gone.
"""

import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import msgspec
import trio
from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.scheduler.cluster import Cluster
from tenure.scheduler.elapsed import Elapsed
from tenure.scheduler.errors import NotDone, Undecodable, UnreadableFormat
from tenure.scheduler.fences import INCARNATION_MAX
from tenure.scheduler.formats import format_of
from tenure.scheduler.grid.port import Grid, GridError, Map, Unknown
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.claim import HELD_S, Claim
from tenure.scheduler.snapshots.errors import NotRestorable, SnapshotDamaged, StoreFailed, UnknownSnapshot, one_of_them
from tenure.scheduler.snapshots.form import Manifest, RestoreNote, note_path
from tenure.scheduler.snapshots.founding import Founding
from tenure.scheduler.snapshots.kept import Identity, letters_there, merged, resume, schedules_in
from tenure.scheduler.snapshots.rehash import Rehash, Restored, type_of
from tenure.scheduler.snapshots.stores import Store
from tenure.scheduler.watermark import announce
from tenure.scheduler.wire import Definition, decode, encode

__all__ = ["RestoreOptions", "RestoreResult", "restore_snapshot"]

READ_AT_ONCE = 4
WRITE_AT_ONCE = 8
GROUP = 500
GROUP_BYTES_MAX = 256 * 1024
END_S = 5.0
LATE_S = 30.0
"""A write whose outcome was unknown takes effect within so long, or never. Definitions are written and deleted without
conditions, as there may be a million of them: nobody is let in before that."""
UNPACKED = 6
"""A restored byte's worth in memory, at most, of one in the store."""
HALF_DONE = "Nodes keep out of what was restored so far: run it again, or restore another one"
Hold = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """Which snapshot, and over what."""

    name: str = ""
    """The newest, if none is given."""
    replace: bool = False
    """Also where there are jobs: they are gone then."""
    memory_bytes_max: int = 2**31
    """About so much is held at once; a larger snapshot is read several times."""
    answer_s: float = math.inf
    """How long members may take to say what is there. What was begun later goes on for as long as it takes."""
    keep_dead_letters: bool = True
    """Those of the cluster that is replaced stay, beside the snapshot's own."""
    resume_snapshots: bool = False
    """Schedules of snapshots go on also where another cluster is restored than the one that was here. (Where it is
    that one, they do anyway.)"""
    on_closed: Callable[[bool], None] = lambda is_closed: None
    """Called before anything is removed: who is interrupted from then on leaves a cluster that nodes keep out of. And
    again, with False, when they are let in."""


class RestoreResult(Struct, frozen=True):
    """What was restored."""

    name: str
    jobs: int
    incarnation: int
    formation: str
    partition_count: int
    duration_s: float
    letters_kept: int = 0
    """Dead letters of the cluster that was here."""
    letters_unread: tuple[int, ...] = ()
    """Partitions whose dead letters could not be read: they were lost, or damaged."""
    snapshots_resumed: tuple[str, ...] = ()
    """Jobs that take snapshots every so often, and go on."""
    snapshots_stopped: tuple[str, ...] = ()
    """And those that take no more: snapshots are to be scheduled anew."""


async def restore_snapshot(
    grid: Grid, store: Store, now_ms: Callable[[], int], options: RestoreOptions | None = None
) -> RestoreResult:
    """Restore it. Raises `NotRestorable` (nothing was changed), `SnapshotDamaged`, or what the store raises; if it is
    interrupted, nodes keep out until it is run again."""
    options = options or RestoreOptions()
    manifest = await Catalog(store).read(options.name)
    with one_of_them():
        return await _Restorer(grid, store, now_ms, options, manifest).run()


class _Restorer:
    def __init__(
        self, grid: Grid, store: Store, now_ms: Callable[[], int], options: RestoreOptions, manifest: Manifest
    ) -> None:
        self.grid, self.store, self.now_ms, self.options, self.manifest = grid, store, now_ms, options, manifest
        self.catalog = Catalog(store)
        self.formation = secrets.token_hex(6)
        self.settings = NodeSettings()
        self.random = Random(self.formation)
        self.watermark = self.generations = 0
        self.jobs = self.letters_kept = 0
        self.letters_unread: list[int] = []
        self.headless: list[int] = []
        """Partitions that had lost all, or whose heads could not be read."""
        self._was_whole = False
        """Was this a cluster, and none that is half restored?"""
        self.strays: set[Identity] = set()
        """Dead letters that the snapshot has, wherever they lie here."""
        self.resumed: list[str] = []
        self.stopped: list[str] = []
        self._resumes = options.resume_snapshots
        self._serial = 0
        self._unknown_s = -math.inf
        """When the outcome of such a write was unknown last."""

    async def run(self) -> RestoreResult:
        began_s = trio.current_time()
        format_of(self.manifest.grid_format)  # raises what says that a newer version is needed
        elapsed = Elapsed(self.now_ms)
        claim = Claim(self.grid, self.formation, replaces_jobs=self.options.replace, now_s=elapsed.now_s)
        await self._look(claim)
        if (there := claim.there) is not None:
            # What is here may have been made of that one, by a restore that went well or was interrupted.
            self._resumes |= self.manifest.formation in (there.formation, there.replaces)
            self._was_whole = there.formed
        note = await self._note(claim.there, claim.highest)
        incarnation = note.incarnation
        await self._check_kept()
        first, *others = self._passes()
        read = await self._read(first, "Nothing was changed")  # damage is found while the cluster is as it was
        await claim.take(self.manifest, incarnation)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim.keep)
            await claim.settle()
            self.options.on_closed(True)
            if claim.there is not None and claim.there.settled:
                self._unknown_s = began_s + HELD_S  # of what another wrote as it was interrupted, nobody knows
            # Now, not before: until here clients have begun lanes in the cluster that was.
            self.watermark = max(self.watermark, self.now_ms())
            await self._restore(read, incarnation, claim.hold)
            for selected in others:
                await self._restore(await self._read(selected, HALF_DONE), incarnation, claim.hold)
            await trio.sleep(max(0.0, self._unknown_s + LATE_S - trio.current_time()))
            nursery.cancel_scope.cancel()
        if self.jobs != self.manifest.jobs:
            raise SnapshotDamaged(
                f"snapshot {self.manifest.name} has {self.jobs} jobs, and promises {self.manifest.jobs}; "
                "nodes keep out of what was restored of it. Restore another one"
            )
        await claim.end()
        self.options.on_closed(False)
        await self._end(note)
        if len(self.headless) < self.grid.partition_count:  # where none has one, all of the cluster was lost
            self.letters_unread += self.headless
        return RestoreResult(
            self.manifest.name,
            self.jobs,
            incarnation,
            self.formation,
            self.grid.partition_count,
            round(trio.current_time() - began_s, 3),
            self.letters_kept,
            tuple(sorted(self.letters_unread)),
            tuple(sorted(self.resumed)),
            tuple(sorted(self.stopped)),
        )

    # -- before anything is changed ---------------------------------------------------------------

    async def _look(self, claim: Claim) -> None:
        with trio.move_on_after(self.options.answer_s) as deadline:
            await claim.look()
        if deadline.cancelled_caught:
            raise NotDone(
                f"what is in this cluster was not known within {self.options.answer_s:g} s; nothing was changed"
            )

    async def _note(self, there: Cluster | None, highest: int) -> RestoreNote:
        """Of an incarnation higher than any that has run these jobs, as far as this store and this grid know."""
        known = [self.manifest.incarnation, highest]
        if there is not None:
            known.append(there.incarnation)
        known += [note.incarnation for note in await self.catalog.notes()]
        if max(known) >= INCARNATION_MAX:
            raise NotRestorable(
                f"this would be incarnation {max(known) + 1:,} of its cluster, and fencing tokens have room for "
                f"{INCARNATION_MAX:,}. Nothing was changed. Schedule the jobs anew in an empty cluster, from what "
                "`tenure snapshots export` shows; outside systems that compare fencing tokens must forget theirs"
            )
        note = RestoreNote(self.formation, max(known) + 1, self.manifest.name, self.now_ms())
        await self.store.write(note_path(self.formation), msgspec.json.encode(note))
        return note

    async def _check_kept(self) -> None:
        """Whoever deletes old snapshots sees our note from now on. What was deleted just before is not read."""
        try:
            await self.catalog.read(self.manifest.name)
        except UnknownSnapshot as error:
            raise UnknownSnapshot(
                f"snapshot {self.manifest.name} was deleted at this moment, as it was not to be kept; nothing was "
                "changed. Restore another one: see `tenure snapshots list`"
            ) from error

    async def _end(self, note: RestoreNote) -> None:
        """A hint: without it, what we have read is only kept for longer."""
        with trio.move_on_after(END_S):
            try:
                await self.store.write(note_path(note.formation), msgspec.json.encode(replace(note, has_ended=True)))
            except StoreFailed:
                pass

    # -- reading ----------------------------------------------------------------------------------

    def _passes(self) -> list[list[int]]:
        """Which partitions are made at the same time."""
        count = self.grid.partition_count
        passes = min(count, 1 + UNPACKED * self.manifest.size_bytes // self.options.memory_bytes_max)
        return [list(range(n, count, passes)) for n in range(passes)]

    async def _read(self, selected: list[int], otherwise: str) -> dict[int, Restored]:
        """These of the new partitions, for which all parts are read to their ends. Raises `SnapshotDamaged`, or what
        the store raises; `otherwise` says what that means."""
        rehash = Rehash(
            self.grid.partition_count,
            selected,
            cluster=self.formation,
            now_ms=self.now_ms(),
            former=self.manifest.formation,
            former_count=self.manifest.partition_count,
        )
        limiter = trio.Semaphore(READ_AT_ONCE)

        async def read(partition: int) -> None:
            async with limiter:
                part = await self.catalog.part(self.manifest.parts[partition])
                self.watermark = max(self.watermark, part.client_lanes_max)
                self.generations = max(self.generations, part.generations)
                jobs: dict[str, Raw] = {}
                async for bucket in self.catalog.buckets(part):
                    rehash.add_bucket(bucket)
                    if part.stragglers:
                        jobs |= bucket.jobs
                rehash.add_rest(part, lambda name: [id for id, record in jobs.items() if type_of(record) == name])

        try:
            with one_of_them():
                async with trio.open_nursery() as nursery:
                    for partition in range(self.manifest.partition_count):
                        nursery.start_soon(read, partition)
        except (SnapshotDamaged, StoreFailed) as error:
            raise type(error)(f"{error}. {otherwise}") from error
        self.strays = rehash.strays
        return rehash.finish()

    # -- writing ----------------------------------------------------------------------------------

    async def _restore(self, partitions: dict[int, Restored], incarnation: int, hold: Hold) -> None:
        limiter = trio.Semaphore(WRITE_AT_ONCE)

        async def write(partition: int) -> None:
            async with limiter:
                await self._write(partition, partitions.pop(partition), incarnation, hold)

        async with trio.open_nursery() as nursery:
            for partition in list(partitions):
                nursery.start_soon(write, partition)

    async def _write(self, partition: int, restored: Restored, incarnation: int, hold: Hold) -> None:
        founding = Founding(
            self.grid,
            partition,
            formation=self.formation,
            settings=self.settings,
            new_id=self._new_id,
            random=self.random,
            report=lambda text: None,
            hold=hold,
        )
        await founding.fence(self.now_ms())
        if self.options.keep_dead_letters:
            await self._keep_letters(partition, restored)
            if not founding.found_head and self._was_whole:
                self.headless.append(partition)
        self._mind_schedules(restored)
        await founding.clear(Map.INBOX)
        definitions = dict[bytes, bytes]()
        for n, (id, stored) in enumerate(restored.definitions.items(), 1):
            definitions[id.encode()] = _of(stored, incarnation)
            if n % GROUP == 0:
                await trio.lowlevel.checkpoint()
        await founding.clear(Map.JOBS, definitions)
        self._unknown_s = max(self._unknown_s, founding.unknown_s)
        await self._write_definitions(founding, definitions)
        await self._announce(founding)
        state = await restored.state(self.watermark, self.generations)
        await founding.found(state, self.formation, incarnation)
        self.jobs += len(restored.jobs)

    async def _keep_letters(self, partition: int, restored: Restored) -> None:
        there = await letters_there(self.grid, partition, self.random, self._new_id)
        if there is None:
            self.letters_unread.append(partition)
            return
        waiting = (envelope for extras in restored.extras.values() for envelope in extras.mail)
        kept = merged(restored.dead, there, waiting if there else (), self.strays)
        self.letters_kept += len(kept) - len(restored.dead)
        restored.dead = kept

    def _mind_schedules(self, restored: Restored) -> None:
        for id in schedules_in(restored.jobs):
            resumed = resume(restored.jobs[id], self.formation) if self._resumes else None
            if resumed is None:
                self.stopped.append(id)
            else:
                restored.jobs[id] = resumed
                self.resumed.append(id)

    async def _write_definitions(self, founding: Founding, definitions: dict[bytes, bytes]) -> None:
        group: dict[bytes, bytes] = {}
        size_bytes = 0
        for key, definition in definitions.items():
            group[key] = definition
            size_bytes += len(definition)
            if len(group) >= GROUP or size_bytes >= GROUP_BYTES_MAX:
                await self._set_together(founding, group)
                group, size_bytes = {}, 0
        if group:
            await self._set_together(founding, group)

    async def _set_together(self, founding: Founding, group: dict[bytes, bytes]) -> None:
        attempt = 0
        while True:
            await founding.hold()
            try:
                await self.grid.set_together(Map.JOBS, founding.partition, group)
                return
            except GridError as error:
                if isinstance(error, Unknown):
                    self._unknown_s = trio.current_time()
                attempt += 1
                await founding.pause(attempt)

    async def _announce(self, founding: Founding) -> None:
        attempt = 0
        while True:
            await founding.hold()
            try:
                if await announce(self.grid, founding.partition, self.watermark) is not None:
                    return
            except GridError:
                pass
            attempt += 1
            await founding.pause(attempt)

    def _new_id(self) -> str:
        self._serial += 1
        return f"restore-{self.formation}.{self._serial}"


def _of(stored: bytes, incarnation: int) -> bytes:
    """A definition as it is restored: nobody of before knows these bytes, nor can change them."""
    try:
        definition = decode(stored, Definition)
    except (Undecodable, UnreadableFormat):
        return stored  # it is left alone, as it was
    return encode(replace(definition, incarnation=incarnation), stored[0])
