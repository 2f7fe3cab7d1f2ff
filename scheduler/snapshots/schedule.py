"""Snapshots every so often: a job like others, so it survives its owner. All nodes know its type."""

from typing import TYPE_CHECKING, Any

from tenure.scheduler.errors import TenureError
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.quiet import CONTROLLERS
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.stores import open_store
from tenure.scheduler.texts import told

if TYPE_CHECKING:
    from tenure.scheduler.context import Context

__all__ = ["BUILT_IN", "JOB_TYPE", "ScheduledSnapshots", "job_of"]

AGAIN_S = 60.0
"""After a failure it is tried again so soon, or sooner if snapshots are wanted more often."""


class ScheduledSnapshots(Job):
    """Takes a snapshot to one place, again and again."""

    url: str
    every_s: float = 0.0
    """0: not yet said."""
    keep: int = 0
    within_s: float = 0.0
    """How long each may take; 0: as long as one that is taken by hand."""
    formation: str = ""
    """The cluster that is snapshotted: one that is restored from it must not write to the same place unasked."""
    taken: int = 0
    last: str = ""
    last_jobs: int = 0
    last_written_bytes: int = 0
    last_duration_s: float = 0.0
    error: str = ""
    """Of the last try, if it failed."""
    not_deleted: str = ""
    """Why older ones stay that were not to be kept; empty: nothing was in the way."""
    stopped: str = ""
    """Why it takes no more."""
    since_ms: int = 0
    """When it was told to."""
    last_ms: int = 0
    """When the last one was taken."""

    def on_message(self, ctx: "Context", message: dict[str, Any]) -> None:
        wish = float(message["every_s"]), int(message["keep"]), float(message.get("within_s", 0.0))
        is_news = wish != (self.every_s, self.keep, self.within_s) or bool(self.stopped)
        self.every_s, self.keep, self.within_s = wish
        if is_news:
            self.formation, self.stopped, self.error = _host(ctx).formation, "", ""
            self.since_ms = _host(ctx).now_ms()
            ctx.wake_in(0)

    async def on_timeout(self, ctx: "Context") -> None:
        host = _host(ctx)
        if self.formation != host.formation:
            self.stopped = (
                f"this cluster was restored from a snapshot, and {self.url} belongs to the one before; "
                "schedule snapshots anew, at a place of their own"
            )
            host.report(f"scheduled snapshots have stopped: {self.stopped}")
            return
        began_ms = host.now_ms()
        options = SnapshotOptions(keep=self.keep, deadline_s=self.within_s or SnapshotOptions.deadline_s)
        try:
            taken = await take_snapshot(
                host.grid, self.url, open_store(self.url), host.now_ms, options, formation=self.formation
            )
        except TenureError as error:
            self.error = told(error)
            host.report(f"the scheduled snapshot to {self.url} failed: {self.error}")
            ctx.wake_in(min(self.every_s, AGAIN_S))
            return
        manifest, self.not_deleted = taken
        if self.not_deleted:
            host.report(f"snapshot {manifest.name} was taken to {self.url}; older ones stay: {self.not_deleted}")
        self.taken += 1
        self.last_ms = host.now_ms()
        self.last, self.last_jobs, self.error = manifest.name, manifest.jobs, ""
        self.last_written_bytes, self.last_duration_s = manifest.written_bytes, manifest.duration_s
        ctx.wake_in(max(0.0, self.every_s - (host.now_ms() - began_ms) / 1000))


def _host(ctx: "Context") -> Any:
    # It is part of the scheduler, and may know its node.
    return ctx._turns.host


JOB_TYPE = JobType("tenure-snapshots", ScheduledSnapshots, application=CONTROLLERS)
BUILT_IN = Registry(JOB_TYPE)


def job_of(url: str) -> str:
    """The id of the job that takes snapshots to this place."""
    return f"tenure-snapshots {url.rstrip('/')}"
