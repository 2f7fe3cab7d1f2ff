"""The autoscaler's decisions: on a model of a cluster whose nodes work off what comes."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.jobs.autoscaling import Decision, Marks, Memory, Seen, decide

MARKS = Marks(
    nodes_min=1,
    nodes_max=10,
    lag_high=1_000,
    lag_low=100,
    busy_high=0.8,
    busy_low=0.3,
    rise_s=1.0,
    fall_s=60.0,
    settle_s=3.0,
    catch_up_s=20.0,
)
CAN_S = 1_000.0
"""Messages that a node of the model can do in a second."""


@dataclass
class Model:
    """A cluster: messages come, nodes work them off, nodes that are asked for come a little later, and those that are
    told to go are there for a while yet."""

    marks: Marks = MARKS
    nodes: int = 1
    start_s: int = 2
    leave_s: int = 0
    knows_who_leaves: bool = True
    """Or sees them, until they have gone, as if they stayed."""
    waiting: float = 0.0
    now_s: float = 1_000_000.0
    memory: Memory = field(default_factory=Memory)
    coming: list[float] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)
    """When, and by how many nodes."""

    def second(self, messages_per_s: float) -> None:
        self.now_s += 1.0
        arrived = [due_s for due_s in self.coming if due_s <= self.now_s]
        self.coming = [due_s for due_s in self.coming if due_s > self.now_s]
        self.nodes += len(arrived)
        self.leaving = [due_s for due_s in self.leaving if due_s > self.now_s]
        work, can = self.waiting + messages_per_s, self.nodes * CAN_S
        self.waiting = max(0.0, work - can)
        done = min(work, can)
        nodes = self.nodes if self.knows_who_leaves else self.nodes + len(self.leaving)
        seen = Seen(self.now_s, nodes, len(self.coming), round(self.waiting), done / can, done)
        self.memory, decision = decide(self.marks, self.memory, seen)
        self._obey(decision, nodes + len(self.coming))

    def _obey(self, decision: Decision, there: int) -> None:
        difference = decision.nodes - there
        assert bool(difference) == bool(decision.why)
        if difference:
            self.changes.append((self.now_s, difference))
        if difference > 0:
            self.coming += [self.now_s + self.start_s] * difference
        else:
            self._end(-difference)
        if self.nodes + len(self.coming) > self.marks.nodes_max:  # a mark was changed, and it waits to see
            assert self.changes
            assert self.now_s - self.changes[-1][0] < self.marks.settle_s
            return
        assert self.marks.nodes_min <= self.nodes + len(self.coming) <= self.marks.nodes_max

    def _end(self, count: int) -> None:
        """Those first that have not come yet."""
        kept = max(0, len(self.coming) - count)
        count -= len(self.coming) - kept
        self.coming = self.coming[:kept]
        self.nodes -= count
        self.leaving += [self.now_s + self.leave_s] * count

    def run(self, seconds: int, messages_per_s: Callable[[float], float]) -> "Model":
        for n in range(seconds):
            self.second(messages_per_s(n))
        return self


def test_a_step_is_met_within_seconds() -> None:
    model = Model().run(30, lambda s: 300).run(15, lambda s: 3_500)
    assert model.waiting / model.nodes < MARKS.lag_high
    assert 4 <= model.nodes <= 8
    assert len(model.changes) <= 2
    model.run(20, lambda s: 3_500)
    assert model.waiting == 0


def test_an_idle_cluster_shrinks_one_by_one() -> None:
    model = Model(nodes=6).run(600, lambda s: 100)
    assert model.nodes == MARKS.nodes_min
    assert [by for _, by in model.changes] == [-1] * 5
    times = [at_s for at_s, _ in model.changes]
    assert all(later - earlier >= MARKS.fall_s for earlier, later in itertools.pairwise(times))


def test_lag_that_is_being_worked_off_asks_for_no_more() -> None:
    """Two nodes can do twice what comes: what was left behind is gone in eight seconds, without a third."""
    model = Model(nodes=2, waiting=8_000).run(30, lambda s: 1_000)
    assert model.waiting == 0
    assert model.changes == []


def test_lag_that_stays_asks_for_more_although_nodes_are_idle() -> None:
    memory = Memory()
    for s in range(5):
        memory, decision = decide(MARKS, memory, Seen(100.0 + s, 2, 0, 5_000, 0.1, 10.0))
        if decision.why:
            break
    assert decision.nodes == 3


def test_nothing_is_added_while_some_are_yet_to_come() -> None:
    _, decision = decide(MARKS, Memory(high_since_s=0.0), Seen(100.0, 2, 3, 10**6, 1.0, 2_000.0))
    assert decision == Decision(5, "")


def test_fewer_than_there_must_be_are_started_at_once_in_the_beginning() -> None:
    _, decision = decide(changed(nodes_min=3), Memory(), Seen(100.0, 1, 1, 0, 0.0, 0.0))
    assert decision.nodes == 3


def test_a_node_that_is_silent_for_a_moment_is_not_replaced_and_one_that_stays_away_is() -> None:
    marks = changed(nodes_min=3)
    memory, nodes = Memory(changed_s=50.0), []
    for tenths, there in enumerate([3, 2, 2, 3, 2, *[2] * 12]):
        memory, decision = decide(marks, memory, Seen(100.0 + tenths / 10, there, 0, 0, 0.3, 10.0))
        nodes.append(decision.nodes - there)
    assert nodes.index(1) == 4 + 10, "a second after it was seen last"
    assert sum(nodes[:14]) == 0


def test_one_node_less_must_be_able_to_carry_the_load() -> None:
    """At 0.5 of two nodes a single one would have all it can do."""
    marks = changed(busy_low=0.6)
    model = Model(marks=marks, nodes=2).run(300, lambda s: 1_000)
    assert (model.nodes, model.changes) == (2, [])
    model.run(300, lambda s: 700)
    assert (model.nodes, [by for _, by in model.changes]) == (1, [-1])


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    memory = Memory(changed_s=10_000.0, low_since_s=9_000.0)
    for s in range(3):
        memory, decision = decide(MARKS, memory, Seen(100.0 + s, 2, 0, 10**6 * (s + 1), 1.0, 2_000.0))
        assert not decision.why
    assert decide(MARKS, memory, Seen(104.0, 2, 0, 10**7, 1.0, 2_000.0))[1].nodes > 2


@settings(deadline=None)
@given(
    low=st.floats(0, 12_000),
    high=st.floats(0, 12_000),
    low_s=st.integers(1, 29),
    high_s=st.integers(1, 29),
    start_s=st.integers(0, 20),
    leave_s=st.integers(0, 2),
    smooth=st.booleans(),
)
def test_it_never_flaps_on_a_load_that_swings(
    low: float, high: float, low_s: int, high_s: int, start_s: int, leave_s: int, smooth: bool
) -> None:
    """However high it swings, as long as that is faster than `fall_s`: nodes come as the peaks need them, and stay.
    Should there be too many even for the peaks, some go; none comes again after that."""

    def load(s: float) -> float:
        at = s % (low_s + high_s)
        if at >= high_s:
            return low
        return low + (high - low) * (math.sin(math.pi * at / high_s) if smooth else 1.0)

    model = Model(start_s=start_s, leave_s=leave_s, knows_who_leaves=False).run(1_500, load)
    assert _signs(model) == sorted(_signs(model), reverse=True)
    before = len(model.changes)
    model.run(300, load)
    assert len(model.changes) == before


@settings(deadline=None)
@given(
    nodes=st.integers(1, 10),
    nodes_max=st.integers(1, 9),
    load=st.floats(0, 12_000),
    start_s=st.integers(0, 20),
    leave=st.one_of(st.tuples(st.just(True), st.integers(0, 20)), st.tuples(st.just(False), st.integers(0, 2))),
)
def test_a_maximum_that_is_lowered_ends_those_that_are_too_many_and_no_more(
    nodes: int, nodes_max: int, load: float, start_s: int, leave: tuple[bool, int]
) -> None:
    """However long they take to go; where it is not known who goes, it is seen before it looks again."""
    knows, leave_s = leave
    model = Model(nodes=nodes, start_s=start_s, leave_s=leave_s, knows_who_leaves=knows).run(20, lambda s: load)
    before, had = len(model.changes), model.nodes + len(model.coming)
    model.marks = changed(nodes_max=nodes_max)
    model.run(40, lambda s: load)
    down = [by for _, by in model.changes[before:] if by < 0]
    assert down == ([nodes_max - had] if had > nodes_max else [])
    if down:
        assert _signs(model)[before:] == [-1.0]


def test_only_its_own_are_ended_and_what_it_can_not_do_it_does_not_try() -> None:
    marks = changed(nodes_max=2)
    _, some = decide(marks, Memory(), Seen(100.0, 5, 0, 0, 0.5, 0.0, own=1))
    assert some == Decision(4, "5 nodes are more than nodes_max")
    memory, none = decide(marks, Memory(), Seen(100.0, 5, 0, 0, 0.5, 0.0, own=0))
    assert none == Decision(5, "5 nodes are more than nodes_max, and none is its own to end")
    assert not memory.changed_s
    idle = Memory(low_since_s=0.0)
    assert decide(MARKS, idle, Seen(100.0, 5, 0, 0, 0.0, 0.0, own=0))[1] == Decision(5, "")
    assert decide(MARKS, idle, Seen(100.0, 5, 0, 0, 0.0, 0.0, own=1))[1].nodes == 4


def changed(**marks: float) -> Marks:
    return Marks(**{name: getattr(MARKS, name) for name in MARKS.__struct_fields__} | marks)


def _signs(model: Model) -> list[float]:
    return [math.copysign(1, by) for _, by in model.changes]


@settings(deadline=None)
@given(
    load=st.floats(0, 12_000),
    nodes=st.integers(1, 10),
    waiting=st.floats(0, 50_000),
    start_s=st.integers(0, 20),
    leave_s=st.integers(0, 20),
)
def test_it_comes_to_rest_under_a_steady_load(
    load: float, nodes: int, waiting: float, start_s: int, leave_s: int
) -> None:
    model = Model(nodes=nodes, waiting=waiting, start_s=start_s, leave_s=leave_s).run(1_500, lambda s: load)
    assert model.coming == []
    rest = len(model.changes)
    model.run(600, lambda s: load)
    assert len(model.changes) == rest
    assert model.nodes == MARKS.nodes_max or load <= model.nodes * CAN_S
    # Up as far as it takes, then down if that was too far; never up again after that.
    assert _signs(model) == sorted(_signs(model), reverse=True)


@settings(deadline=None)
@given(
    looks=st.lists(
        st.tuples(
            st.floats(0, 10),
            st.integers(0, 12),
            st.integers(0, 5),
            st.integers(0, 10**6),
            st.floats(0, 1),
            st.floats(0, 10**5),
        ),
        max_size=60,
    )
)
def test_whatever_it_sees_it_keeps_its_bounds_and_its_pace(
    looks: list[tuple[float, int, int, int, float, float]],
) -> None:
    memory, now_s, last_s, low_s = Memory(), 1_000.0, -math.inf, None
    for after_s, nodes, coming, waiting, busy, turns_per_s in looks:
        now_s += after_s
        memory, decision = decide(MARKS, memory, Seen(now_s, nodes, coming, waiting, busy, turns_per_s))
        there = nodes + coming
        is_low = waiting < MARKS.lag_low * nodes and busy < MARKS.busy_low
        low_s = (now_s if low_s is None else low_s) if is_low else None
        if not decision.why:
            assert decision.nodes == there
            continue
        assert MARKS.nodes_min <= decision.nodes <= MARKS.nodes_max
        if MARKS.nodes_min <= there:
            assert now_s - last_s >= MARKS.settle_s
        if MARKS.nodes_min <= there <= MARKS.nodes_max:
            assert not coming
        if decision.nodes < there <= MARKS.nodes_max:
            assert decision.nodes == there - 1
            assert low_s is not None
            assert now_s - low_s >= MARKS.fall_s
        last_s = now_s


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes_min": 0},
        {"nodes_max": 0},
        {"lag_low": 1_000},
        {"busy_low": 0.8},
        {"busy_high": 1.1},
        {"settle_s": -1.0},
    ],
)
def test_marks_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(tenure.Mistake, match=next(iter(wrong))):
        Marks(**{name: getattr(MARKS, name) for name in MARKS.__struct_fields__} | wrong)
