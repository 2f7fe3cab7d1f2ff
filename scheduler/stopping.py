"""How jobs end: what was accepted is finished first, then `on_stop` runs, and with the next commit the job is gone."""

from collections import deque
from typing import TYPE_CHECKING

from tenure.scheduler.live import Live
from tenure.scheduler.wire import Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Stopping"]


class Stopping:
    """How one tenure stops jobs."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.turns, self.lives = tenure, tenure.turns, tenure.lives
        self._unfinished: list[str] = []

    def resume(self, id: str) -> None:
        """It had asked for its own end, under the last tenure."""
        self._unfinished.append(id)

    def begin(self) -> None:
        """The tenure runs."""
        for id in self._unfinished:
            self.tenure.definitions.remove(self.lives.of(id))

    def finish_wanted(self, live: Live) -> None:
        """A job has asked for its own end: its definition must say so first, lest it be made again."""
        if live.status == Status.STOPPING:
            return  # somebody was faster: it does, and the stop is on its way
        live.status = Status.FINISHING
        live.timer = None
        self.tenure.definitions.remove(live, self.turns.draft)

    def stop(self, live: Live) -> None:
        """Removal is wanted: what was accepted is finished first, then `on_stop` runs."""
        if live.status == Status.STOPPING:
            return
        self.tenure.credit.unpark(live)  # it goes, and does not wait for others
        is_stuck = live.stuck and not self.tenure.running.is_parked(live)
        was_running = live.status in (Status.RUNNING, Status.FINISHING) and not is_stuck
        live.status = Status.STOPPING
        live.timer, live.failure = None, None
        stop = Envelope(live.id, kind=Kind.STOP, origin=self.tenure.host.origin())
        if was_running:
            live.queue.append(stop)
        else:
            # A job that was stopped in its tracks goes at once; its messages are dead letters.
            self.lives.put_first(live, stop)
        self.turns.draft.changed[live.id] = self.turns.draft.uncarried[live.id] = live
        self.turns.draft.wanted = True
        self.tenure.activity_changes.cancel_all(live)
        if is_stuck:
            self.activity_ended(live)
        else:
            self.lives.ready(live)

    def activity_ended(self, live: Live) -> None:
        """A job that can't run on this node goes when the last of its activities has ended."""
        is_stuck = live.stuck and not self.tenure.running.is_parked(live)
        is_last = live.queue and live.queue[0].kind == Kind.STOP and not live.awaits_activities()
        if is_stuck and is_last and live.exists():
            self.turns.done(live, live.queue[0])
            self.remove(live)
        else:
            self.lives.ready(live)

    def remove(self, live: Live) -> None:
        """The job is gone with the next commit."""
        for topic in live.topics:
            self.turns.subscribe(live, topic, wanted=False)
        self.turns.draft.changed.pop(live.id, None)
        self.turns.draft.gone[live.id] = None
        for key in [key for key in self.turns.draft.remembered if key[0] == live.id]:
            del self.turns.draft.remembered[key]
        self.turns.draft.steps = [step for step in self.turns.draft.steps if step[0] != live.id]
        self.turns.draft.wanted = True
        self._removed(live)

    def _removed(self, live: Live) -> None:
        """What still waits for it is dealt with like messages to a job that never was."""
        rest = Live(live.id)
        rest.queue, rest.carried, rest.precounted = live.queue, live.carried, live.precounted
        rest.mail_bytes = live.mail_bytes
        live.queue, live.carried, live.precounted, live.mail_bytes = deque(), 0, 0, 0
        live.type_name = ""
        if self.turns.draft.recounted.pop(live.id, None) is not None:
            self.turns.draft.recounted[live.id] = rest
        self.lives.by_id[live.id] = rest
        self.tenure.definitions.after_removal(live.id)
        if rest.queue:
            self.turns.draft.uncarried[live.id] = rest
            self.lives.ready(rest)
        else:
            self.turns.draft.uncarried.pop(live.id, None)
