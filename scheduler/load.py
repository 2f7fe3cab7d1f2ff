"""How much a node has to do: told with its heartbeats, looked at by people and by autoscalers."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio
from msgspec import Struct

from tenure.scheduler.wire import Status

if TYPE_CHECKING:
    from tenure.scheduler.host import Host
    from tenure.scheduler.live import Live
    from tenure.scheduler.tenure import Tenure

__all__ = ["Load", "Meter"]

COUNT_EVERY_S = 0.5
"""Counting looks at every job in memory; the rest of a measurement costs nothing."""
BUSY_OVER_S = 1.0
"""Busy time is that of about the last second."""


class Load(Struct, frozen=True):
    """What a node has to do, as it says itself."""

    waiting: int = 0
    """Its lag: messages that wait for their turn, of jobs that can have one. Those of paused, failed and stuck jobs are
    not counted: another node would not help them. What is not unpacked yet is estimated."""
    busy: float = 0.0
    """Busy time, as a share: of a processor, or of the turns that may run at once, whichever is more used (0 to 1)."""
    turns_per_s: float = 0.0
    """Turns that have ended well, in a second."""


class Meter:
    """Measures one node."""

    def __init__(self, host: "Host", tenures: "Mapping[int, Tenure]") -> None:
        self._host, self._tenures = host, tenures
        self._at_s, self._cpu_s, self._turns, self._counted_s = trio.current_time(), host.cpu_s(), 0, -math.inf
        self.load = Load()

    def measure(self) -> Load:
        """To be called with every beat."""
        now_s, cpu_s, turns = trio.current_time(), self._host.cpu_s(), self._host.turns_done
        waiting, busy, turns_per_s = self.load.waiting, self.load.busy, self.load.turns_per_s
        if (elapsed_s := now_s - self._at_s) > 0:
            used = min(1.0, max((cpu_s - self._cpu_s) / elapsed_s, self._turns_in_use()))
            weight = -math.expm1(-elapsed_s / BUSY_OVER_S)
            busy += (used - busy) * weight
            turns_per_s += ((turns - self._turns) / elapsed_s - turns_per_s) * weight
            self._at_s, self._cpu_s, self._turns = now_s, cpu_s, turns
        if now_s >= self._counted_s + COUNT_EVERY_S:
            self._counted_s = now_s
            waiting = sum(waiting_in(tenure) for tenure in self._tenures.values())
        self.load = Load(waiting, round(busy, 3), round(turns_per_s, 1))
        return self.load

    def _turns_in_use(self) -> float:
        limiters = (self._host.turns, self._host.threads)
        return max(limiter.borrowed_tokens / limiter.total_tokens for limiter in limiters)


def waiting_in(tenure: "Tenure") -> int:
    """Messages that wait in one partition."""
    lives = tenure.lives.by_id.values()
    queued = sum(len(live.queue) - live.running for live in lives if live.queue and _can_go_on(live))
    return queued + tenure.taking.untaken()


def _can_go_on(live: "Live") -> bool:
    return live.type_name != "" and not live.stuck and live.status == Status.RUNNING
