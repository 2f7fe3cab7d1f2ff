"""SIGTERM, and a terminal that is closed, give a command up as Ctrl-C does: what it has begun is taken back."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType

from tenure.cli.ends import first_error

__all__ = ["HEED_THEMSELVES", "giving_up"]

HEED_THEMSELVES = ("dev", "member", "node")
"""Commands that hand over at SIGTERM. Before they can, it ends them."""
SAME_SIGNAL_S = 1.0
"""A shell tells its jobs once more of a closed terminal: signals that follow so soon are one."""


@contextmanager
def giving_up() -> Iterator[None]:
    """In this block the signals are interrupts, but for those that somebody heeds or ignores (`nohup`) already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    give_up = _GiveUp()
    for number in signals:
        signal.signal(number, give_up)
    try:
        yield
    except BaseException as error:
        if give_up.cancelled is not None and isinstance(first_error(error), give_up.cancelled):
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)


class _GiveUp:
    """The first signal interrupts, a later one ends the process at once."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self.cancelled: type[BaseException] | None = None
        """What then comes out of trio, where it was not interrupted but cancelled."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._first_s is not None:
            if now_s - self._first_s > SAME_SIGNAL_S:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._first_s = now_s
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):  # Python's own, or that of trio, which knows when its own code must not be torn
            interrupt(signal.SIGINT, frame)
        else:
            self._without_interrupts()

    def _without_interrupts(self) -> None:
        """Where a shell has Ctrl-C ignored, as for what scripts put into the background, trio has no handler for it."""
        trio: ModuleType | None = sys.modules.get("trio")
        if trio is None:
            raise KeyboardInterrupt
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            raise KeyboardInterrupt from None
        self.cancelled = trio.Cancelled
        # The innermost nursery of the root task holds the main task alone.
        token.run_sync_soon(lambda: trio.lowlevel.current_root_task().child_nurseries[-1].cancel_scope.cancel())
