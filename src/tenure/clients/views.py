"""What a client is told of jobs, partitions and dead letters: plain dicts, with types. Times are milliseconds."""

from typing import Any, TypedDict

__all__ = [
    "DeadLetter",
    "FailureView",
    "JobDescription",
    "JobSummary",
    "PartitionStatus",
    "TimerView",
    "WaitingView",
]


class TimerView(TypedDict):
    """When a job wakes."""

    due_ms: int
    """0: no single wake is set."""
    cron: str
    """Empty: no recurring wake is set."""
    tz: str
    cron_due_ms: int


class FailureView(TypedDict):
    """Why a turn failed."""

    error: str
    traceback: str
    event: str
    """The id of the turn."""
    attempts: int
    at_ms: int
    retry_ms: int
    """When it is tried again; 0: not by itself."""


class WaitingView(TypedDict):
    """What is first in a job's queue."""

    kind: int
    message: Any
    id: str
    source: str
    attempts: int


class JobSummary(TypedDict):
    """One line of `jobs`."""

    id: str
    type: str
    version: int
    generation: int
    application: str
    status: str
    """running, paused, failed, finishing or stopping."""
    stuck: str
    """Why its node can't run it; empty: it can."""
    running: bool
    """Is a turn under way?"""
    waiting: int
    """Messages in its queue."""
    due_ms: int
    """When it wakes next; 0: no timer is set."""
    error: str
    node: str
    partition: int


class JobDescription(JobSummary):
    """All that is known of one job."""

    revision: int
    turns: int
    """Committed turns."""
    timer: TimerView | None
    failure: FailureView | None
    first_waiting: WaitingView | None
    topics: list[str]
    progress: list[int] | None
    state: Any


class PartitionStatus(TypedDict):
    """How a partition stands, from its owner."""

    partition: int
    node: str
    epoch: int
    slot: int
    jobs: int
    waiting: int
    dead_letters: int
    outbox: int
    lanes: int


class DeadLetter(TypedDict):
    """A message that no job could take. `partition` and `n` name it."""

    partition: int
    n: int
    to: str
    message: Any
    reason: str
    """The error's name."""
    detail: str
    at_ms: int
    source: str
    id: str
