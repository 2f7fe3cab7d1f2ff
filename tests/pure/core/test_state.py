"""A partition's state: owner, successor and image come to the same, whatever was committed."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from random import Random
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, msgpack

from tenure.scheduler import image
from tenure.scheduler.draft import Draft
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.formats import format_of
from tenure.scheduler.image import Frozen, _read, checksum_of, thaw
from tenure.scheduler.state import PartitionState
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import (
    Answer,
    DeadLetter,
    Envelope,
    JobRecord,
    Record,
    RecordKind,
    Status,
    Timer,
    decode,
    encode,
)

JOBS = ["a", "b", "c", "ü" * 40]
SEEDS = st.integers(0, 2**32)
SENDERS = [b"\x01client1", b"\x01client2", b"\x00par\x00\x00\x00\x05"]


class Owner:
    """Commits at random whatever a tenure may commit."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.state = PartitionState()
        self.slot = self.messages = 0
        self.cursors: dict[bytes, tuple[int, int]] = {}
        """As the owner itself knows them, who has taken one after another what its records have in tables."""
        self.boxes: dict[str, list[tuple[int, int]]] = {}
        """So are these: job -> what waits for it, each with its attempts"""
        self.steps: dict[str, dict[tuple[str, str], bytes]] = {}
        self.outbox: dict[int, dict[int, bytes]] = {}
        self.answers: list[int] = []
        self.topics: dict[str, list[str]] = {}
        self.dead: list[int] = []

    def commit(self) -> bytes:
        """One more record; returns it as it is stored."""
        dice, state = self.dice, self.state
        kind = dice.choices((RecordKind.TURNS, RecordKind.OPENING, RecordKind.CLOSING), (8, 1, 1))[0]
        epoch = state.epoch + (kind == RecordKind.OPENING)
        record = Record(f"r{self.slot}", state.last_id, kind, epoch, f"n{epoch}", self.slot)
        if kind == RecordKind.CLOSING:
            record.successor = dice.choice(("", "n9"))
        elif kind == RecordKind.TURNS:
            for part in (self.jobs, self.mail, self.lanes, self.sent, self.letters):
                if dice.random() < 0.6:
                    part(record)
        stored = encode(record)
        state.apply(decode(stored, Record), self.slot)
        self.slot += dice.choice((1, 1, 1, 2))
        return stored

    def message(self, to: str) -> Envelope:
        self.messages += 1
        body = Raw(msgpack.encode(self.dice.choice((self.messages, "x" * 200))))
        return Envelope(to, body, slot=b"\x01client1" + bytes(16), index=self.messages)

    def jobs(self, record: Record) -> None:
        dice = self.dice
        for id in dice.sample(JOBS, dice.randint(1, 3)):
            if id in self.state.jobs and dice.random() < 0.2:
                record.gone.append(id)
            if id not in record.gone or dice.random() < 0.3:  # or made anew
                timer = dice.choice((None, Timer(dice.randrange(10**13)), Timer(0, "* * * * *", "UTC", 60_000)))
                state = dice.randbytes(dice.choice((0, 10, 900)))
                record.jobs[id] = JobRecord("t", 1, 1, self.slot, Status.RUNNING, state, self.slot, timer)
        record.subscribed = [(dice.choice("xyz"), id, dice.random() < 0.6) for id in record.jobs]
        for id in record.gone:
            self.steps.pop(id, None)
        for topic, id, wanted in record.subscribed:
            jobs = self.topics.setdefault(topic, [])
            if wanted and id not in jobs:
                jobs.append(id)
            elif not wanted and id in jobs:
                jobs.remove(id)

    def mail(self, record: Record) -> None:
        dice, state = self.dice, self.state
        for id in dice.sample(JOBS, 2):
            record.mailed[id] = [self.message(id) for _ in range(dice.randint(1, 3))]
            whole = [*self.edited(id, record), *record.mailed[id]]
            attempts = dict(self.boxes.get(id, ()))
            if done := dice.randint(0, len(whole)):
                record.unmailed[id] = done
            if left := whole[done:]:
                record.attempted[id] = [dice.randint(0, 3) for _ in range(dice.randint(1, len(left)))]
                counted = zip(left, record.attempted[id], strict=False)
                attempts |= {envelope.index: count for envelope, count in counted}
            self.boxes[id] = [(envelope.index, attempts.get(envelope.index, 0)) for envelope in left]
            self.end_steps(id, left)
            if left and id in {**state.jobs, **record.jobs} and id not in record.gone:
                record.steps.append((id, turn_id(id, 1, left[0]), "step", dice.randbytes(5)))
                self.steps.setdefault(id, {})[record.steps[-1][1:3]] = record.steps[-1][3]

    def end_steps(self, id: str, left: list[Envelope]) -> None:
        """Of the turns of what waits no more."""
        turns = {turn_id(id, 1, envelope) for envelope in left}
        self.steps[id] = {key: result for key, result in self.steps.get(id, {}).items() if key[0] in turns}

    def edited(self, id: str, record: Record) -> list[Envelope]:
        """Its mailbox, as what is put in and taken out leaves it."""
        dice, box = self.dice, list(self.state.mail.get(id, ()))
        while box and dice.random() < 0.4:
            at, count = dice.randrange(len(box)), dice.randint(1, 3)
            if dice.random() < 0.5:
                count = min(count, len(box) - at)
                del box[at : at + count]
                record.edited.append((id, at, count, None))
            else:
                box.insert(at, self.message(id))
                record.edited.append((id, at, 0, box[at]))
        return box

    def lanes(self, record: Record) -> None:
        """Some are taken from, some are forgotten, and what was forgotten may begin again: all in one record."""
        dice, draft = self.dice, Draft()
        for _ in range(dice.randint(1, 6)):
            sender = dice.choice(SENDERS)
            if sender in self.cursors and sender[0] and dice.random() < 0.4:
                draft.forget(sender, self.cursors.pop(sender))
            else:
                lane, n = self.cursors.get(sender, (draft.watermark + 1, 0))
                self.cursors[sender] = dice.choice(((lane, n + 1), (lane + 5, 1)))
                draft.take(sender, *self.cursors[sender])
        lanes = draft.freeze(Record("", "", 0, 0, "", 0), self.state)
        record.cursors, record.forgotten, record.watermark = lanes.cursors, lanes.forgotten, lanes.watermark

    def sent(self, record: Record) -> None:
        dice, state = self.dice, self.state
        for partition in dice.sample(range(4), 2):
            n = state.numbered.get(partition, 0)
            record.outbox += [(partition, n + i, dice.randbytes(20)) for i in range(dice.randint(0, 2))]
            slots = self.outbox.setdefault(partition, {})
            slots |= {n: slot for to, n, slot in record.outbox if to == partition}
            if partition in state.outbox:
                below = record.arrived[partition] = dice.randint(state.outbox[partition][0][0], n)
                self.outbox[partition] = {n: slot for n, slot in slots.items() if n >= below}
        record.answers = [(b"\x01client1", Answer(self.slot, dice.random() < 0.5, Raw(b"\x01")))]
        record.answered = [key for key in state.answers if dice.random() < 0.5]
        over = [n for _, n in record.answered]
        self.answers = [n for n in (*self.answers, self.slot) if n not in over]
        if record.cursors and dice.random() < 0.5:
            sender = dice.choice(SENDERS)
            lane, n = record.cursors.get(sender, state.cursors.get(sender, (1, 0)))
            record.begun = {sender: (lane, n, dice.randrange(9), dice.choice(JOBS), dice.randrange(9))}
        answer = dice.choice((None, Answer(0, True, Raw(b"\x01"))))
        record.remembered = [(dice.choice(JOBS), f"id{self.slot}", self.slot + 5, answer)]

    def letters(self, record: Record) -> None:
        n = self.state.buried_count + 1
        record.buried = [DeadLetter(n, self.message("nobody"), "UnknownJob", "there is none", self.slot)]
        record.exhumed = [n for n in self.state.dead if self.dice.random() < 0.3]
        self.dead = [n for n in (*self.dead, n) if n not in record.exhumed]


