"""Sees to the activities of one tenure: has them launched once they are committed, hears what they say, and notices
what ends without a word.

    record (committed) ──► find the tag ── absent ──► launch        on this machine: looked at once a second
           ▲                    └── over, without a report ──► lost ──► next attempt, or the end
           └── reports ◄── processes, wherever they run             elsewhere: lost when silent for too long

Nothing here is needed for safety: launching twice, or late, or by a zombie, comes to nothing, as only one process is
admitted to an attempt (`activities`). There is a task for each activity that has not ended, and none else.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import trio

from tenure.scheduler import activities
from tenure.scheduler.activities import Change, Verdict
from tenure.scheduler.activities_bounds import room, sound
from tenure.scheduler.activities_port import Found, Launcher, LaunchRefused, Outcome, Untold
from tenure.scheduler.activities_wire import Activity, ActivityStatus, Report
from tenure.scheduler.errors import Mistake
from tenure.scheduler.live import Live
from tenure.scheduler.texts import told
from tenure.scheduler.wire import Envelope, JobRecord

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Supervisor"]

LOOK_S = 1.0
"""How often a run on this machine is looked at. Most say themselves when they end."""
LAUNCH_AGAIN_S = 10.0
"""A launch that has had no effect for so long is repeated:"""
LAUNCH_DEADLINE_S = 60.0
"""until so long; then the attempt has failed."""
FORCE_MARGIN_S = 5.0
"""A process that was told to end minds its deadline itself; so much later it is ended from here."""
SILENCE_MARGIN_S = 10.0
"""For clocks that don't run alike, and for the time that killing takes."""
UNSEEN = "its run can't be looked at"
_decode_report = msgspec.msgpack.Decoder(Report).decode


class _Watch:
    """What is known, in memory only, of one activity that has not ended."""

    def __init__(self, job: str, since_s: float) -> None:
        self.job = job
        self.heard_s = since_s
        """On trio's clock; of reports to this tenure, or its beginning."""
        self.heard_ms = 0
        self.changed = trio.Event()
        self.launched: tuple[str, float, float] | None = None
        """The tag that was launched, when first and when last."""
        self.told_to_end = ""
        """The tag that was asked to end."""
        self.waits_for = ""
        """Why it isn't launched, for people."""


