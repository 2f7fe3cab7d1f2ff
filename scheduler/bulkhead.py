"""Bulkheads: an error that nobody expected stops the one thing that met it, for a while, and nothing else.

    partition's tenure ── error ──► parked: the tenure is forgotten ── pause ──► opened again
    task of the node   ── error ──► reported ──────────────────────── pause ──► goes on

Each pause is twice as long as the one before, and short again after a time without errors. What a tenure had not
committed is forgotten, as after a crash of the node; it commits nothing after the error. Its messages are run with care
when it is opened again (see `suspicion`), so that one which does this each time fails its own job at last.
"""

import traceback
from collections.abc import Callable
from typing import NamedTuple

import trio

from tenure.scheduler.texts import told

__all__ = ["Bulkhead", "Pauses", "Stopped", "cause_of"]

PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
FORGIVEN_AFTER_S = 60.0
"""Who has gone on for so long since its last error begins with a short pause at the next."""
SHOWN_CHARS, SHOWN_MAX = 300, 20
"""What heartbeats say of parked partitions: so much of each reason, and of so many a reason at all."""
ENDS = (KeyboardInterrupt, SystemExit)
"""What is meant for the whole process."""


def cause_of(error: BaseException) -> BaseException:
    """What a task ended with, out of the groups that nurseries made of it: the one error in them, if there is just
    one. That it was cancelled, and what ends the process, is raised (alone, or it would not end at its scope)."""
    if not isinstance(error, BaseExceptionGroup):
        if isinstance(error, (trio.Cancelled, *ENDS)):
            raise error
        return error
    ends, others = error.split(ENDS)
    if ends is not None:
        raise error
    assert others is not None
    cancelled, errors = others.split(trio.Cancelled)
    if errors is None:
        assert cancelled is not None
        raise cancelled from None
    while isinstance(errors, BaseExceptionGroup) and len(errors.exceptions) == 1:
        errors = errors.exceptions[0]
    return errors


class Pauses:
    """How long one thing stands still after each of its errors."""

    def __init__(self) -> None:
        self.times = 0
        self._again_s = 0.0

    def next_s(self) -> float:
        """It has met an error, now."""
        now_s = trio.current_time()
        if self.times and now_s - self._again_s >= FORGIVEN_AFTER_S:
            self.times = 0
        pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** min(self.times, 16))
        self.times += 1
        self._again_s = now_s + pause_s
        return pause_s


class Stopped(NamedTuple):
    """Why a partition is parked."""

    error: str
    """With what was in hand as it came, as far as that is known."""
    traceback: str
    at_ms: int
    times: int
    """How often it was, in a row."""


class Bulkhead:
    """One node's."""

    def __init__(self, now_ms: Callable[[], int], log_error: Callable[[str, BaseException], None]) -> None:
        self._now_ms, self._log_error = now_ms, log_error
        self.parked: dict[int, Stopped] = {}
        """The partitions that stand still, and those that did lately."""
        self._pauses: dict[int | str, Pauses] = {}
        self._told: dict[int | str, str] = {}

    def park(self, partition: int, error: BaseException) -> float:
        """This partition's tenure has ended with an error: so long is it to stand still."""
        pauses = self._pauses.setdefault(partition, Pauses())
        pause_s = pauses.next_s()
        text = "; ".join([told(error), *getattr(error, "__notes__", ())])
        whole = "".join(traceback.format_exception(error))
        self.parked[partition] = Stopped(text, whole[-8000:], self._now_ms(), pauses.times)
        self._tell_once(
            partition,
            f"partition {partition} is parked on this node, and opened again in {pause_s:g} s, then ever more rarely; "
            f"all others go on: {text}",
            error,
        )
        return pause_s

    def opened(self, partition: int) -> None:
        """It is at work again. (If it meets the same again before long, that is the next time in a row.)"""
        self.parked.pop(partition, None)

    def met(self, task: str, error: BaseException) -> float:
        """A task of the node's own has met an error: so long is it to pause before it goes on."""
        pause_s = self._pauses.setdefault(task, Pauses()).next_s()
        self._tell_once(task, f"{task} failed, and goes on in {pause_s:g} s: {told(error)}", error)
        return pause_s

    def shown(self) -> dict[int, str]:
        """For heartbeats."""
        return {
            partition: f"{stopped.error[:SHOWN_CHARS]} ({stopped.times} times)" if n < SHOWN_MAX else ""
            for n, (partition, stopped) in enumerate(sorted(self.parked.items()))
        }

    def _tell_once(self, who: int | str, text: str, error: BaseException) -> None:
        what = told(error)
        if self._told.get(who) != what:
            self._told[who] = what
            self._log_error(text, error)
