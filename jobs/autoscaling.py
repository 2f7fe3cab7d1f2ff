"""How many nodes there are to be: decided from what the nodes say of their load. Pure: no clock, no grid.

    per node:   lag   0 ───── low ──────────── high ─────►        busy time   0 ──── low ──────── high ── 1
                       fewer       as it is         more

More come when the load was above a high mark for `rise_s`; one goes when it was below both low marks for `fall_s`,
without a break. So a load that swings faster than that keeps the nodes that its peaks need, and nothing flaps. Where
there are more than there may be, those that are too many go at once; but nothing is ended twice, and nobody else's.
"""

import math
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.scheduler.errors import Mistake

__all__ = ["Decision", "Marks", "Memory", "Seen", "decide"]

TREND_S = 3.0
"""Whether lag falls is seen over about so long."""
SAMPLES_MAX = 16
TIMES_MAX = 4
"""Never so many times the nodes at once: what is seen in the first seconds of a flood may mislead."""


class Marks(Struct, frozen=True, kw_only=True):
    """When there are to be more nodes, and when fewer."""

    nodes_min: int
    nodes_max: int
    lag_high: int
    lag_low: int
    busy_high: float
    busy_low: float
    rise_s: float
    fall_s: float
    settle_s: float
    catch_up_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.nodes_min <= self.nodes_max:
            raise Mistake(f"1 <= nodes_min <= nodes_max, not {self.nodes_min} and {self.nodes_max}")
        if not 0 <= self.lag_low < self.lag_high:
            raise Mistake(f"0 <= lag_low < lag_high, not {self.lag_low} and {self.lag_high}")
        if not 0 <= self.busy_low < self.busy_high <= 1:
            raise Mistake(f"0 <= busy_low < busy_high <= 1, not {self.busy_low:g} and {self.busy_high:g}")
        if min(self.rise_s, self.fall_s, self.settle_s, self.catch_up_s) < 0:
            raise Mistake("rise_s, fall_s, settle_s and catch_up_s can't be negative")


class Seen(NamedTuple):
    """What there is to see, at one time."""

    now_s: float
    nodes: int
    """Those that live and stay."""
    coming: int
    """Those that were asked for and are not there yet."""
    waiting: int
    """The lag of all of them."""
    busy: float
    """Their mean busy time."""
    turns_per_s: float
    """What all of them do."""
    own: int | None = None
    """So many of them may be ended. None: any."""