class Supervisor:
    """The activities of one tenure's jobs."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.changes = tenure, tenure.host, tenure.activity_changes
        self._watches: dict[str, _Watch] = {}
        """By the activity's id."""

    def resume(self, id: str, record: JobRecord) -> None:
        """What a takeover finds."""
        for activity in record.activities:
            if not activity.has_ended:
                self._watches[activity.id] = _Watch(id, trio.current_time())

    def begin(self) -> None:
        """The tenure is at work: see to what was there."""
        for id, watch in self._watches.items():
            self.tenure.start(self._mind, id, watch)

    def committed(self, ids: Iterable[str]) -> None:
        """The activities of these jobs are, as committed, others than they were."""
        for job in ids:
            record = self.tenure.state.jobs.get(job)
            for activity in record.activities if record is not None else ():
                watch = self._watches.get(activity.id)
                if watch is not None:
                    watch.changed.set()
                elif not activity.has_ended:
                    watch = self._watches[activity.id] = _Watch(job, trio.current_time())
                    self.tenure.start(self._mind, activity.id, watch)

    def heard_ms(self, id: str) -> int:
        """When this activity was last heard of by this tenure; 0: not yet."""
        return watch.heard_ms if (watch := self._watches.get(id)) is not None else 0

    def waits_for(self, id: str) -> str:
        """Why this activity is not launched."""
        return watch.waits_for if (watch := self._watches.get(id)) is not None else ""

    def due_times_ms(self) -> Iterator[int]:
        """When attempts are to be launched that have not been."""
        for id, watch in self._watches.items():
            activity = self._committed(watch.job, id)
            if activity is None or activity.status != ActivityStatus.WANTED or watch.waits_for:
                continue
            if watch.launched is None or watch.launched[0] != activity.tag:
                yield activity.due_ms

    def hear(self, envelope: Envelope) -> None:
        """A report has come in; its answer goes out with the commit."""
        live = self.tenure.lives.of(envelope.to)
        try:
            report = _decode_report(envelope.body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self.tenure.turns.draft.answer_error(envelope, "WrongType", f"no report: {error}")
            self.tenure.lives.ready(live)
            return
        activity = next((a for a in live.activities if report.tag == a.tag), None)
        verdict, change = self._heard(live, activity, report)
        if activity is not None and verdict != "fenced" and (watch := self._watches.get(activity.id)) is not None:
            watch.heard_s, watch.heard_ms = trio.current_time(), self.host.now_ms()
        if change is not None:
            self.changes.make(live, change)
        self.tenure.turns.draft.answer_value(envelope, {"verdict": verdict})
        self.tenure.lives.ready(live)

    def _heard(self, live: Live, activity: Activity | None, report: Report) -> tuple[Verdict, Change | None]:
        is_to_be_kept = activity is not None and (report.details or report.notes)
        room_bytes = room(live.activities, activity) if activity is not None and is_to_be_kept else 0
        return activities.hear(activity, report, self.host.now_ms(), room_bytes)

    async def _mind(self, id: str, watch: _Watch) -> None:
        try:
            while (activity := self._committed(watch.job, id)) is not None and not activity.has_ended:
                watch.changed = trio.Event()
                try:
                    pause_s = await self._see_to(activity, watch)
                except (Exception, SystemExit) as error:  # noqa: BLE001  # a launcher's own; the partition goes on
                    pause_s = LOOK_S
                    self._wait(activity, watch, f"its launcher fails: {told(error)}")
                with trio.move_on_after(pause_s):
                    await watch.changed.wait()
        finally:
            self._watches.pop(id, None)

    def _committed(self, job: str, id: str) -> Activity | None:
        record = self.tenure.state.jobs.get(job)
        return next((a for a in record.activities if a.id == id), None) if record is not None else None

    async def _see_to(self, activity: Activity, watch: _Watch) -> float:
        """Do what is to be done now; returns how long to wait before looking again."""
        launcher = self.host.launchers.get(activity.kind)
        if activity.status == ActivityStatus.WANTED:
            return await self._see_to_wanted(activity, watch, launcher)
        if launcher is None or launcher.place != activity.place:
            return self._see_to_distant(activity, watch)
        try:
            found = await launcher.find(activity.tag)
        except Exception as error:  # noqa: BLE001  # its folder can't be read: all that is known is what it says
            self._wait(activity, watch, f"{UNSEEN}: {told(error)}")
            return min(LOOK_S, self._see_to_distant(activity, watch))
        if watch.waits_for.startswith(UNSEEN):
            watch.waits_for = ""
        if found.state != "running":
            await self._bury(activity, watch, launcher, found)
        elif self._left_s(activity, watch) <= 0:  # its wrapper hangs, and would have ended it otherwise
            await launcher.cancel(activity.tag, force=True)
            self._see_to_distant(activity, watch)
        elif activity.status == ActivityStatus.CANCELLING:
            await self._press(activity, watch, launcher)
        return LOOK_S

    async def _see_to_wanted(self, activity: Activity, watch: _Watch, launcher: Launcher | None) -> float:
        late_s = (self.host.now_ms() - activity.due_ms) / 1000
        if late_s < 0:
            return min(LOOK_S, -late_s)
        if self.host.is_shut_down():
            return LOOK_S  # what is launched now would come when all have gone; the next node does it
        if launcher is None:
            self._wait(activity, watch, f"node {self.host.node} can't run activities of kind {activity.kind!r}")
            return LOOK_S
        found = await launcher.find(activity.tag)
        if found.state == "over":
            await self._bury(activity, watch, launcher, found)
        elif found.state == "absent":
            await self._launch(activity, watch, launcher, found)
        return LOOK_S

    async def _launch(self, activity: Activity, watch: _Watch, launcher: Launcher, found: Found) -> None:
        now_s = trio.current_time()
        if watch.launched is None or watch.launched[0] != activity.tag:
            watch.launched = (activity.tag, now_s, -LAUNCH_AGAIN_S)
        tag, first_s, last_s = watch.launched
        if now_s - first_s > LAUNCH_DEADLINE_S:
            what = f"NotLaunched: it did not begin within {LAUNCH_DEADLINE_S:g} s"
            why = found.detail or watch.waits_for
            self._lose(activity, watch, _failure(f"{what}: {why}" if why else what))
            return
        if now_s - last_s < LAUNCH_AGAIN_S:
            return
        watch.launched = (tag, first_s, now_s)
        record = self.tenure.state.jobs[watch.job]
        try:
            await launcher.launch(activities.run_of(watch.job, record.generation, activity))
            watch.waits_for = ""
        except (LaunchRefused, Mistake) as error:
            self._lose(activity, watch, _failure(told(error), final=True))
        except OSError as error:
            self._wait(activity, watch, f"it can't be launched on node {self.host.node} now: {error}")

    def _wait(self, activity: Activity, watch: _Watch, why: str) -> None:
        if watch.waits_for != why:
            watch.waits_for = why
            self.host.report(f"activity {activity.name!r} of job {watch.job!r} waits: {why}")

    def _see_to_distant(self, activity: Activity, watch: _Watch) -> float:
        """On another machine: all that is known is what it says. It hears from us in the answers, and ends itself
        when it hears nothing for too long; only after that is it taken for lost."""
        left_s = self._left_s(activity, watch)
        if left_s <= 0:
            where = activity.place or "the place where it ran"
            patience_s = _patience_s(activity)
            self._lose(activity, watch, _failure(f"Lost: nothing was heard from {where} for {patience_s:g} s"))
            return LOOK_S
        return max(0.05, min(5.0, left_s))

    def _left_s(self, activity: Activity, watch: _Watch) -> float:
        """So much longer may it be silent. Who is not answered for so long has ended itself before."""
        return watch.heard_s + _patience_s(activity) - trio.current_time()

    async def _bury(self, activity: Activity, watch: _Watch, launcher: Launcher, found: Found) -> None:
        """It is over here: as it said, or, where it said nothing, lost, with all that it may have left behind."""
        if found.outcome is not None:
            await self.tenure.turns.room()  # a takeover may find the results of many
            self._end(activity, watch, sound(found.outcome), found.untold)
            return
        await launcher.cancel(activity.tag, force=True)
        detail = f": {found.detail}" if found.detail else ""
        self._lose(activity, watch, _failure(f"Lost: its process ended without a word{detail}"))

    async def _press(self, activity: Activity, watch: _Watch, launcher: Launcher) -> None:
        force = self.host.now_ms() >= activity.due_ms + FORCE_MARGIN_S * 1000
        if force or watch.told_to_end != activity.tag:
            watch.told_to_end = activity.tag
            await launcher.cancel(activity.tag, force=force)

    def _end(self, activity: Activity, watch: _Watch, outcome: Outcome, untold: Untold) -> None:
        current = self._current(activity, watch)
        if current is None:
            return
        if not current.nonce:
            self._lose(activity, watch, outcome)  # it ended before it was admitted
            return
        report = Report(tag=current.tag, n=current.said + 1, what="ended", nonce=current.nonce, outcome=outcome)
        report.progress, report.details, report.notes = untold.progress, untold.details, untold.notes
        live = self.tenure.lives.of(watch.job)
        _, change = self._heard(live, current, report)
        if change is not None:
            self.changes.make(live, change)

    def _lose(self, activity: Activity, watch: _Watch, outcome: Outcome) -> None:
        if (current := self._current(activity, watch)) is not None:
            self.changes.make(self.tenure.lives.of(watch.job), activities.lose(current, outcome, self.host.now_ms()))

    def _current(self, activity: Activity, watch: _Watch) -> Activity | None:
        """As it is in the draft, if that is still the attempt that was looked at."""
        live = self.tenure.lives.of(watch.job)
        current = next((a for a in live.activities if a.id == activity.id), None)
        if current is None or current.has_ended or current.tag != activity.tag:
            self.tenure.lives.ready(live)  # to be forgotten
            return None
        return current


def _patience_s(activity: Activity) -> float:
    return activity.policy.orphan_after_s + activity.policy.cancel_deadline_s + SILENCE_MARGIN_S


def _failure(error: str, *, final: bool = False) -> Outcome:
    return Outcome(status="failed", error=error, final=final)
