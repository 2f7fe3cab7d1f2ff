"""Both ends of a client's lanes, without I/O, and between them whatever a grid may do to slots."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, msgpack

from tenure.scheduler.inlanes import GAP_MAX, PROOF, InLanes, is_passed
from tenure.scheduler.keys import partition_sender, slot_key
from tenure.scheduler.outlanes import Action, OutLane, Step, Ticket
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.wire import Batch, Envelope, Kind, decode, encode

CLIENT, OTHER = b"\x01client1", b"\x01client2"
LIFETIME_S = 100.0


def message(n: int) -> Envelope:
    return Envelope("a", Raw(msgpack.encode(n)), id=str(n))


def batch(*messages: int, after: tuple[int, int] = (0, 0)) -> bytes:
    return encode(Batch([message(n) for n in messages], *after, holds_back=True))


def numbers(stored: bytes) -> list[int]:
    return [msgpack.decode(envelope.body) for envelope in decode(stored, Batch).envelopes]


def out_lane(**settings: int) -> OutLane:
    return OutLane(CLIENT, ClientSettings(lane_lifetime_s=LIFETIME_S, **settings))


def begun(lane: OutLane, *, watermark: int = 0, wall_ms: int = 1000, now_s: float = 0.0) -> OutLane:
    lane.begun(watermark, wall_ms, now_s)
    return lane


def add(lane: OutLane, *messages: int) -> Ticket:
    ticket = Ticket()
    for n in messages:
        lane.add(message(n), ticket, 50)
    return ticket


def step(lane: OutLane, now_s: float = 0.0) -> Step:
    found = lane.next_step(now_s)
    assert found is not None
    return found


# -- the sending end ----------------------------------------------------------------------------------


def test_nothing_is_written_before_the_watermark_is_known_and_lanes_are_born_above_it() -> None:
    lane = out_lane()
    assert lane.next_step(0.0) is None
    add(lane, 1)
    assert step(lane).action is Action.BEGIN
    begun(lane, watermark=5000, wall_ms=1000)
    assert step(lane) == Step(Action.WRITE, slot_key(CLIENT, 5001, 0), batch(1))


def test_the_next_lane_is_born_after_the_last_one_though_the_clock_went_back() -> None:
    lane = begun(out_lane(), wall_ms=9000)
    add(lane, 1)
    step(lane)
    lane.stored(0.0)
    add(lane, 2)
    assert step(lane, LIFETIME_S).action is Action.BEGIN
    begun(lane, wall_ms=10, now_s=LIFETIME_S)
    assert step(lane, LIFETIME_S).key == slot_key(CLIENT, 9001, 0)


def test_what_was_tried_is_repeated_byte_for_byte_whatever_came_since() -> None:
    lane = begun(out_lane())
    add(lane, 1)
    first = step(lane)
    add(lane, 2)
    lane.unsure()
    assert step(lane) == first
    lane.stored(1.0)
    assert step(lane).value == batch(2)


@pytest.mark.parametrize("limits", [{"batch_messages_max": 2}, {"batch_bytes_max": 149}])
def test_batches_are_bounded(limits: dict[str, int]) -> None:
    lane = begun(out_lane(**limits))
    add(lane, *range(5))
    taken = []
    for _ in range(3):
        taken.append(numbers(step(lane).value))
        lane.stored(0.0)
    assert taken == [[0, 1], [2, 3], [4]]


def test_no_slot_is_written_a_window_ahead_of_what_was_consumed() -> None:
    lane = begun(out_lane(window_slots=4, batch_messages_max=1))
    add(lane, *range(20))
    written = 0
    while step(lane).action is Action.WRITE:
        lane.stored(0.0)
        written += 1
    assert written == 4
    look = step(lane)
    assert look == Step(Action.LOOK, slot_key(CLIENT, 1000, 2))
    lane.looked(False)
    assert step(lane) == look
    lane.looked(True)
    while step(lane).action is Action.WRITE:
        lane.stored(0.0)
        written += 1
    assert written == 7, "slot 2 is gone, so slots up to 6 may be written"


def test_tickets_are_told_when_all_of_theirs_is_stored() -> None:
    lane = begun(out_lane(batch_messages_max=2))
    first, second = add(lane, 0, 1, 2), add(lane, 3)
    step(lane)
    assert lane.stored(0.0) == []
    step(lane)
    assert lane.stored(0.0) == [first, second]
    assert not first.doubtful
    assert lane.waiting_bytes == 0


def test_an_acknowledgement_that_comes_too_late_counts_as_unknown() -> None:
    lane = begun(out_lane())
    ticket = add(lane, 1)
    step(lane)
    assert lane.stored(LIFETIME_S / 2 + 1) == [ticket]
    assert ticket.doubtful
    add(lane, 2)
    assert step(lane, LIFETIME_S).action is Action.BEGIN


def test_a_try_is_not_repeated_when_its_lane_is_old() -> None:
    lane = begun(out_lane())
    ticket, behind = add(lane, 1), Ticket()
    step(lane)
    lane.unsure()
    lane.add(message(2), behind, 50)
    assert step(lane, LIFETIME_S / 4 + 1).action is Action.WRITE
    assert step(lane, LIFETIME_S / 2 + 1).action is Action.DOUBT
    assert lane.give_up() == [ticket]
    assert ticket.doubtful
    assert step(lane, LIFETIME_S).action is Action.BEGIN
    begun(lane, wall_ms=2000, now_s=LIFETIME_S)
    assert step(lane, LIFETIME_S).value == batch(2), "the lane stored nothing, so there is nothing to be after"


def test_what_was_never_tried_moves_to_the_next_lane_which_says_where_the_last_one_ended() -> None:
    lane = begun(out_lane())
    add(lane, 1)
    step(lane)
    lane.stored(0.0)
    add(lane, 2, 3)
    assert step(lane).action is Action.WRITE
    assert step(lane, LIFETIME_S / 4 + 1).action is Action.BEGIN
    begun(lane, wall_ms=2000, now_s=30.0)
    assert step(lane, 30.0).value == batch(2, 3, after=(1000, 1))
    assert step(lane, 30.0 + LIFETIME_S / 4 + 1).action is Action.BEGIN
    begun(lane, wall_ms=3000, now_s=60.0)
    assert step(lane, 60.0).value == batch(2, 3, after=(1000, 1)), "a lane that stored nothing is no link"


@pytest.mark.parametrize(
    ("was", "incarnation_was", "now", "incarnation", "follows"),
    [
        ("one", 1, "one", 1, (1000, 1)),
        ("one", 1, "two", 2, (0, 0)),
        ("", 0, "one", 1, (1000, 1)),
        ("", 0, "two", 2, (0, 0)),
    ],
)
def test_a_lane_that_was_left_in_time_is_no_link_to_one_in_a_cluster_that_was_restored_since(
    was: str, incarnation_was: int, now: str, incarnation: int, follows: tuple[int, int]
) -> None:
    """Nobody there knows where it ended: what is acknowledged in the next one would never be taken."""
    lane = out_lane()
    add(lane, 1)
    lane.begun(0, 1000, 0.0, was, incarnation_was)
    step(lane)
    lane.stored(1.0)
    add(lane, 2)
    assert step(lane, LIFETIME_S).action is Action.BEGIN, "the old one was left as it was old"
    lane.begun(0, 2000, LIFETIME_S, now, incarnation)
    written = decode(step(lane, LIFETIME_S).value, Batch)
    assert (written.after_lane, written.after_n) == follows


def test_what_a_caller_withdraws_is_not_written_unless_it_was_tried() -> None:
    lane = begun(out_lane(batch_messages_max=1))
    ticket = add(lane, 1, 2)
    other = add(lane, 3)
    frozen = step(lane)
    lane.withdraw(ticket)
    assert step(lane) == frozen
    lane.stored(0.0)
    assert step(lane).value == batch(3)
    assert lane.stored(0.0) == [other]
    assert (lane.waiting_bytes, ticket.done) == (0, False)


def test_only_messages_to_jobs_that_are_full_are_held_back() -> None:
    lane, ticket = out_lane(), Ticket()
    envelopes = [Envelope(to, kind=kind) for to in ("full", "other") for kind in (Kind.MESSAGE, Kind.STATE)]
    for envelope in envelopes:
        lane.add(envelope, ticket, 50)
    assert [waiting.envelope for waiting in lane.take_out({"full"})] == envelopes[:1]
    assert [waiting.envelope for waiting in lane.waiting] == envelopes[1:]
    assert lane.freed_bytes() == 50


# -- the receiving end --------------------------------------------------------------------------------


def take_all(lanes: InLanes, sender: bytes = CLIENT) -> list[int]:
    taken: list[int] = []
    while (slot := lanes.next_slot(sender)) is not None:
        lanes.take(slot)
        if slot.value != PROOF:
            taken += numbers(slot.value)
    return taken


def test_slots_are_given_out_in_order_and_once() -> None:
    lanes = InLanes({}, 0)
    for n in (2, 0, 0):
        assert lanes.offer(slot_key(CLIENT, 1000, n), batch(n))
    assert take_all(lanes) == [0]
    assert list(lanes.gaps()) == [[slot_key(CLIENT, 1000, 1)]]
    assert not lanes.offer(slot_key(CLIENT, 1000, 0), batch(0))
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    assert take_all(lanes) == [1, 2]
    assert (lanes.waiting, lanes.waiting_bytes, list(lanes.gaps())) == ({}, 0, [])


def test_a_lane_begins_at_its_first_slot() -> None:
    lanes = InLanes({}, 0)
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    assert lanes.next_slot(CLIENT) is None
    assert list(lanes.gaps()) == [[slot_key(CLIENT, 1000, 0)]]


def test_the_next_lane_waits_for_the_end_of_the_last_one_and_closes_it() -> None:
    lanes = InLanes({}, 0)
    lanes.offer(slot_key(CLIENT, 2000, 0), batch(5, after=(1000, 2)))
    lanes.offer(slot_key(CLIENT, 1000, 0), batch(0))
    assert take_all(lanes) == [0]
    assert list(lanes.gaps()) == [[slot_key(CLIENT, 1000, 1)]]
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    lanes.offer(slot_key(CLIENT, 1000, 3), batch(9))
    assert take_all(lanes) == [1, 5]
    assert not lanes.offer(slot_key(CLIENT, 1000, 2), batch(2)), "what lands there later is dead"
    assert lanes.waiting_bytes == 0


def test_the_lane_in_hand_is_read_to_its_end_before_the_next() -> None:
    lanes = InLanes({CLIENT: (1000, 1)}, 0)
    lanes.offer(slot_key(CLIENT, 2000, 0), batch(5, after=(1000, 1)))
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    assert take_all(lanes) == [1, 5]


def test_of_two_lanes_that_may_begin_the_older_one_does() -> None:
    lanes = InLanes({CLIENT: (1000, 1)}, 0)
    lanes.offer(slot_key(CLIENT, 3000, 0), batch(6, after=(1000, 1)))
    lanes.offer(slot_key(CLIENT, 2000, 0), batch(5, after=(1000, 1)))
    assert take_all(lanes) == [5, 6]


def test_the_beginning_of_a_lane_that_is_known_by_a_later_slot_is_looked_for_too() -> None:
    lanes = InLanes({CLIENT: (1000, 1)}, 0)
    lanes.offer(slot_key(CLIENT, 2000, 1), batch(6))
    assert list(lanes.gaps()) == [[slot_key(CLIENT, 1000, 1), slot_key(CLIENT, 2000, 0)]]


def test_a_gap_is_all_that_is_missing_before_what_has_come() -> None:
    lanes = InLanes({CLIENT: (1000, 1)}, 0)
    for n in (3, 6):
        lanes.offer(slot_key(CLIENT, 1000, n), batch(n))
    assert list(lanes.gaps()) == [[slot_key(CLIENT, 1000, n) for n in (1, 2, 4, 5)]]
    lanes.offer(slot_key(CLIENT, 1000, 5_000), batch(9))
    assert [len(gap) for gap in lanes.gaps()] == [GAP_MAX - 2]


def test_a_lane_after_a_forgotten_one_begins_and_the_forgotten_one_is_dead() -> None:
    lanes = InLanes({CLIENT: (1000, 3)}, 0)
    lanes.forget(CLIENT)
    assert lanes.watermark == 1000
    assert not lanes.offer(slot_key(CLIENT, 1000, 3), batch(3))
    assert not lanes.offer(slot_key(OTHER, 999, 0), batch(3))
    lanes.offer(slot_key(CLIENT, 2000, 0), batch(4, after=(1000, 3)))
    assert take_all(lanes) == [4]


def test_a_lane_that_follows_one_which_never_came_waits() -> None:
    lanes = InLanes({}, 500)
    lanes.offer(slot_key(CLIENT, 2000, 0), batch(4, after=(1000, 3)))
    assert take_all(lanes) == []


def test_lanes_that_a_watermark_would_kill_are_known_by_their_first_slots() -> None:
    lanes = InLanes({OTHER: (10, 1)}, 0)
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    lanes.offer(slot_key(OTHER, 20, 0), batch(1))
    lanes.offer(slot_key(partition_sender(3), 1, 0), batch(1))
    assert not lanes.is_beginning_below(1000)
    lanes.offer(slot_key(CLIENT, 1000, 0), batch(0))
    assert lanes.is_beginning_below(1000)
    assert not lanes.is_beginning_below(999)


@pytest.mark.parametrize("key", [b"", b"no slot", bytes(25)])
def test_what_is_no_slot_may_be_deleted_and_counts_as_not_passed(key: bytes) -> None:
    assert not InLanes({}, 0).offer(key, batch(1))
    assert not is_passed(key, {}, 10**15)


def test_partitions_are_never_below_a_watermark() -> None:
    key = slot_key(partition_sender(7), 1, 0)
    assert InLanes({}, 10**15).offer(key, batch(1))
    assert not is_passed(key, {}, 10**15)


@pytest.mark.parametrize(("lane", "is_dead"), [(1, True), (2, True), (3, False), (4, False)])
def test_what_partitions_sent_before_a_restore_is_dead_after_it(lane: int, is_dead: bool) -> None:
    """Their lanes have the cluster's incarnation; one that is to come may be heard of early."""
    lanes = InLanes({}, 10**15, incarnation=3)
    key = slot_key(partition_sender(7), lane, 0)
    assert lanes.offer(key, encode(Batch([]))) is not is_dead
    assert is_passed(key, {}, 10**15, incarnation=3) is is_dead
    assert (lanes.next_slot(partition_sender(7)) is None) is is_dead


