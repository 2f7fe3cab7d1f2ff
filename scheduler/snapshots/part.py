"""One partition's part of a snapshot, from its capture to the store: by its owner, beside its work.

Whatever takes long is done in slices of about a millisecond, so that turns don't wait for it.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.errors import TenureError, TryAgain, Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.image import Extras, Frozen
from tenure.scheduler.snapshots.aside import aside
from tenure.scheduler.snapshots.desk import Base, Desk
from tenure.scheduler.snapshots.form import (
    Bucket,
    BucketRef,
    Part,
    bucket_count,
    bucket_of,
    compressed,
    digest_of,
    pack_path,
    part_path,
)
from tenure.scheduler.snapshots.moving import advance
from tenure.scheduler.snapshots.request import CHANNEL, CUT, Channel, Cut, Phase, Request
from tenure.scheduler.snapshots.stores import Store
from tenure.scheduler.wire import decode, encode, marked

if TYPE_CHECKING:
    from tenure.scheduler.cutting import Capture
    from tenure.scheduler.tenure import Tenure

__all__ = ["write_part"]

SLICE = 256
"""So many jobs are looked at before others have their turn."""
PACK_BYTES_MAX = 32 * 2**20
LIVE_SHARE_MIN = 0.5
"""Of a pack that less of is needed, that is written anew, so that the rest can go."""
COMPLETE_POLL_S = 0.05
REST_S_MAX = 0.01
LARGE_BYTES = 256 * 1024
EXTRAS_BYTES_MAX = 2**21
"""What hangs on one job, its mailbox above all, is cut where it is larger."""


async def write_part(tenure: "Tenure", capture: "Capture") -> None:
    """Store what was captured, and say so. Returns also if it failed (that is said), or nobody wants it any more."""
    number, partition = capture.number, tenure.partition
    if capture.frozen is None:
        # The last tenure has cut. If it could not finish its part, nobody can: this attempt has failed.
        await _tell(tenure, _of_another_owner(capture), _is_unfinished)
        return
    told = Cut(number, capture.numbered, capture.cursors)
    if not await _tell(tenure, told, _is_earlier):
        return
    desk = tenure.host.snapshots
    outcome: Cut | None = None
    request = await desk.request_of(number)
    try:
        if request is not None:
            outcome = await _Writer(tenure, capture, request, desk).write()
    except TenureError as error:
        final = not isinstance(error, TryAgain)
        outcome = Cut(number, failure=f"partition {partition}: {error}", final=final)
    if outcome is None and desk.has_given_up(number):
        outcome = Cut(number, failure=f"partition {partition}: its owner has heard nothing of the snapshot for long")
    if outcome is not None:
        await _tell(tenure, outcome, lambda there, cut: there == told)


async def _tell(tenure: "Tenure", cut: Cut, follows: Callable[[Cut, Cut], bool]) -> bool:
    """Put this in the place of what it `follows`; False: somebody else has spoken. What is damaged says nothing."""

    def is_before(stored: bytes) -> bool:
        try:
            return follows(decode(stored, Cut), cut)
        except (Undecodable, UnreadableFormat):
            return True

    grid, partition, pause = tenure.host.grid, tenure.partition, tenure.journal.pause
    return await advance(grid, partition, CUT, encode(cut), is_before, pause)


def _of_another_owner(capture: "Capture") -> Cut:
    failure = f"partition {capture.partition} has got another owner before its part was written"
    return Cut(capture.number, failure=failure)


def _is_earlier(there: Cut, cut: Cut) -> bool:
    return there.number < cut.number


def _is_unfinished(there: Cut, cut: Cut) -> bool:
    return there.number < cut.number or (there.number == cut.number and not (there.part or there.failure))


class _Writer:
    """From one capture to one part."""

    def __init__(self, tenure: "Tenure", capture: "Capture", request: Request, desk: Desk) -> None:
        self.tenure, self.capture, self.request, self.desk = tenure, capture, request, desk
        self.partition, self.grid = tenure.partition, tenure.host.grid
        self.store: Store = desk.store(request.url)
        self.refs: list[BucketRef] = []
        self.packs: list[tuple[str, int]] = []
        self.jobs = self.written_bytes = self.size_bytes = 0
        self._pack = bytearray()
        self._packs_written = 0
        self._rested_s = trio.current_time()
        self._places: dict[str, int] = {}

    async def write(self) -> Cut | None:
        """What to say of it. None: nobody wants it any more. Raises what the store raises."""
        frozen = self.capture.frozen
        assert frozen is not None
        async with self.desk.turn:
            await self._write_buckets(frozen)
        self.capture.frozen = None  # its memory is worth more
        if not await self._await_channel():
            return None
        if not await self.tenure.journal.prove_ours():
            return _of_another_owner(self.capture)  # it may have taken what our scan did not find any more
        part = Part(
            self.partition,
            self.refs,
            self.packs,
            self.jobs,
            frozen.meta.dead,
            frozen.meta.subscribers,
            self.capture.stragglers,
            self.capture.numbered,
            self.capture.cursors,
            self.capture.client_lanes_max,
            generations=frozen.meta.generations,
        )
        content, path = encode(part), part_path(self.request.attempt, self.partition)
        stored = await _beside(compressed, content)
        await self.store.write(path, stored)
        return Cut(
            self.capture.number,
            part=path,
            digest=digest_of(content).hex(),
            jobs=self.jobs,
            size_bytes=self.size_bytes + len(stored),
            written_bytes=self.written_bytes + len(stored),
            packs=tuple(path for path, _ in self.packs),
        )

    # -- buckets ----------------------------------------------------------------------------------

    async def _write_buckets(self, frozen: Frozen) -> None:
        base = await self.desk.base(self.request, self.partition)
        definitions = await self._definitions(frozen)
        self.jobs = len(frozen.jobs)
        wasted = _wasted(base)
        async for bucket in self._buckets(frozen, definitions):
            content = encode(bucket) if not bucket.place else marked(encode(bucket))
            digest = await _beside(digest_of, content)
            known = base.refs.get(digest)
            if known is not None and known[0] not in wasted:
                self._refer(known[0], known[1], known[2])
            else:
                await self._add(content, digest, len(bucket.jobs))
        await self._end_pack()

    async def _buckets(self, frozen: Frozen, definitions: dict[str, bytes]) -> AsyncIterator[Bucket]:
        partitions = self.grid.partition_count
        count = bucket_count(len(definitions), sum(len(record.state) for record in frozen.jobs.values()))
        buckets = [Bucket({}, {}, {}, []) for _ in range(count)]
        for n, (id, record) in enumerate(frozen.jobs.items()):
            bucket = buckets[bucket_of(id, partitions, count)]
            bucket.jobs[id] = record
            if record.activities:
                bucket.active.append(id)
            if n % SLICE == SLICE - 1:
                await self._rest()
        for n, (id, definition) in enumerate(definitions.items()):
            buckets[bucket_of(id, partitions, count)].definitions[id] = definition
            if n % SLICE == SLICE - 1:
                await self._rest()
        large = dict[str, Extras]()
        for n, (id, extras) in enumerate(frozen.extras()):
            if extras.size_bytes() > EXTRAS_BYTES_MAX:
                large[id] = extras
            else:
                buckets[bucket_of(id, partitions, count)].extras[id] = extras
            if n % SLICE == SLICE - 1 or len(extras.remembered) + len(extras.mail) >= SLICE:
                await self._rest()
        for n, bucket in enumerate(buckets):
            if bucket.jobs or bucket.definitions or bucket.extras:
                bucket.definitions = dict(sorted(bucket.definitions.items()))  # the map has no order
                yield bucket
            if n % 8 == 7:
                await self._rest()
        for id, extras in large.items():
            for place, piece in enumerate(extras.parts(), 1):
                yield Bucket({}, {}, {id: piece}, [], place)
                await self._rest()

    async def _definitions(self, frozen: Frozen) -> dict[str, bytes]:
        """As they stand: what clients have changed since the cut is in it, what jobs have done themselves is not."""
        attempt = 0
        while True:
            found: dict[str, bytes] = {}
            try:
                async for page in self.grid.scan(Map.JOBS, self.partition, page=SLICE):
                    self._rested_s = trio.current_time()
                    for entry in page:
                        self._add_definition(found, entry.key, entry.value)
                    await self._rest()
                missing = [id for id in frozen.jobs if id not in found]
                for id in missing:
                    definition = await self.tenure.definitions.current(id)
                    if definition is not None:
                        found[id] = encode(definition)
                break
            except GridError:
                attempt += 1
                await self.tenure.journal.pause(attempt)
        found.update(self.capture.definitions_before)
        return found

    def _add_definition(self, found: dict[str, bytes], key: bytes, value: bytes) -> None:
        try:
            found[key.decode()] = value
        except UnicodeDecodeError:
            pass  # no job's; it is reported below
        self.tenure.definitions.offer_swept(key, value)  # this stands for a sweep

    async def _rest(self) -> None:
        """As long as the last slice took: half of the time belongs to turns, whatever there is to write."""
        await trio.sleep(min(REST_S_MAX, trio.current_time() - self._rested_s))
        self._rested_s = trio.current_time()

    # -- packs ------------------------------------------------------------------------------------

    def _refer(self, path: str, size_bytes: int, ref: BucketRef) -> None:
        self.size_bytes += ref.length
        self.refs.append(BucketRef(self._place(path, size_bytes), ref.offset, ref.length, ref.digest, ref.jobs))

    def _place(self, path: str, size_bytes: int) -> int:
        if path not in self._places:
            self._places[path] = len(self.packs)
            self.packs.append((path, size_bytes))
        return self._places[path]

    async def _add(self, content: bytes, digest: bytes, jobs: int) -> None:
        small = await _beside(compressed, content)
        if self._pack and len(self._pack) + len(small) > PACK_BYTES_MAX:
            await self._end_pack()
        place = self._place(self._path(), 0)
        self.refs.append(BucketRef(place, len(self._pack), len(small), digest, jobs))
        self._pack += small
        self.size_bytes += len(small)

    def _path(self) -> str:
        return pack_path(self.request.attempt, self.partition, self._packs_written)

    async def _end_pack(self) -> None:
        if self._pack:
            path, content = self._path(), bytes(self._pack)
            self.packs[self._places[path]] = (path, len(content))
            self._pack.clear()
            self._packs_written += 1
            self.written_bytes += len(content)
            await self.store.write(path, content)

    # -- what was on its way ----------------------------------------------------------------------

    async def _await_channel(self) -> bool:
        """Until all that others had numbered at their cuts has been taken. False: nobody wants it any more."""
        number = self.capture.number
        request = await self.desk.request_of(number, Phase.COLLECTING)
        if request is None:
            return False
        if self.partition in request.channels:
            channel = await self._channel()
            lanes, incarnation = self.tenure.inlanes, self.tenure.host.incarnation
            while self.capture.awaits(channel, lanes, incarnation):
                if self.desk.number != number:
                    return False
                await trio.sleep(COMPLETE_POLL_S)
        return True

    async def _channel(self) -> dict[int, int]:
        attempt = 0
        while True:
            try:
                stored = await self.grid.get(Map.HEADS, self.partition, CHANNEL)
                if stored is not None and (channel := decode(stored, Channel)).number == self.capture.number:
                    return channel.ends
            except (GridError, Undecodable, UnreadableFormat):
                pass  # what can't be read is as if it had not come yet
            attempt += 1
            await self.tenure.journal.pause(attempt)


async def _beside(work: Callable[[bytes], bytes], content: bytes) -> bytes:
    """What would take long is done in a thread; for little, going there and back would take longer."""
    if len(content) < LARGE_BYTES:
        return work(content)
    return await aside(partial(work, content))


def _wasted(base: Base) -> set[str]:
    """Packs of which less than half is still referred to."""
    live: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for path, size_bytes, ref in base.refs.values():
        live[path] = live.get(path, 0) + ref.length
        sizes[path] = size_bytes
    return {path for path, size_bytes in sizes.items() if live[path] < LIVE_SHARE_MIN * size_bytes}