def content(state: PartitionState) -> dict[str, Any]:
    """All of it, in a form that can be compared, in which order counts where it means something."""
    found = {name: value for name, value in vars(state).items() if name != "frozen"}
    found["mail"] = {job: list(box) for job, box in state.mail.items()}
    found["outbox"] = {partition: list(slots) for partition, slots in state.outbox.items()}
    found["subscribers"] = {topic: list(jobs) for topic, jobs in state.subscribers.items()}
    found["answers"] = list(state.answers.items())
    return found


@given(SEEDS, st.integers(1, 40))
def test_what_is_committed_is_what_the_owner_has_done(seed: int, records: int) -> None:
    owner, state = Owner(Random(seed)), PartitionState()
    for _ in range(records):
        owner.commit()
        state = owner.state
        assert state.cursors == owner.cursors
        boxes = {job: [(envelope.index, envelope.attempts) for envelope in box] for job, box in state.mail.items()}
        assert boxes == {job: box for job, box in owner.boxes.items() if box}
        assert state.steps == {job: steps for job, steps in owner.steps.items() if steps}
        outbox = {partition: dict(slots) for partition, slots in state.outbox.items()}
        assert outbox == {partition: slots for partition, slots in owner.outbox.items() if slots}
        assert [n for _, n in state.answers] == owner.answers
        subscribers = {topic: list(jobs) for topic, jobs in state.subscribers.items()}
        assert subscribers == {topic: jobs for topic, jobs in owner.topics.items() if jobs}
        assert list(state.dead) == owner.dead


