"""A partition's state as chunks of bytes, and back. Linear in the bytes, and cut so that nobody waits long."""

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.scheduler.budget import envelope_bytes
from tenure.scheduler.errors import Undecodable
from tenure.scheduler.state import PartitionState, Remembered
from tenure.scheduler.wire import Answer, DeadLetter, Envelope, JobRecord, decode, encode, marked

__all__ = ["Extras", "Frozen", "checksum_of", "thaw", "thaw_at_rest"]

T = TypeVar("T")

JOBS_PER_PIECE = 512
PIECE_BYTES_MAX = 2**19
"""A piece ends after so many: nobody waits long for one to be encoded, or read."""
META_BYTES_MAX = 2**21
"""Tables that grow with what comes in are in the first piece, where older versions look for them, up to so many bytes;
beyond that in pieces of their own, which only newer ones read."""


class _Meta(Struct):
    cursors: dict[bytes, tuple[int, int]]
    watermark: int
    outbox: dict[int, list[tuple[int, bytes]]]
    numbered: dict[int, int]
    answers: list[tuple[bytes, Answer]]
    dead: list[DeadLetter]
    buried_count: int
    subscribers: dict[str, list[str]]
    epoch: int
    owner: str
    last_id: str
    closed_for: str | None
    next_slot: int
    cut: int = 0
    letters_lost: tuple[int, int] = (0, 0)
    generations: int = 0
    begun: dict[bytes, tuple[int, int, int, str, int]] = {}


class Extras(Struct, array_like=True):
    """What hangs on a job besides its record."""

    mail: list[Envelope] = []
    remembered: dict[str, Remembered] = {}
    steps: list[tuple[str, str, bytes]] = []

    def size_bytes(self) -> int:
        """About so many."""
        size = sum(map(envelope_bytes, self.mail)) + sum(len(result) for _, _, result in self.steps)
        return size + sum(60 + _answer_bytes(answer) for _, answer in self.remembered.values())

    def hang_on(self, state: PartitionState, job: str) -> None:
        """Put it back into a state, behind what is there."""
        if self.mail:
            state.mail.setdefault(job, deque()).extend(self.mail)
        for id, (until_ms, answer) in self.remembered.items():
            state.remember(job, id, until_ms, answer)
        if self.steps:
            state.steps.setdefault(job, {}).update(((turn, name), result) for turn, name, result in self.steps)

    def parts(self) -> "Iterator[Extras]":
        """The same, in pieces that are not large."""
        for mail in _cut(self.mail, envelope_bytes):
            yield Extras(mail)
        for known in _cut(self.remembered.items(), lambda one: 60 + _answer_bytes(one[1][1])):
            yield Extras([], dict(known))
        for steps in _cut(self.steps, lambda step: len(step[2])):
            yield Extras([], {}, steps)


class _Piece(Struct, array_like=True):
    """Part of an image. Pieces may be cut anywhere between jobs; the first one has the rest, or, where that is large,
    some of it."""

    meta: _Meta | None = None
    jobs: dict[str, JobRecord] = {}
    extras: dict[str, Extras] = {}
    dead: list[DeadLetter] = []
    outbox: list[tuple[int, int, bytes]] = []
    answers: list[tuple[bytes, Answer]] = []
    cursors: dict[bytes, tuple[int, int]] = {}
    subscribers: list[tuple[str, list[str]]] = []
    """What is there of a topic's already comes before these."""


class Frozen:
    """The state at one journal position, held while the owner goes on. Job records are never changed in
    place, so a copy of the table is a copy of the state. What hangs on a job besides is copied when the image comes
    to it, or, if that is sooner, before the state changes it."""

    def __init__(self, state: PartitionState) -> None:
        self.next_slot = state.next_slot
        copied = {name: dict(getattr(state, name)) for name in ("cursors", "numbered", "begun")}
        self.meta = _Meta(**{**state.meta(), **copied})
        self.jobs = dict(state.jobs)
        self._is_large = _meta_bytes(self.meta) > META_BYTES_MAX
        self._mail, self._remembered, self._steps = dict(state.mail), dict(state.remembered), dict(state.steps)
        self._copied: dict[str, Extras] = {}
        state.frozen.add(self)

    def extras(self) -> Iterator[tuple[str, Extras]]:
        """What hangs on jobs besides their records; the caller may rest between any two."""
        for job in list(dict.fromkeys((*self._mail, *self._remembered, *self._steps))):
            yield job, self.copied(job)

    def copied(self, job: str) -> Extras:
        """That of one job, as it was when this was made: to be asked for before it changes."""
        extras = self._copied.get(job)
        if extras is None:
            extras = self._copied[job] = Extras(
                [copy(envelope) for envelope in self._mail.get(job, ())],  # `attempts` may change
                dict(self._remembered.get(job, {})),
                [(turn, name, result) for (turn, name), result in self._steps.get(job, {}).items()],
            )
        return extras

    def chunks(self, chunk_bytes_max: int, encode: Callable[[object], bytes] = encode) -> Iterator[bytes]:
        """The image, piece by piece; the caller may rest between any two."""
        waiting = bytearray()
        for piece, is_for_newer in self._pieces():
            encoded = encode(piece)
            if is_for_newer:
                encoded = marked(encoded)
            waiting += len(encoded).to_bytes(4, "big") + encoded
            while len(waiting) >= chunk_bytes_max:
                yield bytes(waiting[:chunk_bytes_max])
                del waiting[:chunk_bytes_max]
        if waiting:
            yield bytes(waiting)

    def _pieces(self) -> Iterator[tuple[_Piece, bool]]:
        """With each: would older versions make something else of it?"""
        if self._is_large:
            yield _Piece(meta=replace(self.meta, dead=[], outbox={}, answers=[], cursors={}, subscribers={})), True
            yield from ((piece, False) for piece in self._tables())
        else:
            yield _Piece(meta=self.meta), bool(self.meta.begun)
        for jobs in _cut(self.jobs.items(), lambda job: _record_bytes(job[1])):
            yield _Piece(jobs=dict(jobs)), False
        sized = ((job, extras, extras.size_bytes()) for job, extras in self.extras())
        for some in _cut(sized, itemgetter(2)):
            job, extras, size_bytes = some[0]
            if size_bytes > (PIECE_BYTES_MAX if self._is_large else META_BYTES_MAX):
                yield from ((_Piece(extras={job: part}), True) for part in extras.parts())
            else:
                yield _Piece(extras={job: extras for job, extras, _ in some}), False

    def _tables(self) -> Iterator[_Piece]:
        """What would make the first piece large."""
        meta = self.meta
        for dead in _cut(meta.dead, lambda letter: envelope_bytes(letter.envelope) + len(letter.detail)):
            yield _Piece(dead=dead)
        slots = ((partition, n, slot) for partition, slots in meta.outbox.items() for n, slot in slots)
        for outbox in _cut(slots, lambda slot: len(slot[2])):
            yield _Piece(outbox=outbox)
        for answers in _cut(meta.answers, lambda answer: len(answer[1].body)):
            yield _Piece(answers=answers)
        for cursors in _cut(meta.cursors.items(), lambda cursor: 40):
            yield _Piece(cursors=dict(cursors))
        jobs = ((topic, job) for topic, jobs in meta.subscribers.items() for job in jobs)
        for pairs in _cut(jobs, lambda pair: 20 + len(pair[1])):
            by_topic = groupby(pairs, key=itemgetter(0))
            yield _Piece(subscribers=[(topic, [job for _, job in some]) for topic, some in by_topic])


