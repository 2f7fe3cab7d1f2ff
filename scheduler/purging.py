"""Stopping what would not stop by itself: backlogs that are dropped, turns that are ended for good.

What is dropped is counted, and the count is told; it makes no dead letters, which would be kept, reported and held
back for: who asks for this has decided that nobody wants these messages. The one message whose turn was cut short is
kept as a dead letter, so that it can be looked at.
"""

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.scheduler.live import Live
from tenure.scheduler.wire import Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["NOW", "Purging"]

DROPPED_A_LOOK = 1024
"""So many are dropped between two looks at the clock and the draft."""
NOW = "now"
"""The id of the entry that stops a job which is to be gone: its `on_stop` is tried once."""


class Purging:
    """How one tenure does."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.turns, self.lives = tenure, tenure.turns, tenure.lives

    def purge(self, live: Live, reason: str, text: str) -> tuple[int, bool]:
        """Drop the messages that wait for it, also one that is to be tried again, but not the turn that runs. Whoever
        asked hears why. Returns how many there were, and whether there are more, for the next record."""
        must_end, draft, dropped = self.tenure.taking.must_end, self.turns.draft, list[Envelope]()
        is_left = False
        for n, envelope in enumerate(islice(live.queue, 1 if live.running else 0, None), 1):
            if envelope.kind == Kind.MESSAGE:
                dropped.append(envelope)
                if envelope.reply:
                    draft.answer_error(envelope, reason, text)
            if n % DROPPED_A_LOOK == 0 and dropped and must_end():
                is_left = True
                break
        if dropped:
            if dropped[0] is live.queue[0]:
                self._forgive(live)
            self._take_out(live, dropped)
            self.tenure.holding.settled(live)
        return len(dropped), is_left

    def end(self, live: Live) -> tuple[int, bool]:
        """It is being removed, and is to be gone: all but `on_stop` is dropped, which runs once. Returns how many
        messages were, and whether there are more, for the next record."""
        text = f"job {live.id!r} was removed, and what waited for it was dropped"
        count, is_left = self.purge(live, "JobRemoved", text)
        if is_left:
            return count, True
        rest = list(live.queue)[1 if live.running else 0 :]
        if any(_ends_at_once(envelope) for envelope in rest):
            self._take_out(live, [envelope for envelope in rest if envelope.kind in (Kind.START, Kind.STOP)])
            self.tenure.stopping.remove(live)
            return count, False
        stops = [envelope for envelope in rest if envelope.kind == Kind.STOP]
        self._take_out(live, [envelope for envelope in rest if envelope.kind not in (Kind.STOP, Kind.STATE)])
        for stop in stops:
            place = next(n for n, envelope in enumerate(live.queue) if envelope is stop)
            self._take_out(live, [stop])  # what an entry is never changes in its mailbox
            self.lives.put_in(live, place, replace(stop, id=NOW))
        self._forgive(live)
        self.end_turn(live)
        self.lives.ready(live)
        return count, False

    def end_turn(self, live: Live) -> bool:
        """End the turn that runs. Where a job can't be paused, as it is being removed, its event is not tried again."""
        if live.scope is None:
            return False
        live.is_ended = live.status == Status.STOPPING
        live.scope.cancel()
        return True

    def ended(self, live: Live, envelope: Envelope) -> None:
        """A turn of a job that is being removed was cancelled, or failed as it was."""
        live.is_ended, live.instance = False, None
        if not live.queue or live.queue[0] is not envelope:
            return  # it had finished
        self._forgive(live)
        self.turns.done(live, envelope)
        if envelope.kind in (Kind.START, Kind.STOP):
            self._drop_stop(live)
            self.tenure.host.report(f"job {live.id!r} is removed, and its turn was cancelled: its end did not run")
            self.tenure.stopping.remove(live)
        elif envelope.kind == Kind.MESSAGE:
            self.tenure.dead_letters.keep(envelope, "Cancelled", "its turn was cancelled, as its job was being removed")

    def _drop_stop(self, live: Live) -> None:
        self._take_out(live, [envelope for envelope in live.queue if envelope.kind == Kind.STOP])

    def _forgive(self, live: Live) -> None:
        if live.failure is not None and live.status != Status.FAILED:
            live.failure = None
            self.turns.draft.changed[live.id] = live
            self.turns.draft.wanted = True

    def _take_out(self, live: Live, unwanted: list[Envelope]) -> None:
        self.lives.take_out(live, unwanted)
        self.turns.draft.wanted = True


def _ends_at_once(envelope: Envelope) -> bool:
    """A job that has not started, or whose end was tried, has nothing left to do."""
    return envelope.kind == Kind.START or (envelope.kind == Kind.STOP and envelope.attempts > 0)
