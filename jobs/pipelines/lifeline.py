"""Processes that don't outlive whoever started them."""

import ctypes
import os
import signal
from collections.abc import Callable

__all__ = ["dies_with_parent"]

PR_SET_PDEATHSIG = 1


def dies_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the process is killed when the thread that started it ends, even if that was killed itself.

    So start it from a thread that lives as long as it should: the main one. (trio's helper threads don't.)
    """
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has died in between
            os.kill(os.getpid(), signal.SIGKILL)

    return before_exec
