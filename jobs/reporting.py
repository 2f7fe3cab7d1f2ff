"""What a process that does the work of an activity tells its job, without knowing anything of grids.

    your process ── JSON lines over an inherited socket ──► its wrapper ── reports ──► the job
                 ◄── cancel, answers ───────────────────────┘

The wrapper (`tenure.jobs.wrapper`) starts the process with two variables in its environment:

    TENURE_RUN_FILE   a JSON file: see `RunFile`
    TENURE_REPORT_FD  the number of the socket; other languages may write such lines to it too:
                      {"progress": [3, 10]}  {"metrics": {"rows": 12}}  {"result": …}  {"error": "…"}

    from tenure.jobs.reporting import Reporter

    with Reporter.from_environment() as reporter:      # an exception becomes the attempt's error, with its traceback
        for n, file in enumerate(files):
            if reporter.cancelled:
                break
            load(file)
            reporter.progress(n + 1, len(files))
        reporter.result({"files": len(files)})

Without these variables (run by hand) the same code runs alone, and tells standard error. All methods may be
called from any thread, and block only where they say so.
"""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from tenure.scheduler.activities_bounds import why_odd
from tenure.scheduler.activities_port import Run
from tenure.scheduler.errors import Final, Mistake, NotDone, TooLarge, WrongType
from tenure.scheduler.texts import told

__all__ = ["OUTLIVES", "REPORT_FD", "RUN_FILE", "RUN_TAG", "Fenced", "Reporter", "RunFile", "load_run"]

RUN_FILE = "TENURE_RUN_FILE"
REPORT_FD = "TENURE_REPORT_FD"
RUN_TAG = "TENURE_RUN"
"""Set for every process of a run, to its tag: so they are found when the run is ended by force."""
OUTLIVES = "TENURE_OUTLIVES"
"""Set for processes that a run starts and that are none of its own (nodes, for one): the tags of the runs that they
outlive, with commas."""

LINE_BYTES_MAX = 1_000_000
ANSWER_DEADLINE_S = 60.0


class Fenced(Final):
    """This attempt was given up, or its activity cancelled: another one may be at work. Commit nothing; end."""


class RunFile(Struct, frozen=True, kw_only=True):
    """What `run.json` in a run's folder says. The folder is the process's own: for its logs, and what it keeps."""

    run: Run
    cluster: dict[str, Any] = {}
    """How to reach the cluster (`cluster_name` and `addresses`, as of Hazelcast's settings)."""
    command: dict[str, Any] = {}
    """What the wrapper starts (see `tenure.jobs.kinds.Command`)."""
    format: int = 1


def load_run(path: Path | str) -> RunFile:
    """Read a run file."""
    return msgspec.json.decode(Path(path).read_bytes(), type=RunFile)


