"""What a tenure gets from its node."""

import itertools
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.budget import Budget
from tenure.scheduler.clocks import Clocks
from tenure.scheduler.failure_log import FailureLog
from tenure.scheduler.formats import Formats
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.hangs import Hangs
from tenure.scheduler.jobtype import JobType, Registry, unpickled_type
from tenure.scheduler.keys import partition_of
from tenure.scheduler.noted import NOTES_BYTES, Board
from tenure.scheduler.pace import Pace
from tenure.scheduler.precedence import Precedence
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.desk import Desk
from tenure.scheduler.snapshots.schedule import BUILT_IN
from tenure.scheduler.texts import told
from tenure.scheduler.threads import Threads
from tenure.scheduler.wire import JobRecord

if TYPE_CHECKING:
    from tenure.scheduler.assignment import NodeInfo

__all__ = ["Host"]

ORIGIN_S = 1.0
"""Which versions live is looked at so rarely."""
LARGE_IMAGES_AT_ONCE = 4
"""All of a takeover's at once, with a million jobs, kept this node's heartbeats from the grid, for the connection was
full: it was taken for dead."""
FIRST_SWEEPS_AT_ONCE = 4
"""A takeover's partitions read their definitions so many at once. All at once, with a million jobs, was more than a
node could hear in time: calls failed and were made anew, and what they had brought filled its memory."""


def _log(text: str) -> None:
    import structlog  # when something is to be said: it takes longer to import than all of a client

    structlog.get_logger("tenure").warning(text)


def _tell(text: str) -> None:
    import structlog

    structlog.get_logger("tenure").info(text)


def _log_failure(text: str, traceback: str) -> None:
    import structlog

    structlog.get_logger("tenure").warning(text, exception=traceback)


def _log_error(text: str, error: BaseException) -> None:
    import structlog

    structlog.get_logger("tenure").error(text, exception="".join(traceback.format_exception(error))[-8000:])


@dataclass
class Host:
    """Grid, clock, settings and names: passed in, never reached for."""

    grid: Grid
    node: str
    """This process's name, never used by another one."""
    registry: Registry
    now_ms: Callable[[], int]
    """Wall-clock time; may jump."""
    formation: str
    incarnation: int
    settings: NodeSettings = field(default_factory=NodeSettings)
    random: Random = field(default_factory=Random)
    report: Callable[[str], None] = _log
    """For what an operator must see."""
    tell: Callable[[str], None] = _tell
    """For what happens, of which nobody need do anything."""
    log_failure: Callable[[str, str], None] = _log_failure
    """For attempts that have failed: a sentence, and the traceback."""
    log_error: Callable[[str, BaseException], None] = _log_error
    """For errors that nobody expected: what stands still for them, and the error."""
    launchers: Mapping[str, Launcher] = field(default_factory=dict)
    """What runs activities here, by kind."""
    cpu_s: Callable[[], float] = lambda: 0.0
    """Processor time that this process has used; a node that shares its process with others knows none."""
    live_nodes: "Callable[[], Collection[NodeInfo]]" = tuple
    """The nodes that live, as far as this one sees."""
    version: str = ""
    """Of Tenure."""
    spawned_by: str = ""
    """What the command said that started this node; empty: nothing."""
    has_clock_of_all: bool = False
    """All nodes have the same clock, as in tests: it is not compared with what it showed elsewhere a moment ago."""
    is_shut_down: "Callable[[], bool]" = lambda: False
    """Does this node end with all others?"""
    formats: Formats = field(default_factory=Formats)
    board: Board = field(default_factory=lambda: bytearray(NOTES_BYTES))
    """What the loop is at is noted here."""
    unfit: dict[int, str] = field(default_factory=dict)
    """Partitions that this node has met something in that it can't read or run: the reason. They are given to nodes
    that can, where there are any; this one does not get them back."""

    def __post_init__(self) -> None:
        self._serials = itertools.count(1)
        self._all_name, self._looked_s = False, -math.inf
        self.threads = Threads(self.settings.blocking_threads_max, lambda text: self.report(text))
        self.turns = trio.CapacityLimiter(max(1, self.settings.turns_at_once_max))
        self.turns_done = 0
        self.large_images = trio.Semaphore(LARGE_IMAGES_AT_ONCE)
        self.first_definitions = trio.Semaphore(FIRST_SWEEPS_AT_ONCE)
        self.sweeping_definitions = trio.Lock()
        """Held by the partition whose turn it is."""
        self._pickled: dict[bytes, JobType] = {}
        self.snapshots = Desk()
        self.precedence = Precedence()
        self.hangs = Hangs(self.node)
        self.clocks = Clocks(self.now_ms)
        self.failure_log = FailureLog(lambda text, traceback: self.log_failure(text, traceback))
        self.pace = Pace()
        self.budget = Budget(self.settings)

    def turns_are_awaited(self) -> bool:
        """Are there jobs that could run, but for the turns that run already?"""
        return self.turns.statistics().tasks_waiting > 0

    def origin(self) -> str:
        """What turns are called by whose events come into being now (see `turnid`). Empty as long as a node of an older
        version lives, which would call them otherwise when it tries them again."""
        now_s = self.pace.clock()
        if now_s >= self._looked_s + ORIGIN_S:
            self._looked_s = now_s
            self._all_name = all(node.names for node in self.live_nodes())
        return self.formation if self._all_name else ""

    def new_id(self) -> str:
        """A record id, never used twice."""
        return f"{self.node}.{next(self._serials)}"

    def partition_of(self, id: str) -> int:
        """The partition of a job or topic."""
        return partition_of(id, self.grid.partition_count)

    def known_type(self, name: str) -> JobType | None:
        """The application's, or one that all nodes know."""
        return self.registry.get(name) or BUILT_IN.get(name)

    def type_of(self, record: JobRecord) -> tuple[JobType | None, str]:
        """The type that runs this job here, or None and the reason, for people."""
        if record.pickled:
            return self._unpickled(record)
        found = self.known_type(record.type)
        if found is None:
            return None, (
                f"UnknownJobType: node {self.node} does not know job type {record.type!r}; "
                "start a node whose application registers it"
            )
        if record.version > found.version:
            return None, (
                f"its state is of version {record.version} of {record.type!r}, "
                f"node {self.node} has version {found.version}; "
                "start a node with the newer application"
            )
        return found, ""

    def _unpickled(self, record: JobRecord) -> tuple[JobType | None, str]:
        if not self.settings.allow_pickled_jobs:
            return (
                None,
                f"PickledJobsRefused: node {self.node} does not run pickled callables (allow_pickled_jobs is off)",
            )
        found = self._pickled.get(record.pickled)
        if found is None:
            try:
                found = self._pickled[record.pickled] = unpickled_type(record.type, record.pickled)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  # a pickle may raise anything; the reason is kept for people
                return (
                    None,
                    f"its pickled callable can't be loaded on node {self.node}: {told(error)}",
                )
        return found, ""