def test_a_lane_that_begins_in_the_record_that_forgets_the_one_before_is_known() -> None:
    """Also where an older version wrote the record, which has the client in both tables."""
    state = PartitionState()
    state.cursors = {b"\x01client1": (5, 3)}
    record = Record("r1", "", RecordKind.TURNS, 1, "n1", 0, cursors={b"\x01client1": (9, 1)}, watermark=5)
    record.forgotten = [b"\x01client1"]
    state.apply(record, 0)
    assert (state.cursors, state.watermark) == ({b"\x01client1": (9, 1)}, 5)


def test_steps_of_a_job_that_is_made_anew_in_the_record_that_removes_it_are_kept() -> None:
    state = PartitionState()
    state.jobs = {"a": JobRecord("t", 1, 1, 1, Status.RUNNING, b"")}
    state.steps = {"a": {("a/1/started", "old"): b""}}
    record = Record("r1", "", RecordKind.TURNS, 1, "n1", 0, gone=["a"])
    record.jobs = {"a": JobRecord("t", 1, 2, 3, Status.RUNNING, b"")}
    record.steps = [("a", "a/2/started", "new", b"")]
    state.apply(record, 0)
    assert state.steps == {"a": {("a/2/started", "new"): b""}}


@given(SEEDS, st.integers(1, 40), st.integers(0, 40), st.integers(1, 3000))
def test_an_image_and_the_records_after_it_come_to_the_same_as_all_records(
    seed: int, before: int, after: int, chunk_bytes: int
) -> None:
    owner = Owner(Random(seed))
    for _ in range(before):
        owner.commit()
    chunks = list(Frozen(owner.state).chunks(chunk_bytes))
    assert all(len(chunk) == chunk_bytes for chunk in chunks[:-1])
    successor = thaw(chunks)
    assert content(successor) == content(owner.state)
    for _ in range(after):
        slot = owner.slot
        successor.apply(decode(owner.commit(), Record), slot)
        assert content(successor) == content(owner.state)


@given(SEEDS, st.integers(1, 40), st.integers(0, 20))
def test_an_image_in_many_small_pieces_comes_to_the_same(seed: int, before: int, after: int) -> None:
    owner = Owner(Random(seed))
    for _ in range(before):
        owner.commit()
    with small_pieces():
        pieces = list(_read(Frozen(owner.state).chunks(1000)))
    assert max(len(encode(piece)) for piece in pieces) < 3000
    with small_pieces():
        successor = thaw(Frozen(owner.state).chunks(1000))
    assert content(successor) == content(owner.state)
    for _ in range(after):
        slot = owner.slot
        successor.apply(decode(owner.commit(), Record), slot)
        assert content(successor) == content(owner.state)


@contextmanager
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image, "PIECE_BYTES_MAX", 300)
        patch.setattr(image, "META_BYTES_MAX", 0)
        yield


def test_a_large_image_is_cut_into_pieces_that_are_encoded_and_read_one_by_one() -> None:
    state = PartitionState()
    for n in range(8):
        state.jobs[f"j{n}"] = JobRecord("t", 1, 1, 1, Status.RUNNING, b"x" * 2**20)
        state.mail[f"j{n}"] = deque(Envelope(f"j{n}", Raw(msgpack.encode("x" * 2**16)), index=i) for i in range(48))
        state.dead[n] = DeadLetter(n, Envelope("nobody", Raw(msgpack.encode("x" * 2**19))), "UnknownJob", "", 0)
        state.outbox[n] = deque([(0, b"x" * 2**19)])
        for i in range(1000):
            state.remember(f"j{n}", f"id{i}" * 10, i, Answer(0, True, Raw(msgpack.encode("x" * 1000))))
    state.cursors = {n.to_bytes(8, "big"): (1, n) for n in range(40_000)}
    state.subscribers = {"news": {f"subscriber-{n}": None for n in range(40_000)}}
    chunks = list(Frozen(state).chunks(2**18))
    pieces = list(_read(chunks))
    assert max(len(encode(piece)) for piece in pieces) <= 2**20 + 1000
    assert content(thaw(chunks)) == content(state)
    first = int.from_bytes(chunks[0][:4], "big")
    with pytest.raises(UnreadableFormat):  # by older versions, which would miss what is cut off
        format_of(chunks[0][4:][0])
    assert first < 1000