class Reporter:
    """The connection of a process that works to its job."""

    def __init__(self, run: Run, channel: socket.socket | None = None, folder: Path | None = None) -> None:
        """`channel`: to the wrapper. Who runs the work of another process (a warm driver) gets its socket, and
        makes the reporter itself; for all others there is `from_environment`."""
        self.run = run
        """What is to be done: `run.work`, and what earlier attempts noted: `run.notes`."""
        self.folder = folder
        """The run's own folder; None when run by hand."""
        self._channel = channel
        self._sending = threading.Lock()
        self._cancelled = threading.Event()
        self._on_cancel: list[Callable[[], object]] = []
        self._questions: dict[int, _Question] = {}
        self._asked = 0
        self._has_said_last = False
        self._lost = threading.Event()
        self._is_closed = False
        if channel is not None:
            channel.setblocking(True)
            threading.Thread(target=self._listen, name="tenure-reporter", daemon=True).start()

    @classmethod
    def from_environment(cls) -> "Reporter":
        """The one of this process. Its variables are taken out of the environment, so that its children don't
        think they are meant."""
        where = os.environ.pop(RUN_FILE, "")
        number = os.environ.pop(REPORT_FD, "")
        if not where:
            return cls(Run(tag="by-hand", job="", generation=0, activity="", id="", attempt=1, kind="", work=None))
        channel = socket.socket(fileno=int(number)) if number else None
        if channel is not None:
            channel.set_inheritable(False)
        path = Path(where)
        return cls(load_run(path).run, channel, path.parent)

    # -- reports ----------------------------------------------------------------------------------

    def started(self, **info: Any) -> None:
        """The work is under way. `info` is shown by `describe` (an address to look at, an application id)."""
        self._say({"started": True, "info": info})

    def progress(self, done: int, total: int) -> None:
        """How far it is. Call it as often as you like: what is not sent yet is replaced."""
        if total < 0 or not 0 <= done <= total:
            raise Mistake(f"progress is done of total, with 0 <= done <= total, not {done!r} of {total!r}")
        self._say({"progress": [done, total]})

    def stage(self, name: str, number: int = 0, of: int = 0, *, batch: int | None = None) -> None:
        """Where it is: the stage's name, its number of how many, and the batch of a stream."""
        self._say({"stage": {"name": name, "number": number, "of": of, "batch": batch}})

    def metrics(self, **values: float) -> None:
        """Numbers worth looking at. Each name keeps its last value."""
        self._say({"metrics": values})

    def heartbeat(self) -> None:
        """It is alive, though nothing else is to be told. Needed only where the activity has a `stall_after_s`."""
        self._say({"beat": True})

    def result(self, value: Any = None) -> None:
        """It has succeeded, with this (what JSON can hold, and under a megabyte: a path, a count, not the data).
        The attempt ends when the process does; with another exit code than 0, it has failed all the same."""
        self._say({"result": value})
        self._has_said_last = True

    def error(self, error: BaseException | str, *, final: bool = False) -> None:
        """It has failed. `final`: trying again would not help."""
        if isinstance(error, BaseException):
            text = told(error).removesuffix(": ")
            trace = "".join(traceback.format_exception(error))
        else:
            text, trace = error, ""
        self._say({"error": text, "traceback": trace[-100_000:], "final": final})
        self._has_said_last = True

    def pass_on(self, line: dict[str, Any]) -> None:
        """Say what another process has said to this one, as it said it; not what waits for an answer."""
        self._say(line)

    # -- what waits for the job -------------------------------------------------------------------

    def note(self, name: str, value: Any, *, timeout_s: float = ANSWER_DEADLINE_S) -> None:
        """Something that a next attempt must know (the id of what this one has started elsewhere, say): returns
        once it is committed in the job, with its backups. Raises `Fenced`, or `NotDone` after the timeout."""
        self._ask({"note": {name: value}}, timeout_s)

    def confirm(self, *, timeout_s: float = ANSWER_DEADLINE_S) -> None:
        """Is this attempt still the one that counts? Ask before you commit output. The answer is the owner's, from
        after the question. Raises `Fenced` if it does not count, or `NotDone` if nobody knows within the timeout."""
        self._ask({"confirm": True}, timeout_s)

    # -- cancelling -------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Was the work told to end, or can't be told any more? Its process is ended `run.cancel_deadline_s` after the
        one, at once after the other (if it is the run's own)."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Wait for that; False: the timeout has passed."""
        return self._cancelled.wait(timeout_s)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `callback` called, in a thread of its own, when the work is `cancelled` (at once if it was already).
        A process that registers one is not sent SIGTERM before half of its deadline is over."""
        self._on_cancel.append(callback)
        self._say({"heeds_cancel": True})
        if self.cancelled:
            self._call(callback)

    # -- as a context manager ---------------------------------------------------------------------

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if raised is not None and not self._has_said_last and not isinstance(raised, SystemExit | KeyboardInterrupt):
            self.error(raised)
        self.close()

    def close(self) -> None:
        """Nothing more will be said. (What was said is on its way.)"""
        self._is_closed = True
        if self._channel is not None:
            try:
                self._channel.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the wrapper has gone

    # -- the channel ------------------------------------------------------------------------------

    def _say(self, line: dict[str, Any]) -> None:
        try:
            encoded = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise WrongType(f"a report is made of what JSON can hold: {error}") from error
        if len(encoded) > LINE_BYTES_MAX:
            raise TooLarge(
                f"a report of {len(encoded)} bytes; the limit is {LINE_BYTES_MAX}: write it to a file, report its path"
            )
        if why := why_odd(line, "a report"):
            raise WrongType(why)
        if self._channel is None:
            print(f"report: {encoded.decode().rstrip()}", file=sys.stderr)  # noqa: T201  # run by hand
            return
        with self._sending:
            try:
                self._channel.sendall(encoded)
            except OSError:
                self._lost.set()  # the wrapper is gone, and so is this process in a moment

    def _ask(self, line: dict[str, Any], timeout_s: float) -> None:
        if self._channel is None:
            self._say(line)
            return
        with self._sending:
            self._asked += 1
            n = self._asked
        question = self._questions[n] = _Question()
        self._say({**line, "ask": n})
        if self._lost.is_set():
            question.answered.set()
        try:
            if not question.answered.wait(timeout_s):
                raise NotDone(f"the job has not answered within {timeout_s:g} s")
        finally:
            del self._questions[n]
        if question.answer == "too_large":
            raise TooLarge("the notes of an activity are too large: note where the data is, not the data")
        if question.answer != "go":
            raise Fenced(
                f"attempt {self.run.attempt} of activity {self.run.activity!r} of job {self.run.job!r} is over"
            )

    def _listen(self) -> None:
        assert self._channel is not None
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError):
            pass
        self._lost.set()
        for question in list(self._questions.values()):
            question.answered.set()
        if not self._is_closed:
            self._cancel()  # the wrapper has gone: whatever comes of this work, nobody waits for it

    def _hear(self, said: dict[str, Any]) -> None:
        if said.get("cancel"):
            self._cancel()
        question = self._questions.get(said.get("answer", 0))
        if question is not None:
            question.answer = said.get("verdict", "")
            question.answered.set()

    def _cancel(self) -> None:
        if not self.cancelled:
            self._cancelled.set()
            for callback in list(self._on_cancel):
                self._call(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        threading.Thread(target=callback, name="tenure-cancel", daemon=True).start()


class _Question:
    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answer = ""