def test_a_lane_that_begins_leaves_nothing_behind_of_the_one_that_it_closes() -> None:
    lanes = InLanes({}, 100)
    lanes.offer(slot_key(CLIENT, 200, 5), batch(5))
    lanes.offer(slot_key(CLIENT, 300, 0), batch(6))
    slot = lanes.next_slot(CLIENT)
    assert slot is not None
    assert (slot.lane, slot.n) == (300, 0)
    lanes.take(slot)
    assert (lanes.waiting, lanes.waiting_bytes, list(lanes.gaps())) == ({}, 0, [])


@given(st.integers(0, 2**32))
def test_whatever_comes_in_gaps_can_be_named_and_nothing_empty_waits(seed: int) -> None:
    dice = Random(seed)
    cursors = {CLIENT: (200, 2)} if dice.random() < 0.5 else {}
    lanes = InLanes(cursors, 150, 3)
    for _ in range(dice.randint(1, 30)):
        lane, n = dice.choice((100, 200, 300, 400)), dice.randint(0, 3)
        after = dice.choice(((0, 0), (200, 3), (300, 2), (120, 4)))
        value = dice.choice((batch(n, after=after), of_cluster(dice.randint(0, 4), n), PROOF, b"\x01\x00\xc1"))
        lanes.offer(slot_key(dice.choice((CLIENT, OTHER)), lane, n), value)
        for sender in (CLIENT, OTHER):
            while dice.random() < 0.7 and (slot := lanes.next_slot(sender)) is not None:
                lanes.take(slot)
        if lanes.cursors and dice.random() < 0.1:
            lanes.forget(dice.choice(list(lanes.cursors)))
        if dice.random() < 0.2:
            lanes.drop_outlived(dice.choice((CLIENT, OTHER)))
        gaps = list(lanes.gaps())
        assert all(gap and not lanes.is_waiting(key) for gap in gaps for key in gap)
        assert all(lanes.waiting.values())
        assert lanes.waiting_bytes == sum(len(v) for slots in lanes.waiting.values() for v in slots.values())
        assert not any(lanes.is_consumed(s, *at) for s, slots in lanes.waiting.items() for at in slots)


