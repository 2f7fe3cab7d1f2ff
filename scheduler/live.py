"""A job that is in memory because something is to be done with it. An idle one is just its record."""

from collections import deque
from typing import Any

import trio

from tenure.scheduler.activities_wire import Activity
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.wire import Envelope, Failure, JobRecord, Kind, Status, Timer

__all__ = ["Live"]


class Live:
    """A job with its queue, its object and what its turns have changed since the last commit.

    The queue's first `carried` entries are in the committed mailbox; the others are carried into it by
    the next record, unless their turns are done by then.
    """

    __slots__ = (
        "activities",
        "application",
        "carried",
        "failure",
        "generation",
        "id",
        "instance",
        "is_ended",
        "loading",
        "mail_bytes",
        "note",
        "pickled",
        "precounted",
        "progress",
        "queue",
        "revision",
        "running",
        "scope",
        "state",
        "status",
        "stuck",
        "timer",
        "topics",
        "turns",
        "type",
        "type_name",
        "version",
    )

    type: JobType

    def __init__(self, id: str) -> None:
        self.id = id
        self.type_name = ""
        """Empty: nothing is known of this job yet, or it does not exist."""
        self.version = self.generation = self.revision = self.turns = 0
        self.status = Status.RUNNING
        self.state = b""
        self.timer: Timer | None = None
        self.failure: Failure | None = None
        self.topics: tuple[str, ...] = ()
        self.progress: tuple[int, int] | None = None
        self.pickled = b""
        self.application = ""
        self.activities: tuple[Activity, ...] = ()
        self.instance: Any = None
        self.note = b""
        """See `noted`; made when it is first needed."""
        self.queue: deque[Envelope] = deque()
        self.carried = 0
        self.mail_bytes = 0
        """The bytes of what is carried."""
        self.precounted = 0
        """So many entries at the head of the queue have their coming attempt counted already."""
        self.running = False
        """Is an async run loop at work?"""
        self.scope: trio.CancelScope | None = None
        self.is_ended = False
        """Was its running turn cancelled for good?"""
        self.loading = False
        """Is its definition being looked up?"""
        self.stuck = ""
        """Why this node can't run it, in words; empty: it can."""

    def load(self, record: JobRecord) -> None:
        """Take over what is committed (or created) of this job."""
        self.type_name, self.version, self.generation = record.type, record.version, record.generation
        self.revision, self.status, self.state, self.turns = record.revision, record.status, record.state, record.turns
        self.timer, self.failure, self.topics = record.timer, record.failure, record.topics
        self.progress, self.pickled, self.application = record.progress, record.pickled, record.application
        self.activities = record.activities
        self.instance = None

    def record(self) -> JobRecord:
        """As it is to be committed."""
        return JobRecord(
            self.type_name,
            self.version,
            self.generation,
            self.revision,
            self.status,
            self.state,
            self.turns,
            self.timer,
            self.failure,
            self.topics,
            self.progress,
            self.pickled,
            self.application,
            self.activities,
        )

    def exists(self) -> bool:
        """Is there such a job?"""
        return self.type_name != ""

    def uncount(self, keep: int) -> None:
        """Take back the attempts that were counted ahead, but for the first `keep` entries."""
        for n in range(keep, self.precounted):
            self.queue[n].attempts -= 1
        self.precounted = min(self.precounted, keep)

    def may_run(self) -> bool:
        """May its next turn begin?"""
        return (
            not self.running
            and self.type_name != ""
            and not self.stuck
            and (self.failure is None or (self.failure.retry_ms == 0 and self.status != Status.FAILED))
            and (self.status == Status.RUNNING or (self.status == Status.STOPPING and not self.awaits_activities()))
        )

    def awaits_activities(self) -> bool:
        """Is it to stop, all but its activities being done?"""
        return (
            bool(self.queue)
            and self.queue[0].kind == Kind.STOP
            and any(not activity.has_ended for activity in self.activities)
        )

    def is_idle(self) -> bool:
        """Would forgetting it lose nothing but time?"""
        return not self.queue and not self.running and not self.loading
