"""What becomes of a turn that has failed: its event is tried again, or its job has failed and waits for somebody."""

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.live import Live
from tenure.scheduler.texts import storable, told
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import Envelope, Failure, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["ENDS", "Failing"]

TRACEBACK_CHARS_MAX = 8000
ENDS = (KeyboardInterrupt, trio.Cancelled)
"""What goes on up when it comes out of a handler: all else that one raises is its turn's failure, whatever it derives
from. (A cancelled asyncio task, say, is no `Exception`.)"""


class Failing:
    """How one tenure deals with failures."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.turns = tenure, tenure.host, tenure.turns

    def raised(self, live: Live, envelope: Envelope, error: BaseException) -> None:
        """A handler may raise anything, and its nursery several things at once; it is recorded.

        What is no failure goes on up: that the turn was cancelled, and what ends the process.
        """
        if isinstance(error, ENDS):
            raise error
        if isinstance(error, BaseExceptionGroup):
            cancelled, others = error.split(trio.Cancelled)
            if others is not None and others.split(KeyboardInterrupt)[0] is not None:
                raise error
            if cancelled is not None:
                if others is not None:
                    besides = "; ".join(map(told, _each(others)))
                    self.host.report(f"job {live.id!r}: its turn was cancelled, and raised besides: {besides}")
                # Alone: the scope that it ends at would let the others through.
                raise cancelled from None
        self.fail(live, envelope, error)

    def fail(self, live: Live, envelope: Envelope, error: BaseException) -> None:
        """Back to the last good state; the event stays first in the queue, to be tried again, or the job has failed."""
        live.instance = None
        if live.precounted:
            live.uncount(1)  # those behind it were not tried
            live.precounted = 0
        else:
            envelope.attempts += 1
        retry = live.type.retry
        final = envelope.attempts >= retry.attempts_max
        now_ms = self.host.now_ms()
        retry_ms = 0 if final else now_ms + max(1, round(retry.delay_s(envelope.attempts) * 1000))
        live.failure = Failure(
            told(error),
            storable("".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]),
            turn_id(live.id, live.generation, envelope),
            envelope.attempts,
            now_ms,
            retry_ms,
        )
        self._log(live, live.failure)
        draft = self.turns.draft
        draft.changed[live.id] = draft.uncarried[live.id] = draft.recounted[live.id] = live
        draft.wanted = True
        if final:
            self.give_up(live, envelope)
        else:
            self.tenure.alarms.retry(live, live.failure)

    def _log(self, live: Live, failure: Failure) -> None:
        again = f", tried again in {(failure.retry_ms - failure.at_ms) / 1000:g} s" if failure.retry_ms else ""
        attempt = f"attempt {failure.attempts} of {live.type.retry.attempts_max}"
        text = f"job {live.id!r} ({live.type_name}): {attempt} at {failure.event} failed{again}: {failure.error}"
        self.host.failure_log.tell(text, failure.traceback)

    def give_up(self, live: Live, envelope: Envelope) -> None:
        """The first entry of its queue was tried often enough: the job has failed, unless it is to go anyway."""
        assert live.failure is not None
        self.turns.draft.changed[live.id] = live
        self.turns.draft.wanted = True
        if envelope.kind == Kind.STOP:
            self.host.report(f"job {live.id!r} is removed although its on_stop failed: {live.failure.error}")
            self.turns.done(live, envelope)
            self.tenure.stopping.remove(live)
        elif live.status == Status.STOPPING:
            # Nobody would come to retry it, and it would never be gone.
            self.turns.done(live, envelope)
            self.tenure.dead_letters.bury(envelope, "JobFailed", live.failure.error)
            live.failure = None
        else:
            self._park_failed(live, envelope, live.failure)

    def _park_failed(self, live: Live, envelope: Envelope, failure: Failure) -> None:
        # It waits, with its error and the message that did it, for `retry`.
        live.status = Status.FAILED
        self.host.report(f"job {live.id!r} has failed after {failure.attempts} attempts: {failure.error}")
        self.turns.draft.answer_error(envelope, "JobFailed", f"job {live.id!r}: {failure.error}")
        self.tenure.taking.refusals.refuse_waiting(live)


def _each(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