def of_cluster(incarnation: int, *messages: int) -> bytes:
    return encode(Batch([message(n) for n in messages], incarnation=incarnation))


def test_a_lane_that_was_begun_before_a_restore_does_not_begin_after_it() -> None:
    lanes = InLanes({}, 100, 2)
    first, later = slot_key(CLIENT, 200, 0), slot_key(CLIENT, 200, 1)
    for key in (first, later):
        lanes.offer(key, of_cluster(1, 1))
    assert lanes.next_slot(CLIENT) is None
    assert (lanes.waiting, lanes.waiting_bytes, lanes.outlived) == ({}, 0, [first, later])


def test_what_was_written_before_a_restore_and_has_no_beginning_is_let_go_of() -> None:
    lanes = InLanes({}, 100, 2)
    key = slot_key(CLIENT, 200, 5)
    lanes.offer(key, of_cluster(1, 1))
    assert lanes.next_slot(CLIENT) is None
    lanes.drop_outlived(CLIENT)
    assert (lanes.waiting, lanes.outlived) == ({}, [key])


@pytest.mark.parametrize("incarnation", [0, 2, 3])
def test_lanes_of_this_cluster_of_older_clients_and_of_a_cluster_to_come_begin(incarnation: int) -> None:
    """A node that was frozen over a restore must not let go of what is the next cluster's."""
    lanes = InLanes({}, 100, 2)
    lanes.offer(slot_key(CLIENT, 200, 0), of_cluster(incarnation, 1))
    assert lanes.next_slot(CLIENT) is not None
    lanes.drop_outlived(CLIENT)
    assert lanes.outlived == []


