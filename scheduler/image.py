"""A partition's state as chunks of bytes, and back. Linear in the bytes, and cut so that nobody waits long."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice

from msgspec import Struct

from tenure.scheduler.errors import Undecodable
from tenure.scheduler.state import PartitionState, Remembered
from tenure.scheduler.wire import Answer, DeadLetter, Envelope, JobRecord, decode, encode, marked

__all__ = ["Extras", "Frozen", "checksum_of", "thaw"]

JOBS_PER_PIECE = 512


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

    def hang_on(self, state: PartitionState, job: str) -> None:
        """Put it back into a state."""
        if self.mail:
            state.mail[job] = deque(self.mail)
        if self.remembered:
            state.remembered[job] = self.remembered
        if self.steps:
            state.steps[job] = {(turn, name): result for turn, name, result in self.steps}


class _Piece(Struct, array_like=True):
    """Part of an image. Pieces may be cut anywhere between jobs; the first one has the rest."""

    meta: _Meta | None = None
    jobs: dict[str, JobRecord] = {}
    extras: dict[str, Extras] = {}


class Frozen:
    """The state at one journal position, held while the owner goes on. Job records are never changed in
    place, so a copy of the table is a copy of the state."""

    def __init__(self, state: PartitionState) -> None:
        self.next_slot = state.next_slot
        copied = {name: dict(getattr(state, name)) for name in ("cursors", "numbered", "begun")}
        self.meta = _Meta(**{**state.meta(), **copied})
        self.jobs = dict(state.jobs)
        self.extras: dict[str, Extras] = {}
        for job, mail in state.mail.items():
            self._extra(job).mail = [copy(envelope) for envelope in mail]  # `attempts` may change
        for job, remembered in state.remembered.items():
            self._extra(job).remembered = dict(remembered)
        for job, steps in state.steps.items():
            self._extra(job).steps = [(turn, name, result) for (turn, name), result in steps.items()]

    def _extra(self, job: str) -> Extras:
        return self.extras.setdefault(job, Extras())

    def chunks(self, chunk_bytes_max: int, encode: Callable[[object], bytes] = encode) -> Iterator[bytes]:
        """The image, piece by piece; the caller may rest between any two."""
        waiting = bytearray()
        for piece in self._pieces():
            encoded = encode(piece)
            if piece.meta is not None and piece.meta.begun:
                encoded = marked(encoded)
            waiting += len(encoded).to_bytes(4, "big") + encoded
            while len(waiting) >= chunk_bytes_max:
                yield bytes(waiting[:chunk_bytes_max])
                del waiting[:chunk_bytes_max]
        if waiting:
            yield bytes(waiting)

    def _pieces(self) -> Iterator[_Piece]:
        yield _Piece(meta=self.meta)
        jobs = iter(self.jobs.items())
        while part := dict(islice(jobs, JOBS_PER_PIECE)):
            yield _Piece(jobs=part)
        extras = iter(self.extras.items())
        while some := dict(islice(extras, JOBS_PER_PIECE)):
            yield _Piece(extras=some)


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
        if piece.meta is not None:
            _thaw_meta(state, piece.meta)
        state.jobs.update(piece.jobs)
        for job, extras in piece.extras.items():
            extras.hang_on(state, job)
    return state


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
