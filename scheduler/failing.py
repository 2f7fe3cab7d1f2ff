"""What becomes of a turn that has failed: its event is tried again, then it is refused or skipped, or its job has
failed and waits for somebody.

A question (`ask`) never parks its job: its error is its answer, and whoever asked decides what is to be done.
"""

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.errors import Reject
from tenure.scheduler.live import Live
from tenure.scheduler.purging import NOW
from tenure.scheduler.texts import storable, told
from tenure.scheduler.turnid import EVENTS, turn_id
from tenure.scheduler.wire import Envelope, Failure, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["ENDS", "Failing"]

TRACEBACK_CHARS_MAX = 8000
ENDS = (KeyboardInterrupt, trio.Cancelled)
"""What goes on up when it comes out of a handler: all else that one raises is its turn's failure, whatever it derives
from. (A cancelled asyncio task, say, is no `Exception`.)"""
IMPATIENT_ATTEMPTS_MAX = 5
"""Where somebody waits: for the answer to a question, or for a job that is to go."""
JITTER = 0.1


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
        """Back to the last good state; its event is first in the queue and is tried again, or this was the last try."""
        live.instance = None
        if (refusal := _refusal(error)) is not None and envelope.kind == Kind.MESSAGE:
            self._reject(live, envelope, refusal)
            return
        if live.precounted:
            self.turns.draft.uncount(live, 1)  # those behind it were not tried
            live.precounted = 0
        else:
            envelope.attempts += 1
        retry, most = live.type.retry, self._attempts_max(live, envelope)
        is_last = most is not None and envelope.attempts >= most
        final = is_last or refusal is not None or _is_among(error, retry.not_on)
        now_ms = self.host.now_ms()
        delay_s = retry.delay_s(envelope.attempts) * (1 + JITTER * self.host.random.random())
        retry_ms = 0 if final else now_ms + max(1, round(delay_s * 1000))
        live.failure = Failure(
            told(_alone(error)),
            storable("".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]),
            turn_id(live.id, live.generation, envelope),
            envelope.attempts,
            now_ms,
            retry_ms,
        )
        self._log(live, live.failure, most)
        draft = self.turns.draft
        draft.changed[live.id] = draft.uncarried[live.id] = draft.recounted[live.id] = live
        draft.wanted = True
        if final:
            self.give_up(live, envelope)
        else:
            self.tenure.alarms.retry(live, live.failure)

    def _log(self, live: Live, failure: Failure, most: int | None) -> None:
        wait_s = round((failure.retry_ms - failure.at_ms) / 1000, 1)
        again = f", tried again in {wait_s:g} s" if failure.retry_ms else ""
        attempt = f"attempt {failure.attempts}{'' if most is None else f' of {most}'}"
        text = f"job {live.id!r} ({live.type_name}): {attempt} at {failure.event} failed{again}: {failure.error}"
        self.host.failure_log.tell(text, failure.traceback)

    def _attempts_max(self, live: Live, envelope: Envelope) -> int | None:
        if envelope.kind == Kind.STOP and envelope.id == NOW:
            return 1
        most = live.type.retry.attempts_max
        if envelope.reply or live.status == Status.STOPPING:
            return IMPATIENT_ATTEMPTS_MAX if most is None else min(most, IMPATIENT_ATTEMPTS_MAX)
        return most

    def _reject(self, live: Live, envelope: Envelope, refusal: Reject) -> None:
        """The handler has refused this message: for the one who asked, that is the answer."""
        self._dealt_with(live, envelope)
        text = told(refusal).partition(": ")[2] or f"job {live.id!r} has rejected the message"
        if envelope.reply:
            self.turns.draft.answer_error(envelope, "Rejected", text)
        else:
            self.tenure.dead_letters.keep(envelope, "Rejected", text)

    def _dealt_with(self, live: Live, envelope: Envelope) -> None:
        """No more is tried for this event, and the job goes on with the next."""
        self.turns.done(live, envelope)
        live.failure = None
        self.turns.draft.changed[live.id] = live

    def give_up(self, live: Live, envelope: Envelope) -> None:
        """The first entry of its queue was tried often enough: the job has failed, unless it is to go on."""
        failure = live.failure
        assert failure is not None
        self.turns.draft.changed[live.id] = live
        self.turns.draft.wanted = True
        if envelope.kind == Kind.STOP:
            self.host.report(f"job {live.id!r} is removed although its on_stop failed: {failure.error}")
            self.turns.done(live, envelope)
            self.tenure.stopping.remove(live)
        elif envelope.reply:
            self._dealt_with(live, envelope)
            self.turns.draft.answer_error(envelope, "JobFailed", f"job {live.id!r}: {failure.error}")
        elif live.status == Status.STOPPING:
            # Nobody would come to retry it, and it would never be gone.
            self._dealt_with(live, envelope)
            self.tenure.dead_letters.keep(envelope, "JobFailed", failure.error)
        elif live.type.on_failure == "skip" and envelope.kind != Kind.START:
            # A job that has not started would go on with what it lacks.
            self._dealt_with(live, envelope)
            self._skip(live, envelope, failure)
        else:
            self._park_failed(live, envelope, failure)

    def _skip(self, live: Live, envelope: Envelope, failure: Failure) -> None:
        if envelope.kind == Kind.MESSAGE:
            self.tenure.dead_letters.keep(envelope, "JobFailed", failure.error)
        else:
            what = f"its {EVENTS[envelope.kind]} event after {times(failure.attempts)}"
            self.host.report(f"job {live.id!r} skips {what}: {failure.error}")

    def _park_failed(self, live: Live, envelope: Envelope, failure: Failure) -> None:
        # It waits, with its error and the message that did it, for `retry`.
        live.status = Status.FAILED
        self.host.report(f"job {live.id!r} has failed after {times(failure.attempts)}: {failure.error}")
        self.tenure.taking.refusals.refuse_waiting(live)


def times(attempts: int) -> str:
    """In words."""
    return f"{attempts} attempt{'s' * (attempts != 1)}"


def _refusal(error: BaseException) -> Reject | None:
    """What the handler refused the message with, if that is all that it raised."""
    if isinstance(error, BaseExceptionGroup):
        refusals = [each for each in _each(error) if isinstance(each, Reject)]
        return refusals[0] if len(refusals) == sum(1 for _ in _each(error)) else None
    return error if isinstance(error, Reject) else None


def _alone(error: BaseException) -> BaseException:
    """What a nursery has wrapped, if it is one: its text says more."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _is_among(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(isinstance(each, kinds) for each in _each(error))
    return isinstance(error, kinds)


def _each(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
