"""Jobs whose work is an activity: when it is started, what happens when the last one is not over, who hears of its end.

now, at, cron, after another job, on a message ──► start ──► activity ──► finished ──► topic, followers, next start
                                                    └── not over yet: skip it, queue it, or cancel the older
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct

from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Job, Retry
from tenure.scheduler.topic import Topic

__all__ = ["ActivityJob", "Finished", "Order", "finished_topic"]

QUEUED_MAX = 1000
Overlap = Literal["skip", "queue", "cancel"]


class Finished(Struct, kw_only=True, omit_defaults=True):
    """How an activity of a job has ended: published to `finished_topic(job)`, and sent to jobs that come after it."""

    job: str
    activity: str
    status: str
    """succeeded, failed or cancelled."""
    result: Any = None
    error: str = ""
    attempts: int = 1
    at: datetime


class Order(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message to such a job. Give one of these."""

    start: dict[str, Any] | None = None
    """Do the work (now, or as `overlap` says). What it has in it replaces the job's own parameters, this time."""
    cancel: bool = False
    """End what is under way, and forget what is queued."""
    follow: str = ""
    """Tell this job of each end (`after` sends this)."""
    unfollow: str = ""
    finished: Finished | None = None
    """A job that this one comes after has finished."""
    gone: str = ""
    """A job that this one comes after was removed."""


def finished_topic(job: str) -> str:
    """The topic that a job's ends are published to, as `Finished`."""
    return f"finished/{job}"