class Memory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept from one look to the next."""

    high_since_s: float | None = None
    low_since_s: float | None = None
    few_since_s: float | None = None
    changed_s: float = 0.0
    awaited_s: float = 0.0
    """When nodes were last seen to be yet to come."""
    samples: tuple[tuple[float, int], ...] = ()
    """When how much was waiting, of late."""


class Decision(NamedTuple):
    """So many nodes there are to be."""

    nodes: int
    why: str
    """Empty: it is to stay as it is. (It may have to: then this says why, and there are as many as before.)"""


def decide(marks: Marks, memory: Memory, seen: Seen) -> tuple[Memory, Decision]:
    """How many nodes there are to be, and what to remember for the next look."""
    there = seen.nodes + seen.coming
    memory = _observed(marks, memory, seen)
    if there < marks.nodes_min:
        if memory.changed_s and seen.now_s - (memory.few_since_s or seen.now_s) < marks.rise_s:
            return memory, Decision(there, "")  # one that is silent for a moment may be busy, and is not missing yet
        return _changed(memory, seen), Decision(marks.nodes_min, f"{there} nodes are fewer than nodes_min")
    if there > marks.nodes_max:
        return _too_many(marks, memory, seen)
    if seen.coming:
        return replace(memory, awaited_s=seen.now_s, samples=memory.samples[-1:]), Decision(there, "")
    if not seen.nodes or seen.now_s - max(memory.changed_s, memory.awaited_s) < marks.settle_s:
        return memory, Decision(there, "")
    high_s, low_s = memory.high_since_s, memory.low_since_s
    if high_s is not None and seen.now_s - high_s >= marks.rise_s and there < marks.nodes_max:
        wanted = min(marks.nodes_max, there + _missing(marks, memory, seen))
        return _changed(memory, seen), Decision(wanted, _told(seen, "above the high marks"))
    if low_s is not None and seen.now_s - low_s >= marks.fall_s and there > marks.nodes_min and seen.own != 0:
        return _changed(memory, seen), Decision(there - 1, _told(seen, "below the low marks"))
    return memory, Decision(there, "")


def _too_many(marks: Marks, memory: Memory, seen: Seen) -> tuple[Memory, Decision]:
    """Once what was changed last can be seen: who is told to go is there for a while yet."""
    there = seen.nodes + seen.coming
    if seen.now_s - memory.changed_s < marks.settle_s:
        return memory, Decision(there, "")
    why = f"{there} nodes are more than nodes_max"
    surplus = there - marks.nodes_max
    if seen.own is not None:
        surplus = min(surplus, seen.own)
    if not surplus:
        return memory, Decision(there, f"{why}, and none is its own to end")
    return _changed(memory, seen), Decision(there - surplus, why)


def _observed(marks: Marks, memory: Memory, seen: Seen) -> Memory:
    if seen.now_s < max(memory.changed_s, memory.awaited_s):
        memory = Memory(changed_s=seen.now_s)  # the clock was set back: what was measured by it says nothing now
    samples = [*memory.samples, (seen.now_s, seen.waiting)][-SAMPLES_MAX:]
    while len(samples) > 2 and samples[1][0] <= seen.now_s - TREND_S:
        del samples[0]
    memory = replace(memory, samples=tuple(samples))
    high, low = _is_high(marks, memory, seen), _is_low(marks, seen)
    return replace(
        memory,
        high_since_s=_since(memory.high_since_s, seen.now_s) if high else None,
        low_since_s=_since(memory.low_since_s, seen.now_s) if low else None,
        few_since_s=_since(memory.few_since_s, seen.now_s) if seen.nodes + seen.coming < marks.nodes_min else None,
    )


def _since(since_s: float | None, now_s: float) -> float:
    return now_s if since_s is None else min(since_s, now_s)


def _is_high(marks: Marks, memory: Memory, seen: Seen) -> bool:
    lag = seen.waiting / max(1, seen.nodes)
    if lag > marks.lag_low and _time_left_s(memory.samples) <= marks.catch_up_s:
        return False  # what has come meanwhile is being worked off: there are nodes enough
    return lag > marks.lag_high or seen.busy > marks.busy_high


def _is_low(marks: Marks, seen: Seen) -> bool:
    """Is there little to do, and would one node less not have too much?"""
    if seen.nodes < 2 or seen.waiting / seen.nodes >= marks.lag_low or seen.busy >= marks.busy_low:
        return False
    return seen.busy * seen.nodes / (seen.nodes - 1) < marks.busy_high


def _time_left_s(samples: tuple[tuple[float, int], ...]) -> float:
    """When all that waits is done, should it go on falling as it does."""
    growth_per_s = _growth_per_s(samples)
    return math.inf if growth_per_s >= 0 else samples[-1][1] / -growth_per_s


def _missing(marks: Marks, memory: Memory, seen: Seen) -> int:
    """So many more would do all that comes, work off in `catch_up_s` what waits, and be busy half way between the
    marks. Where nodes have lag and are not busy, one more is tried."""
    target = (marks.busy_low + marks.busy_high) / 2
    if not seen.turns_per_s or seen.busy < target:
        return 1
    can_per_s = seen.turns_per_s / seen.busy / seen.nodes
    to_do_per_s = seen.turns_per_s + max(0.0, _growth_per_s(memory.samples)) + seen.waiting / max(1.0, marks.catch_up_s)
    wanted = math.ceil(to_do_per_s / can_per_s / target)
    return max(1, min(wanted, seen.nodes * TIMES_MAX) - seen.nodes)


def _growth_per_s(samples: tuple[tuple[float, int], ...]) -> float:
    (then_s, before), (now_s, waiting) = samples[0], samples[-1]
    return (waiting - before) / (now_s - then_s) if now_s > then_s else 0.0


def _changed(memory: Memory, seen: Seen) -> Memory:
    return Memory(changed_s=seen.now_s, samples=memory.samples[-1:])


def _told(seen: Seen, where: str) -> str:
    return f"{where}: {seen.waiting} messages wait, busy for {seen.busy:.0%}, on {seen.nodes} nodes"
