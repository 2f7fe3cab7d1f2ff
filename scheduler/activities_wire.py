"""What is stored of activities, and what travels: part of a job's record, reports to it, events for its handler.

Like all that is stored, structs that are arrays only ever get new fields at the end, with defaults.
"""

from typing import Any, Literal

from msgspec import Struct

from tenure.scheduler.activities_port import Outcome
from tenure.scheduler.errors import Mistake

__all__ = ["Activity", "ActivityEvent", "ActivityPolicy", "ActivityStatus", "Report", "merged"]


class ActivityStatus:
    """Where an activity stands.

    wanted ──admitted──► running ────────────report──────────────► ended
    │    ▲                │  │ └──cancel──► cancelling ──report──►  │
    │    └─failed or lost─┘  │                                      │
    └────────cancel──────────┴──failed or lost, for the last time──►┘
    """

    WANTED = "wanted"
    """To be launched, or launched and not yet heard of."""
    RUNNING = "running"
    """Its process was admitted: it is the one that does this attempt's work."""
    CANCELLING = "cancelling"
    """Its process is to end; it is not known that it has."""
    ENDED = "ended"


class ActivityPolicy(Struct, array_like=True, frozen=True, gc=False):
    """What is to be done when things don't go well. The names are those of `Context.start_activity`."""

    attempts_max: int = 3
    first_delay_s: float = 1.0
    factor: float = 2.0
    delay_max_s: float = 60.0
    heartbeat_s: float = 5.0
    cancel_deadline_s: float = 10.0
    orphan_after_s: float = 120.0
    timeout_s: float | None = None
    stall_after_s: float | None = None
    tells_progress: bool = False
    healthy_after_s: float | None = None
    """An attempt that has run for so long was well: failures are counted anew."""

    def __post_init__(self) -> None:
        deadlines = (self.heartbeat_s, self.orphan_after_s, self.timeout_s, self.stall_after_s, self.healthy_after_s)
        if any(deadline is not None and deadline <= 0 for deadline in deadlines) or self.cancel_deadline_s < 0:
            raise Mistake(f"the deadlines of an activity are positive: {self}")
        if self.orphan_after_s < 3 * self.heartbeat_s:
            raise Mistake(
                f"orphan_after_s={self.orphan_after_s} is less than three times heartbeat_s={self.heartbeat_s}: "
                "a heartbeat or two that are lost would end the work"
            )

    def delay_s(self, attempts: int) -> float:
        """The pause before the next attempt, after so many."""
        return min(self.delay_max_s, self.first_delay_s * self.factor ** min(attempts - 1, 64))


class Activity(Struct, array_like=True, frozen=True, gc=False):
    """One activity of a job, in the job's record. Replaced, never changed."""

    name: str
    id: str
    """Derived from the turn that started it: the same however often that turn was tried."""
    kind: str
    work: bytes
    """The specification, as JSON; empty once it has ended."""
    run: str
    """The tag of its attempts, but for their number."""
    policy: ActivityPolicy
    at_ms: int
    """When it was asked for."""
    attempt: int = 1
    status: str = ActivityStatus.WANTED
    due_ms: int = 0
    """wanted: not to be launched before. cancelling: to be ended by force after."""
    place: str = ""
    """Where the admitted process runs,"""
    pid: int = 0
    nonce: str = ""
    """and what tells it from any other that was launched for the same attempt."""
    started_ms: int = 0
    said: int = 0
    """The number of the last report of this attempt that has had an effect."""
    progress: tuple[int, int] | None = None
    details: bytes = b""
    """What the process shows of itself (stage, metrics, info), as MessagePack."""
    notes: bytes = b""
    """What this attempt leaves for the next ones, as MessagePack."""
    outcome: str = ""
    """Of one that has ended: succeeded, failed or cancelled."""
    error: str = ""
    """Of the last attempt that failed."""
    result: bytes = b""
    """As MessagePack, if it is small."""
    ended_ms: int = 0
    forgiven: int = 0
    """So many of its first attempts don't count against `attempts_max`."""

    @property
    def tag(self) -> str:
        """Names this attempt."""
        return f"{self.run}.{self.attempt}"

    @property
    def has_ended(self) -> bool:
        """Is there nothing more to come of it?"""
        return self.status == ActivityStatus.ENDED


class Report(Struct, kw_only=True, omit_defaults=True):
    """What a process says of its run: the body of an envelope of kind REPORT. It may be sent again."""

    tag: str
    n: int
    """Counts a run's reports: one that comes again, or late, has no effect."""
    what: Literal["started", "beat", "ended"]
    """`started` asks to be admitted, before any work is done."""
    nonce: str
    place: str = ""
    pid: int = 0
    progress: tuple[int, int] | None = None
    details: dict[str, Any] = {}
    """Merged with what is known, name by name, one level deep."""
    notes: dict[str, Any] = {}
    outcome: Outcome | None = None


def merged(known: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """Details with what is new of them: name by name, one level deep."""
    details = dict(known)
    for name, value in news.items():
        before = details.get(name)
        details[name] = before | value if isinstance(before, dict) and isinstance(value, dict) else value
    return details


class ActivityEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something has become of an activity: what a job's `on_activity` gets."""

    name: str
    id: str
    kind: str
    status: Literal["succeeded", "failed", "cancelled", "retrying", "progress"]
    """The first three are the end of it. The others come only to those who asked for them (`tells_progress`)."""
    attempt: int
    result: Any = None
    error: str = ""
    traceback: str = ""
    progress: tuple[int, int] | None = None
    details: dict[str, Any] = {}

    @property
    def has_ended(self) -> bool:
        """Is this the last event of this activity?"""
        return self.status in ("succeeded", "failed", "cancelled")
