"""What becomes of jobs' activities, in the draft: what turns want of them, and what is heard of them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from tenure.scheduler import activities
from tenure.scheduler.activities import Change, Wish
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.budget import envelope_bytes
from tenure.scheduler.live import Live
from tenure.scheduler.wire import Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["ActivityChanges"]

_encode = msgspec.msgpack.Encoder().encode


class ActivityChanges:
    """Those of one tenure's jobs."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host = tenure, tenure.host

    def check(self, live: Live, wishes: Iterable[Wish]) -> None:
        """Can a turn still have these? What there is may have changed since it asked. Raises what `apply` would."""
        activities.apply(live.activities, wishes, self.host.now_ms())

    def apply(self, live: Live, wishes: Iterable[Wish]) -> None:
        """A turn wants these."""
        live.activities, events = activities.apply(live.activities, wishes, self.host.now_ms())
        self._changed(live)
        for event in events:
            self._tell(live, event)
        if live.status == Status.STOPPING:
            self.cancel_all(live)  # its removal came first, and would wait for what it starts now

    def cancel_all(self, live: Live) -> int:
        """None of them is wanted any more. Returns how many had not ended."""
        unended = [activity for activity in live.activities if not activity.has_ended]
        for activity in unended:
            self.make(live, activities.cancel(activity, self.host.now_ms()))
        return len(unended)

    def make(self, live: Live, change: Change) -> None:
        """This has become of one of them."""
        new = change.activity
        live.activities = tuple(new if activity.id == new.id else activity for activity in live.activities)
        self._changed(live)
        if change.event is not None:
            self._tell(live, change.event)
        if new.has_ended:
            self.tenure.stopping.activity_ended(live)

    def _is_full(self, live: Live) -> bool:
        settings = self.tenure.settings
        return len(live.queue) >= settings.mailbox_messages_max or live.mail_bytes >= settings.mailbox_bytes_max

    def _changed(self, live: Live) -> None:
        draft = self.tenure.turns.draft
        draft.changed[live.id] = live
        draft.acted[live.id] = None
        self.tenure.want_commit()

    def _tell(self, live: Live, event: ActivityEvent) -> None:
        if Kind.ACTIVITY not in live.type.handlers if not live.stuck else live.status == Status.STOPPING:
            return  # it does not want to know, or never will
        if not event.has_ended and self._is_full(live):
            return  # its record says how far it is; the end is told in any case
        # One that has said nothing may be gone already: cancelled, and its name used again, in one turn.
        said = next((activity.said for activity in live.activities if activity.id == event.id), 0)
        which = f"{event.id}.{event.attempt}.{event.status}.{said}"
        envelope = Envelope(live.id, Raw(_encode(event)), Kind.ACTIVITY, source=which, origin=self.tenure.host.origin())
        if live.status == Status.STOPPING and live.queue and live.queue[0].kind == Kind.STOP and not live.running:
            self.tenure.lives.put_first(live, envelope)  # it hears of it before it stops
        else:
            live.queue.append(envelope)
            self.tenure.turns.draft.other_bytes += envelope_bytes(envelope)
        self.tenure.turns.draft.uncarried[live.id] = live
        self.tenure.lives.ready(live)
