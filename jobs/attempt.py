"""One attempt at an activity, from asking to be admitted to the last report. It knows neither processes nor grids.

    ask to be admitted ──go──► start the work ──► it ends, by itself or made to ──► nothing of it is left ──► report
            └──fenced──► end, having done nothing      ▲
                cancelled, fenced, orphaned, too long, stalled ──► ask, terminate, kill

What is to be told is gathered while a report is under way; a report is repeated, the same, until it is answered.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec
import trio

from tenure.scheduler.activities_bounds import NOTES_BYTES_MAX, details_with, progress_of, sound, why_odd
from tenure.scheduler.activities_port import Outcome, Run, Untold
from tenure.scheduler.activities_wire import Report
from tenure.scheduler.errors import TryAgain

__all__ = ["Attempt", "Uplink", "Work", "WorkRefused"]

REPORT_GAP_S = 0.5
"""Progress is told no more often than this; what waits for an answer, at once."""
RETRY_S = 0.2
CLOCK_LOOK_S = 0.5
ORPHAN_GRACE_S = 5.0
"""Who can't reach the cluster gets no more than this to end."""
CONFIRMS_MAX = 10_000
"""So many may wait for one answer. Who asks more often does not wait for answers."""
_encode = msgspec.msgpack.Encoder().encode


class WorkRefused(Exception):
    """The work can't be started; the text is the attempt's error."""


class Uplink(Protocol):
    """The way to the job."""

    async def report(self, job: str, report: Report) -> str:
        """The owner's verdict, committed. Raises `TryAgain` where nobody answered: the report may have counted."""
        ...


class Work(Protocol):
    """What is to be done, under way."""

    async def start(self, on_line: Callable[[dict[str, Any]], None]) -> None:
        """Begin. `on_line` is called with what it says (see `tenure.jobs.reporting`). Raises `WorkRefused`."""
        ...

    async def wait(self) -> Outcome:
        """Return when it has ended by itself: how."""
        ...

    def say(self, line: dict[str, Any]) -> None:
        """Tell it something. It may be gone already."""
        ...

    def terminate(self) -> None:
        """Ask it to end, in a way that ends whoever does not listen (SIGTERM). It may be gone already."""
        ...

    async def kill(self) -> None:
        """End it, and all that it has started; return when nothing of it is left. Also when it has ended already."""
        ...


Reason = Literal["", "cancelled", "fenced", "orphaned", "timed_out", "stalled", "interrupted"]