def test_what_waits_in_a_lane_that_a_watermark_has_killed_waits_no_more() -> None:
    lanes = InLanes({OTHER: (300, 1)}, 100)
    lanes.offer(slot_key(CLIENT, 200, 5), batch(5))
    lanes.offer(slot_key(CLIENT, 400, 5), batch(5))
    lanes.forget(OTHER)
    assert list(lanes.waiting[CLIENT]) == [(400, 5)]
    assert lanes.waiting_bytes == len(batch(5))


def test_a_proof_is_no_message_and_gives_way_to_one() -> None:
    lanes = InLanes({CLIENT: (1000, 1)}, 0)
    assert lanes.offer(slot_key(CLIENT, 1000, 1), PROOF)
    assert lanes.next_slot(CLIENT) is None
    lanes.offer(slot_key(CLIENT, 1000, 1), batch(1))
    assert take_all(lanes) == [1]


# -- both, with a grid between them -------------------------------------------------------------------


class Between:
    """One client, one partition that changes owners, and slots that get lost, come late or are seen in any order."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.out = OutLane(
            CLIENT,
            ClientSettings(
                lane_lifetime_s=LIFETIME_S,
                window_slots=dice.choice((1, 2, 8)),
                batch_messages_max=dice.choice((1, 3)),
            ),
        )
        self.now_s = 0.0
        self.slots: dict[bytes, bytes] = {}
        self.flying: list[Step] = []
        self.tickets: dict[int, Ticket] = {}
        self.applied: list[int] = []
        """What was taken and committed; a message that comes a second time, by its id, is left out."""
        self.cursors: dict[bytes, tuple[int, int]] = {}
        self.owner = InLanes({}, 0)
        self.staged: list[int] = []

    def act(self) -> None:
        dice = self.dice
        dice.choices(
            (self.publish, self.send, self.wait, self.see, self.take, self.commit, self.hand_over, self.land),
            (10, 30, 2, 30, 20, 15, 1, 3),
        )[0]()

    def publish(self) -> None:
        n = len(self.tickets)
        self.tickets[n] = add(self.out, n)

    def wait(self) -> None:
        # Nobody forgets lanes here, so time may pass as it likes.
        self.now_s += self.dice.choice((1.0, LIFETIME_S / 3, LIFETIME_S))

    def send(self, *, faults: bool = True) -> None:
        wanted = self.out.next_step(self.now_s)
        if wanted is None:
            return
        if wanted.action is Action.BEGIN:
            self.out.begun(0, self.dice.randrange(10**6), self.now_s)
        elif wanted.action is Action.LOOK:
            self.out.looked(wanted.key not in self.slots)
        elif wanted.action is Action.DOUBT:
            self.out.give_up()
        elif not faults or self.dice.random() < 0.6:
            self.slots[wanted.key] = wanted.value
            self.out.stored(self.now_s)
        else:
            self.out.unsure()
            self.flying.append(wanted)

    def land(self) -> None:
        """A write that was given up takes effect, or never will."""
        if self.flying:
            late = self.flying.pop(self.dice.randrange(len(self.flying)))
            if self.dice.random() < 0.7:
                self.slots[late.key] = late.value

    def see(self) -> None:
        if self.slots:
            key = self.dice.choice(sorted(self.slots))
            self.owner.offer(key, self.slots[key])
            if is_passed(key, self.cursors, 0):
                del self.slots[key]

    def take(self) -> None:
        if (slot := self.owner.next_slot(CLIENT)) is not None:
            self.owner.take(slot)
            self.staged += numbers(slot.value)

    def commit(self) -> None:
        self.applied += [n for n in dict.fromkeys(self.staged) if n not in self.applied]
        self.staged, self.cursors = [], dict(self.owner.cursors)

    def hand_over(self) -> None:
        """An owner dies, and the next one knows what was committed."""
        self.owner, self.staged = InLanes(self.cursors, 0), []

    def settle(self) -> None:
        """Everything that is under way comes to its end, and is found by sweeps."""
        for _ in range(10_000):
            self.send(faults=False)
            self.land()
            for key in sorted(self.slots):
                self.owner.offer(key, self.slots[key])
            self.take()
            self.commit()
            for key in [key for key in self.slots if is_passed(key, self.cursors, 0)]:
                del self.slots[key]
            if self.out.next_step(self.now_s) is None and not self.flying and not self.slots:
                return
        raise AssertionError(f"no end: {self.slots.keys()}, {self.out.next_step(self.now_s)}")


@given(st.integers(0, 2**32), st.integers(20, 300))
def test_what_was_acknowledged_is_applied_in_order_whatever_happens_between(seed: int, acts: int) -> None:
    between = Between(Random(seed))
    for _ in range(acts):
        between.act()
        order = between.applied
        assert order == sorted(order)
        told = {n for n, ticket in between.tickets.items() if ticket.done and not ticket.doubtful}
        assert not [n for n in told if n not in order and order and n < order[-1]], "acknowledged, and passed over"
    between.settle()
    told = {n for n, ticket in between.tickets.items() if ticket.done and not ticket.doubtful}
    assert told <= set(between.applied)
    assert all(ticket.done for ticket in between.tickets.values())