def test_the_first_piece_of_an_image_that_is_not_large_is_as_older_versions_read_it() -> None:
    owner = Owner(Random(5))
    for _ in range(40):
        owner.commit()
    owner.state.begun.clear()
    chunks = list(Frozen(owner.state).chunks(2**18))
    assert chunks[0][4] == 1
    (meta, *_) = _read(chunks)
    assert meta.meta is not None
    assert meta.meta.cursors == owner.state.cursors
    assert meta.meta.dead == list(owner.state.dead.values())


@given(SEEDS, st.integers(1, 30), st.integers(1, 30))
def test_an_image_shows_the_moment_at_which_it_was_frozen_though_the_owner_goes_on(
    seed: int, before: int, after: int
) -> None:
    owner = Owner(Random(seed))
    for _ in range(before):
        owner.commit()
    frozen, at_once = Frozen(owner.state), list(Frozen(owner.state).chunks(100))
    position = owner.state.next_slot
    for _ in range(after):
        owner.commit()
    assert list(frozen.chunks(100)) == at_once
    assert frozen.next_slot == position


def test_no_step_of_an_image_of_a_large_state_takes_long() -> None:
    state = PartitionState()
    for n in range(50_000):
        job = f"job-{n}"
        state.jobs[job] = JobRecord("t", 1, 1, 1, Status.RUNNING, b"x" * 50)
        state.mail[job] = deque([Envelope(job, Raw(b"\xc0")) for _ in range(2)])
        state.steps[job] = {("turn", "step"): b"x"}
        for i in range(4):
            state.remember(job, f"{n}.{i}", 10**13, None)
    longest_s, began_s = 0.0, process_time()
    for step in chain([Frozen], Frozen(state).chunks(2**18)):
        longest_s = max(longest_s, process_time() - began_s)
        if step is Frozen:
            assert longest_s < 0.15
        began_s = process_time()
    assert longest_s < 0.25


@given(SEEDS, st.integers(1, 30))
def test_a_damaged_image_is_known_by_its_checksum(seed: int, before: int) -> None:
    owner = Owner(Random(seed))
    for _ in range(before):
        owner.commit()
    chunks = list(Frozen(owner.state).chunks(100))
    broken = list(chunks)
    at = seed % len(chunks)
    broken[at] = bytes((broken[at][0] ^ 1,)) + broken[at][1:]
    assert checksum_of(broken) != checksum_of(chunks)
    assert checksum_of(chunks[:-1]) != checksum_of(chunks)


def test_an_image_that_ends_in_mid_piece_is_refused() -> None:
    (chunk,) = Frozen(PartitionState()).chunks(10**6)
    with pytest.raises(Undecodable):
        thaw([chunk[:-1]])


def test_what_was_remembered_is_dropped_when_its_time_is_over_and_nothing_else() -> None:
    state = PartitionState()
    for job, id, until_ms in (("a", "x", 10), ("a", "y", 20), ("b", "z", 10), ("", "w", 30), ("", "v", 10)):
        state.remember(job, id, until_ms, None)
    for job in ("a", "b", "", "nobody"):
        state.forget_expired(job, 10)
    assert state.remembered == {"a": {"y": (20, None)}, "": {"w": (30, None)}}
    assert (state.remembered_count, state.remembered_bytes) == (2, 24 + 2 + 24 + 1)


def test_very_much_that_is_remembered_is_dropped_some_at_a_time() -> None:
    state = PartitionState()
    for n in range(25_000):
        state.remember("a", f"order-{n}", 10, None)
    state.remember("a", "later", 20, None)
    steps = 0
    while not state.forget_expired("a", 10):
        steps += 1
        assert len(state.remembered["a"]) == 25_001 - 10_000 * steps
    assert (steps, state.remembered) == (2, {"a": {"later": (20, None)}})


def test_a_removed_job_leaves_nothing_that_hangs_on_it() -> None:
    state = PartitionState()
    record = Record("r1", "", RecordKind.TURNS, 1, "n1", 0)
    record.jobs = {"a": JobRecord("t", 1, 1, 1, Status.RUNNING, b"")}
    record.remembered = [("a", "x", 99, None)]
    state.apply(record, 0)
    state.steps["a"] = {("t", "n"): b""}
    state.apply(Record("r2", "r1", RecordKind.TURNS, 1, "n1", 0, gone=["a"]), 1)
    assert (state.jobs, state.remembered, state.steps) == ({}, {}, {})