class Attempt:
    """Run it once."""

    def __init__(
        self,
        run: Run,
        work: Work,
        uplink: Uplink,
        *,
        place: str,
        pid: int,
        nonce: str,
        keep: Callable[[Outcome, Untold], None],
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """`keep` stores how it ended, and what else is to be told, before anybody is told. `clock` goes on while the
        machine sleeps, if it can."""
        self.run, self.work, self.uplink = run, work, uplink
        self.place, self.pid, self.nonce = place, pid, nonce
        self._keep, self._clock = keep, clock
        self._n = 0
        self._heard_s = clock()
        self._alive_s = clock()
        self._progress: tuple[int, int] | None = None
        self._details: dict[str, Any] = {}
        self._notes: list[tuple[int, dict[str, Any]]] = []
        self._notes_bytes = 0
        self._confirms: list[int] = []
        self._unanswered: Report | None = None
        self._said: Outcome | None = None
        """What the work itself has said of its end."""
        self._heeds_cancel = False
        self._news, self._ending = trio.Event(), trio.Event()
        self._reason: Reason = ""
        self._is_admitted = False

    # -- asked from outside -----------------------------------------------------------------------

    def cancel(self) -> None:
        """The activity is not wanted any more."""
        self._end("cancelled")

    def interrupt(self) -> None:
        """This process was told to end by somebody else than the job."""
        self._end("interrupted")

    def _end(self, reason: Reason) -> None:
        if not self._reason or (reason == "fenced" and self._reason != "fenced"):
            self._reason = reason
            self._ending.set()

    # -- from beginning to end --------------------------------------------------------------------

    async def live(self) -> Outcome:
        """Returns how it ended, reported (or fenced: then there is nothing to report)."""
        await self._ask_admission()
        if not self._reason:
            outcome = await self._work()
        else:
            outcome = self._judge(Outcome(status="failed", error="NotStarted: it ended before the work began"))
        outcome = sound(outcome)
        last = self._last_report(outcome)
        self._keep(outcome, Untold(progress=last.progress, details=last.details, notes=last.notes))
        if self._reason != "fenced":
            with trio.move_on_after(max(1.0, self._heard_s + self.run.orphan_after_s - self._clock())):
                await self._say(last)
        return outcome

    async def _ask_admission(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_ending, nursery.cancel_scope)
            nursery.start_soon(self._mind_clocks)
            if await self._say(self._report("started")) == "go":
                self._is_admitted = True
            nursery.cancel_scope.cancel()

    async def _work(self) -> Outcome:
        ended: Outcome
        async with trio.open_nursery() as nursery:
            self._started_s = self._alive_s = self._clock()
            nursery.start_soon(self._beat)
            try:
                await self.work.start(self._hear_line)
            except WorkRefused as error:
                ended = Outcome(status="failed", error=str(error))
            else:
                nursery.start_soon(self._mind_clocks)
                nursery.start_soon(self._end_when_told)
                ended = await self.work.wait()
            await self.work.kill()
            nursery.cancel_scope.cancel()
        return self._judge(ended)

    def _judge(self, ended: Outcome) -> Outcome:
        """How it ended, all being said."""
        said, run = self._said, self.run
        if self._reason == "cancelled":
            error = "" if ended.status == "succeeded" else (said or ended).error
            return Outcome(status="cancelled", error=error)
        if self._reason == "fenced":
            return Outcome(status="failed", error="Fenced: this attempt does not count (any more)", final=True)
        if self._reason == "orphaned":
            what = f"Orphaned: the cluster could not be reached for {run.orphan_after_s:g} s"
            return Outcome(status="failed", error=what)
        if self._reason == "timed_out":
            return Outcome(status="failed", error=f"TimedOut: it took longer than {run.timeout_s:g} s")
        if self._reason == "stalled":
            return Outcome(status="failed", error=f"Stalled: nothing was heard of it for {run.stall_after_s:g} s")
        if self._reason == "interrupted":
            return Outcome(status="failed", error="Interrupted: the process that ran it was told to end (SIGTERM)")
        if said is None or (said.status == "succeeded" and ended.status != "succeeded"):
            return ended
        return said

    # -- the work, and its end --------------------------------------------------------------------

    async def _end_when_told(self) -> None:
        """Ask, terminate, kill."""
        await self._ending.wait()
        grace_s = self.run.cancel_deadline_s
        if self._reason in ("fenced", "orphaned"):
            grace_s = min(grace_s, ORPHAN_GRACE_S)  # somebody else may be about to begin
        self.work.say({"cancel": True, "deadline_s": grace_s})
        if self._heeds_cancel:
            await trio.sleep(grace_s / 2)
        self.work.terminate()
        await trio.sleep(grace_s / 2 if self._heeds_cancel else grace_s)
        await self.work.kill()

    async def _cancel_when_ending(self, scope: trio.CancelScope) -> None:
        await self._ending.wait()
        scope.cancel()

    async def _mind_clocks(self) -> None:
        run = self.run
        while not self._reason:
            now_s = self._clock()
            if now_s - self._heard_s > run.orphan_after_s:
                self._end("orphaned")
            elif self._is_admitted and run.timeout_s is not None and now_s - self._started_s > run.timeout_s:
                self._end("timed_out")
            elif self._is_admitted and run.stall_after_s is not None and now_s - self._alive_s > run.stall_after_s:
                self._end("stalled")
            await trio.sleep(CLOCK_LOOK_S)

    # -- what it says -----------------------------------------------------------------------------

    def _hear_line(self, line: dict[str, Any]) -> None:
        """One line from the work. What makes no sense in it is passed over: it may come from any program."""
        self._alive_s = self._clock()
        if progress := progress_of(line.get("progress")):
            self._progress = progress
            self._news.set()
        for name in ("info", "metrics", "stage"):
            if isinstance(line.get(name), dict):
                self._details = details_with(self._details, {name: line[name]})
                self._news.set()
        if "result" in line:
            self._said = Outcome(status="succeeded", result=line["result"])
        if "error" in line:
            self._said = Outcome(
                status="failed",
                error=str(line["error"]),
                traceback=str(line.get("traceback", "")),
                final=line.get("final") is True,
            )
        if line.get("heeds_cancel"):
            self._heeds_cancel = True
        if isinstance(line.get("note"), dict):
            self._hear_note(_number(line.get("ask")), line["note"])
        elif line.get("confirm") and len(self._confirms) < CONFIRMS_MAX:
            self._confirms.append(_number(line.get("ask")))
            self._news.set()

    def _hear_note(self, ask: int, note: dict[str, Any]) -> None:
        """Notes that wait to be told are bounded like those that are kept."""
        size = NOTES_BYTES_MAX if why_odd(note, "a note") else len(_encode(note))
        if self._notes_bytes + size >= NOTES_BYTES_MAX:
            self.work.say({"answer": ask, "verdict": "too_large"})
            return
        self._notes_bytes += size
        self._notes.append((ask, note))
        self._news.set()

    # -- reports ----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Report: what waits for an answer at once, other news after a moment, and now and then that it is alive."""
        while True:
            if not (self._notes or self._confirms):
                with trio.move_on_after(self.run.heartbeat_s):
                    await self._news.wait()
                    await self._gather()
            self._news = trio.Event()
            if self._notes:
                ask, note = self._notes.pop(0)
                self._notes_bytes -= len(_encode(note))
                await self._report_note(ask, note)
                continue
            confirms, self._confirms = self._confirms, []
            verdict = await self._say(self._report("beat"))
            for ask in confirms:
                self.work.say({"answer": ask, "verdict": verdict})

    async def _gather(self) -> None:
        with trio.move_on_after(REPORT_GAP_S):
            while not (self._notes or self._confirms):
                self._news = trio.Event()
                await self._news.wait()

    async def _report_note(self, ask: int, note: dict[str, Any]) -> None:
        verdict = await self._say(self._report("beat", notes=note))
        self.work.say({"answer": ask, "verdict": "go" if verdict == "cancel" else verdict})

    def _last_report(self, outcome: Outcome) -> Report:
        """How it ended, with all that is not known to have been told."""
        before, report = self._unanswered, self._report("ended", outcome=outcome)
        if before is not None:  # it may have counted: then saying it again changes nothing
            report.progress = report.progress or before.progress
            report.details = details_with(before.details, report.details)
            report.notes = dict(before.notes)
        for _, note in self._notes:
            report.notes |= note
        return report

    def _report(self, what: Literal["started", "beat", "ended"], **more: Any) -> Report:
        self._n += 1
        report = Report(tag=self.run.tag, n=self._n, what=what, nonce=self.nonce, **more)
        if what == "started":
            report.place, report.pid = self.place, self.pid
        if "notes" not in more:
            report.progress, self._progress = self._progress, None
            report.details, self._details = self._details, {}
        return report

    async def _say(self, report: Report) -> str:
        """Until it is answered: the same report, so that it counts once."""
        self._unanswered = report
        while True:
            asked_s = self._clock()
            try:
                verdict = await self.uplink.report(self.run.job, report)
            except TryAgain:
                await trio.sleep(RETRY_S)
                continue
            self._unanswered = None
            # From when it was sent: the owner counts from when it heard, which was later.
            self._heard_s = max(self._heard_s, asked_s)
            if verdict == "cancel":
                self._end("cancelled")
            elif verdict == "fenced" and report.what != "ended":
                self._end("fenced")
            return verdict


def _number(said: Any) -> int:
    return said if isinstance(said, int) else 0
