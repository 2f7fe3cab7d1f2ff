"""How a driver on another machine and its job talk: by two files in a folder that both machines see.

    driver ── said.jsonl ──► submission ── its report channel ──► wrapper ──► job
    driver ◄── heard.jsonl ── submission ◄── cancel, answers ───────┘

Files only grow, a line at a time. Whoever takes a submission over reads all that was said, from the beginning: what
counts once is numbered by the driver. A driver that hears nothing for too long ends: it was given up, perhaps.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenure.jobs.reporting import Fenced, Reporter
from tenure.scheduler.errors import NotDone, TooLarge

__all__ = ["HEARD", "SAID", "Growing", "Relay", "relayed"]

SAID, HEARD = "said.jsonl", "heard.jsonl"
LOOK_EVERY_S = 0.1
BEAT_EVERY_S = 5.0
LAST = ("result", "error")


class Growing:
    """Whole lines of a file that grows, each once."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is still being written
                self._at += len(line)
                if line.strip():
                    yield json.loads(line)


def append(path: Path, lines: bytes) -> None:
    """In one write, so that two who write don't mix their lines."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, lines)
        os.fsync(handle)
    finally:
        os.close(handle)


# -- at the driver -------------------------------------------------------------------------------------


@contextmanager
def relayed(
    folder: Path, silent_s: float, give_up: Callable[[], object] = lambda: os._exit(3)
) -> Iterator[socket.socket]:
    """The channel for a driver's reporter. When nothing was heard for so long, it gives up: by default, it ends."""
    ours, drivers = socket.socketpair()
    over = threading.Event()
    speaking = threading.Thread(target=_speak, args=(ours, folder / SAID), daemon=True)
    hearing = threading.Thread(target=_hear, args=(ours, folder / HEARD, silent_s, give_up, over), daemon=True)
    speaking.start()
    hearing.start()
    try:
        yield drivers
    finally:
        drivers.close()
        speaking.join()  # all that was said is written
        over.set()
        hearing.join()
        ours.close()


def _speak(channel: socket.socket, path: Path) -> None:
    rest = b""
    while data := channel.recv(2**20):
        lines, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            append(path, lines + newline)


def _hear(
    channel: socket.socket, path: Path, silent_s: float, give_up: Callable[[], object], over: threading.Event
) -> None:
    heard, last_s = Growing(path), time.monotonic()
    while not over.wait(LOOK_EVERY_S):
        for line in heard.lines():
            last_s = time.monotonic()
            if "beat" not in line:
                try:
                    channel.sendall(json.dumps(line).encode() + b"\n")
                except OSError:
                    return  # the driver is at its end
        if time.monotonic() - last_s > silent_s:
            give_up()
            return


# -- at the submission ---------------------------------------------------------------------------------


class Relay:
    """Passes on what the driver in a folder says, and answers it."""

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self._folder, self._reporter = folder, reporter
        self._said = Growing(folder / SAID)
        self._beaten_s = -BEAT_EVERY_S
        self.last: dict[str, Any] | None = None
        """What it said last: its result, or its error."""

    def say(self, **line: Any) -> None:
        """Tell the driver."""
        append(self._folder / HEARD, json.dumps(line).encode() + b"\n")

    def turn(self) -> None:
        """Pass on what is new. Raises `Fenced` if this attempt does not count any more."""
        if time.monotonic() - self._beaten_s >= BEAT_EVERY_S:
            self._beaten_s = time.monotonic()
            self.say(beat=True)
        for line in self._said.lines():
            if "ask" in line:
                self._answer(line)
            elif any(name in line for name in LAST):
                self.last = line
            elif "heeds_cancel" not in line:
                self._reporter.pass_on(line)

    def _answer(self, line: dict[str, Any]) -> None:
        try:
            for name, value in line.get("note", {}).items():
                self._reporter.note(name, value)
            if line.get("confirm"):
                self._reporter.confirm()
        except TooLarge:
            self.say(answer=line["ask"], verdict="too_large")
        except NotDone:
            pass  # nobody has answered: the driver asks until its own patience ends
        except Fenced:
            self.say(answer=line["ask"], verdict="fenced")
            raise
        else:
            self.say(answer=line["ask"], verdict="go")
