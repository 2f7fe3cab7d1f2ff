"""Finding and ending all processes of a run: by their group; by the mark in their environment, which those who have
left the group still carry; and by descent, where the wrapper is a process of its own, which adopts its orphans.

Who leaves the session and clears its environment too is found by descent only: it survives a wrapper that is killed.
What a run started to outlive it, which says so in its environment, is left alone.
"""

import ctypes
import os
import signal
import time
from collections.abc import Collection

import psutil

from tenure.jobs.reporting import OUTLIVES, RUN_TAG

__all__ = ["adopt_orphans", "end_all", "marked", "outlives", "reap", "variables"]

ROUNDS_MAX = 200
ROUND_S = 0.02
PR_SET_CHILD_SUBREAPER = 36


def marked(tag: str) -> list[psutil.Process]:
    """The processes that carry this run's mark, this one left out."""
    mark = f"{RUN_TAG}={tag}".encode()
    return [
        process for process in psutil.process_iter() if mark in variables(process.pid) and process.pid != os.getpid()
    ]


def variables(pid: int) -> list[bytes]:
    """The environment that a process began with, each as NAME=VALUE; nothing of one that has ended, or is somebody
    else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return environment.read().split(b"\0")
    except OSError:
        return []


def adopt_orphans() -> bool:
    """From now on, orphaned descendants become children of this process, not of init."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    return prctl is not None and prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def reap(spare: Collection[int]) -> None:
    """Let adopted children that have ended go; `spare` are our own, whom somebody waits for."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_pid not in spare:
            os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:
        pass  # there are none


def end_all(tag: str, group: int | None = None, *, spare: Collection[int] | None = None) -> bool:
    """Kill -9 them all, again and again, until none is left. `spare`: all descendants of this process are among them,
    except these and what is to outlive the run. False: some can't be killed (they wait for a disk that does not
    answer)."""
    for _ in range(ROUNDS_MAX):
        if group is not None:
            _kill_group(group)
        left = marked(tag)  # zombies carry no mark any more
        if spare is not None:
            left += [process for process in _descendants(spare) if not outlives(process.pid, tag)]
        if not left:
            return True
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                pass  # it has ended
        time.sleep(ROUND_S)
    return False


def outlives(pid: int, tag: str) -> bool:
    """Whether this process is none of the run's own, though started by it."""
    for variable in variables(pid):
        name, _, tags = variable.partition(b"=")
        if name == OUTLIVES.encode():
            return tag.encode() in tags.split(b",")
    return False


def _descendants(spare: Collection[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.pid not in spare and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # empty; or its last members are zombies of another user