class ActivityJob(Job, kw_only=True):
    """The base of `ProcessJob` and its like: subclasses say what the work is.

    Without `at`, `cron`, `after` or `on_demand` the work is started when the job is. A message `{"start": {}}` starts
    it too, always.
    """

    kind: ClassVar[str] = ""

    at: datetime | None = None
    """Start then (with a time zone)."""
    cron: str = ""
    """Start again and again, on the clock of `tz`."""
    tz: str = "UTC"
    after: str | list[str] = ""
    """Start when this job has finished; of several: when each of them has, since the last start."""
    after_failed: bool = False
    """Also when they failed or were cancelled."""
    on_demand: bool = False
    """Start on messages only."""
    overlap: Overlap = "skip"
    """What to do when it is to start and is under way: skip it, queue it, or cancel the older."""
    attempts_max: int = 3
    first_delay_s: float = 1.0
    heartbeat_s: float = 5.0
    cancel_deadline_s: float = 10.0
    orphan_after_s: float = 120.0
    stall_after_s: float | None = None
    """See `Context.start_activity`;"""
    run_timeout_s: float | None = None
    """its `timeout_s`, which is the client's own word."""

    starts: int = 0
    """So often was the work started."""
    skipped: int = 0
    """So often it was to be, and was not, as it was under way."""
    current: str = ""
    """The activity that is under way."""
    queued: list[dict[str, Any]] = []
    last: Finished | None = None
    followers: list[str] = []
    arrived: list[str] = []
    """Those of `after` that have finished since the last start."""

    @property
    def tells_progress(self) -> bool:
        """Whether what the work reports comes to `on_activity`, too."""
        return False

    @property
    def healthy_after_s(self) -> float | None:
        """Of work without an end: an attempt that has run for so long does not count against `attempts_max`."""
        return None

    def work(self, start: dict[str, Any]) -> Any:
        """What the activity is to do; `start` is what its order gave."""
        raise NotImplementedError

    def attempts(self, start: dict[str, Any]) -> int:
        """So often is this tried."""
        return self.attempts_max

    # -- turns ------------------------------------------------------------------------------------

    def on_start(self, ctx: Context) -> None:
        self.work({})  # what can't be is refused now, not at the first start
        if self.cron:
            ctx.cron(self.cron, self.tz)
        if self.at is not None:
            ctx.wake_at(self.at)
        for job in self._predecessors():
            if job == ctx.id:
                raise Mistake(f"job {ctx.id!r} can't come after itself")
            ctx.send(job, {"follow": ctx.id})
        if not (self.cron or self.at or self.after or self.on_demand):
            self.start(ctx, {})

    def on_message(self, ctx: Context, message: Order) -> Any:
        if message.start is not None:
            return self.start(ctx, message.start)
        if message.cancel:
            return self._cancel(ctx)
        if message.follow and message.follow not in self.followers:
            self.followers.append(message.follow)
            if self.last is not None and not self.current:
                ctx.send(message.follow, {"finished": self.last})
        if message.unfollow in self.followers:
            self.followers.remove(message.unfollow)
        if message.finished is not None:
            self._one_has_finished(ctx, message.finished)
        if message.gone:
            self.after = [job for job in self._predecessors() if job != message.gone]
            self.arrived = [job for job in self.arrived if job in self.after]
        return None

    def on_timeout(self, ctx: Context) -> None:
        self.start(ctx, {})

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        if not event.has_ended or event.name != self.current:
            return
        self.current = ""
        self.last = Finished(
            job=ctx.id,
            activity=event.name,
            status=event.status,
            result=event.result,
            error=event.error,
            attempts=event.attempt,
            at=ctx.now,
        )
        ctx.publish(Topic(finished_topic(ctx.id)), self.last)
        for job in self.followers:
            ctx.send(job, {"finished": self.last})
        if self.queued:
            self._begin(ctx, self.queued.pop(0))

    def on_stop(self, ctx: Context) -> None:
        for job in self._predecessors():
            ctx.send(job, {"unfollow": ctx.id})
        for job in self.followers:
            ctx.send(job, {"gone": ctx.id})

    # -- starting ---------------------------------------------------------------------------------

    def start(self, ctx: Context, start: dict[str, Any]) -> dict[str, Any]:
        """The work is to be done: begin, or do what `overlap` says. Returns what became of it."""
        self.work(start)  # refused here, where the order is
        if not self.current:
            return self._begin(ctx, start)
        if self.overlap == "cancel":
            ctx.cancel_activity(self.current)
            self.queued = [start]
            return {"cancelling": self.current}
        if self.overlap == "queue" and len(self.queued) < QUEUED_MAX:
            self.queued.append(start)
            return {"queued": len(self.queued)}
        self.skipped += 1
        ctx.log.info("skipped, as the last one is not over", under_way=self.current, skipped=self.skipped)
        return {"skipped": self.current}

    def _begin(self, ctx: Context, start: dict[str, Any]) -> dict[str, Any]:
        self.starts += 1
        self.current = f"run-{self.starts}"
        self.arrived = []
        ctx.start_activity(
            self.current,
            self.work(start),
            kind=self.kind,
            retry=Retry(attempts_max=self.attempts(start), first_delay_s=self.first_delay_s),
            heartbeat_s=self.heartbeat_s,
            cancel_deadline_s=self.cancel_deadline_s,
            orphan_after_s=self.orphan_after_s,
            timeout_s=self.run_timeout_s,
            stall_after_s=self.stall_after_s,
            tells_progress=self.tells_progress,
            healthy_after_s=self.healthy_after_s,
        )
        return {"started": self.current}

    def _cancel(self, ctx: Context) -> dict[str, Any]:
        self.queued = []
        return {"cancelled": ctx.cancel_activity(self.current) if self.current else False}

    def _predecessors(self) -> list[str]:
        return [self.after] if isinstance(self.after, str) and self.after else list(dict.fromkeys(self.after))

    def _one_has_finished(self, ctx: Context, finished: Finished) -> None:
        predecessors = self._predecessors()
        if finished.job not in predecessors or not (finished.status == "succeeded" or self.after_failed):
            return
        if finished.job not in self.arrived:
            self.arrived.append(finished.job)
        if self.arrived and set(predecessors) <= set(self.arrived):
            self.arrived = []
            self.start(ctx, {})
