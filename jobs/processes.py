"""Finding and ending all processes of a run: by their group, and by the mark in their environment, which those who
have left the group still carry."""

import os
import signal
import time

import psutil

from tenure.jobs.reporting import RUN_TAG

__all__ = ["end_all", "marked"]

ROUNDS_MAX = 200
ROUND_S = 0.02


def marked(tag: str) -> list[psutil.Process]:
    """The processes that carry this run's mark, this one left out."""
    mark = f"{RUN_TAG}={tag}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as environment:
                if mark in environment.read().split(b"\0") and process.pid != os.getpid():
                    found.append(process)
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def end_all(tag: str, group: int | None = None) -> bool:
    """Kill -9 them all, again and again, until none is left. False: some can't be killed (they wait for a disk that
    does not answer)."""
    for _ in range(ROUNDS_MAX):
        if group is not None:
            _kill_group(group)
        left = marked(tag)  # zombies carry no mark any more
        if not left:
            return True
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                pass  # it has ended
        time.sleep(ROUND_S)
    return False


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # empty; or its last members are zombies of another user
