"""Signals that tell a process to stop, and, when it is told again, to stop at once.

A process that is forked from one that heeds them has nobody who would: there they end it, as they end any other. Else a
pool of `multiprocessing`, which tells its workers to end, would wait for them for ever.
"""

import os
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import trio

__all__ = ["SAME_SIGNAL_S", "told_to_stop"]

SAME_SIGNAL_S = 0.3
"""What comes so soon after the first signal is the same one: terminals and supervisors tell whole process groups."""


_ENDING: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
_heeded: dict[signal.Signals, Any] = {}
"""signal -> the handler that only this process has use for"""


async def told_to_stop(received: AsyncIterator[int]) -> AsyncIterator[tuple[int, bool]]:
    """Each signal, and whether the process is told again by it."""
    _heeded.update((number, signal.getsignal(number)) for number in _ENDING)
    first_s: float | None = None
    async for number in received:
        if first_s is None:
            first_s = trio.current_time()
            yield number, False
        elif trio.current_time() - first_s > SAME_SIGNAL_S:
            yield number, True


class _Forking(threading.local):
    mask: set[int] | None = None


_forking = _Forking()


def _hold_back() -> None:
    """What a child is told before it can hear it would be lost: Python's own handler has it by then."""
    if _heeded:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _heeded)


def _hear_again() -> None:
    heeded = [number for number, handler in _heeded.items() if handler is signal.getsignal(number)]
    if heeded:
        signal.set_wakeup_fd(-1)  # it would wake the parent
    for number in heeded:
        signal.signal(number, _ENDING[number])
    _let_through()


def _let_through() -> None:
    mask, _forking.mask = _forking.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_hear_again)
