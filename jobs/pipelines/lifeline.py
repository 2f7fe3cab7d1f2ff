"""Processes that don't outlive whoever started them."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable

__all__ = ["dies_with_parent", "guard"]

PR_SET_PDEATHSIG = 1
_GUARD = "read -r line; kill -9 0"


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


def guard() -> subprocess.Popen[bytes]:
    """The leader of a new process group (its number is the group's): it kills all of it when whoever has called this
    has ended, be it killed."""
    null = subprocess.DEVNULL
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD], process_group=0, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0
    )