def _cut(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """In pieces of so many bytes, and so many items, at most; but for one that is larger."""
    piece: list[T] = []
    size_bytes = 0
    for item in items:
        size = size_of(item)
        if piece and (size_bytes + size > PIECE_BYTES_MAX or len(piece) >= JOBS_PER_PIECE):
            yield piece
            piece, size_bytes = [], 0
        piece.append(item)
        size_bytes += size
    if piece:
        yield piece


def _meta_bytes(meta: _Meta) -> int:
    """About so many."""
    return (
        sum(envelope_bytes(letter.envelope) for letter in meta.dead)
        + sum(len(slot) for slots in meta.outbox.values() for _, slot in slots)
        + sum(len(answer.body) for _, answer in meta.answers)
        + 40 * len(meta.cursors)
        + 40 * sum(map(len, meta.subscribers.values()))
    )


def _record_bytes(record: "JobRecord | Raw") -> int:
    """About so many. Of a job that is being restored there is only its bytes."""
    if isinstance(record, Raw):
        return len(record)
    size = 100 + len(record.state)
    if record.activities or record.pickled:
        size += len(record.pickled) + sum(len(each.work) + len(each.result) for each in record.activities)
    return size


def _answer_bytes(answer: Answer | None) -> int:
    return 0 if answer is None else len(answer.body)


def checksum_of(chunks: Iterable[bytes]) -> bytes:
    """The checksum that a head keeps of its image."""
    digest = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def thaw(chunks: Iterable[bytes]) -> PartitionState:
    """The state from its image; raises `Undecodable` if it is none."""
    state = PartitionState()
    for piece in _read(chunks):
        _thaw_piece(state, piece)
    return state


async def thaw_at_rest(chunks: Iterable[bytes], rest: Callable[[], Awaitable[None]]) -> PartitionState:
    """The same, resting after each piece."""
    state = PartitionState()
    for piece in _read(chunks):
        _thaw_piece(state, piece)
        await rest()
    return state


def _thaw_piece(state: PartitionState, piece: _Piece) -> None:
    if piece.meta is not None:
        _thaw_meta(state, piece.meta)
    state.jobs.update(piece.jobs)
    for job, extras in piece.extras.items():
        extras.hang_on(state, job)
    state.dead.update((letter.n, letter) for letter in piece.dead)
    for partition, n, slot in piece.outbox:
        state.outbox.setdefault(partition, deque()).append((n, slot))
    state.answers.update(((client, answer.n), answer) for client, answer in piece.answers)
    state.cursors.update(piece.cursors)
    for topic, jobs in piece.subscribers:
        state.subscribers.setdefault(topic, {}).update(dict.fromkeys(jobs))


def _read(chunks: Iterable[bytes]) -> Iterator[_Piece]:
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        start = 0
        while len(waiting) - start >= 4:
            end = start + 4 + int.from_bytes(waiting[start : start + 4], "big")
            if len(waiting) < end:
                break
            yield decode(bytes(waiting[start + 4 : end]), _Piece)
            start = end
        del waiting[:start]
    if waiting:
        raise Undecodable("an image that ends in the middle of a piece")


def _thaw_meta(state: PartitionState, meta: _Meta) -> None:
    state.cursors, state.numbered = meta.cursors, meta.numbered
    state.watermark, state.buried_count = meta.watermark, meta.buried_count
    state.letters_lost = meta.letters_lost
    state.outbox = {partition: deque(slots) for partition, slots in meta.outbox.items()}
    state.answers = {(client, answer.n): answer for client, answer in meta.answers}
    state.dead = {letter.n: letter for letter in meta.dead}
    state.subscribers = {topic: dict.fromkeys(jobs) for topic, jobs in meta.subscribers.items()}
    state.epoch, state.owner, state.last_id, state.cut = meta.epoch, meta.owner, meta.last_id, meta.cut
    state.closed_for, state.next_slot, state.begun = meta.closed_for, meta.next_slot, meta.begun
    state.generations = meta.generations
