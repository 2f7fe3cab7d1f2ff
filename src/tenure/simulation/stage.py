"""One simulated world: its grid, its clocks, its processes, and what is known of them from outside."""

import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.errors import TenureError, TryAgain
from tenure.scheduler.grid.memory import Fault, Faults
from tenure.scheduler.jobtype import Registry
from tenure.simulation.journal_check import JournalCheck
from tenure.simulation.operations import Operations
from tenure.simulation.plan import Plan
from tenure.simulation.trace import Trace
from tenure.simulation.watched import WatchedCluster

__all__ = ["Outcome", "SimulatorBroke", "World", "current_world"]

T = TypeVar("T")

WALL_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000 + 50_000
"""Ten seconds before a full minute, so that crons come due."""
HERE = str(Path(__file__).parent)
RECOVERY_S = {
    Fault.MEMBER_KILLED: 4.0,
    Fault.MEMBER_PAUSED: 4.0,
    Fault.SPLIT: 4.0,
    Fault.CONNECTION_FROZEN: 8.0,
    Fault.CONNECTION_CUT: 8.0,
    Fault.CONNECTION_KILLED: 8.0,
    Fault.LANDED_LATE: 0.5,
    Fault.EVENT_LOST: 4.0,
}
"""How long the consequences of a fault may be felt; 2 s where nothing is said."""

_world: ContextVar["World"] = ContextVar("world")


def current_world() -> "World":
    """For job handlers, which can't be given anything: the world they run in."""
    return _world.get()


class SimulatorBroke(Exception):
    """A mistake of the simulator's own; it says nothing about the engine."""


class Outcome(NamedTuple, Generic[T]):
    """What came of an operation."""

    done: bool
    result: T | None
    error: TryAgain | None


class World:
    """What all parts of one run share."""

    def __init__(self, seed: int, plan: Plan, registry: Registry, nursery: trio.Nursery, trace: Trace) -> None:
        self.seed, self.plan, self.registry, self.nursery, self.trace = seed, plan, registry, nursery, trace
        self.random = Random(f"{seed} world")
        self.operations = Operations()
        self.violations: list[str] = []
        self.faults = Faults()
        self.journal = JournalCheck(trace)
        self.cluster = WatchedCluster(
            faults=self.faults,
            partitions=plan.partitions,
            members=plan.members,
            backups=1,
            seed=seed,
            split_protection=plan.members >= 3,
            default_timeout_s=1.0,
            tick_s=plan.calls.tick_s,
        )
        self.cluster.watcher, self.cluster.probed = self.journal, []
        self.faults.instant_share, self.faults.latency_s = plan.calls.instant_share, plan.calls.latency_s
        self.faults.trouble_s = 0.5
        self.strikes: Counter[str] = Counter()
        """Faults of the simulator's own (processes, clocks), beside those of the grid."""
        self.restoring = trio.Event()
        """Set as somebody begins to restore a snapshot over this cluster, which nodes must look for from then on."""
        self.drives_end_s_max = 60.0
        """So long after all was healed, what clients do comes to its end."""
        self.reads: dict[str, tuple[int, ...]] = {}
        """The formats that each node reads."""
        self.starts_older = self.is_newer_only = False
        """Are nodes that are started of an older version? And: may newer ones alone be started from now on?"""
        self.can_end = False
        """Will somebody shut this cluster down with a snapshot?"""
        self.working = True
        """False once the workload should come to its end."""
        self.machines: tuple[dict[str, Launcher], ...] = ({}, {})
        """What runs activities on each; nodes are on one of them."""
        self.formation = ""
        self.incarnation = 0
        self.clocks: dict[str, Callable[[], int]] = {}
        """The wall clocks of living nodes."""
        self._outside: dict[type[Any], Any] = {}
        self._names: Counter[str] = Counter()
        self.faults.on_fault = self._faulted
        _world.set(self)

    # -- names and clocks -------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        """A new name, never used again."""
        self._names[kind] += 1
        return f"{kind}{self._names[kind]}"

    def dice(self, what: str) -> Random:
        """A source of randomness that does not depend on what else draws."""
        return Random(f"{self.seed} {what}")

    def outside(self, kind: type[T]) -> T:
        """A system outside of the cluster, one of each kind."""
        found = self._outside.get(kind)
        if found is None:
            found = self._outside[kind] = kind()
        return found

    def slowest_clock_ms(self) -> int:
        """What every node agrees has passed."""
        return min(clock() for clock in self.clocks.values())

    def has_ended(self) -> bool:
        """Was this cluster shut down with a snapshot, in which it goes on?"""
        return bool(self.formation and self.can_end and self.cluster.marker().ended)

    def wall_ms(self, offset_ms: int = 0) -> int:
        """The wall clock of a process whose clock is off by so much."""
        return WALL_MS + round(trio.current_time() * 1000) + offset_ms

    # -- what happens -----------------------------------------------------------------------------

    def _faulted(self, fault: Fault, what: str) -> None:
        self.operations.trouble(trio.current_time() + RECOVERY_S.get(fault, 2.0))
        self.trace.tell("grid", f"{fault.value} {what}")

    def struck(self, kind: str, what: str, recovery_s: float = 8.0) -> None:
        """The simulator did something to a process."""
        self.strikes[kind] += 1
        self.operations.trouble(trio.current_time() + recovery_s)
        self.trace.tell("chaos", f"{kind} {what}")

    def violate(self, what: str) -> None:
        """A promise was broken: the run ends here."""
        self.trace.tell("checker", f"VIOLATION {what}")
        self.violations.append(what)
        self.nursery.cancel_scope.cancel()

    def blame(self, who: str, error: BaseException) -> None:
        """An exception that should not have come out: the engine's is a violation, our own is ours."""
        if isinstance(error, BaseExceptionGroup) and not isinstance(error, Exception):
            cancelled, errors = error.split(trio.Cancelled)
            if cancelled is not None:
                if errors is not None:
                    self.blame(who, errors)
                raise cancelled
        for each in _leaves(error):
            # What handlers raise that is no Exception, they raise to see what becomes of it.
            is_told = isinstance(each, TenureError) or not isinstance(each, Exception)
            if not is_told and _innermost(each).startswith(HERE):
                raise SimulatorBroke(f"seed {self.seed}, {who}: {each!r}") from each
        text = "".join(traceback.format_exception(error))
        self.violate(f"{who} ended with {error!r}\n{text}")

    async def attempt(self, count: int, call: Callable[[], Awaitable[T]]) -> Outcome[T]:
        """Do an operation, and count it. It may end as unknown; every other error comes through."""
        begun_s = trio.current_time()
        try:
            result = await call()
        except TryAgain as error:
            unstored = getattr(error, "unstored", None)
            stored = 0 if unstored is None else max(0, count - len(unstored))
            self.operations.ended(begun_s, count, stored)
            return Outcome(False, None, error)
        self.operations.ended(begun_s, count, count)
        return Outcome(True, result, None)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _innermost(error: BaseException) -> str:
    at: Any = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_code.co_filename if at is not None else ""
