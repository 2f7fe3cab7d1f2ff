"""One life of an external command, from its start to its end: written and read at the same time, in bulk.

    records ──► owed ──writes──► stdin   command   stdout ──reads──► answers, in the order of what is owed

One thread does both, whenever a pipe is ready: so neither side can wait for the other forever. The command has a
process group of its own, so that what it starts ends with it; the guard that leads it sees to that if this process is
killed.
"""

import fcntl
import os
import select
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from tenure.jobs.pipelines.errors import NotExecutable
from tenure.jobs.pipelines.lifeline import guard
from tenure.jobs.pipelines.protocol import Answer, BadAnswer, asked, parse
from tenure.jobs.pipelines.records import Record

__all__ = ["Life"]

BATCH_RECORDS, BATCH_BYTES = 1000, 2**20
OWED_RECORDS_MAX, OWED_BYTES_MAX = 50_000, 64 * 2**20
READ_BYTES = 2**20
PIPE_BYTES = 2**20
LAST_WORDS_BYTES = 600
SHUTDOWN_S = 5.0
F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Life:
    """`owed` holds the records without an answer: those of an earlier life first, then what is taken from `source`.
    With a limit, so many at most are given to the command, and then the end of its input."""

    def __init__(self, owed: deque[Record], source: Iterator[Record], limit: int | None, timeout_s: float) -> None:
        self.owed = owed
        self.given = 0
        """How many records it was given."""
        self.ending = "lives"
        """How it ended, as a predicate."""
        self._unsent = islice(chain(list(owed), self._new(source)), limit)
        self._timeout_s = timeout_s
        self._answered = 0
        self._owed_bytes = 0
        self._words = ""
        self._outgoing = memoryview(b"")
        self._incoming = bytearray()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the life

    def _new(self, source: Iterator[Record]) -> Iterator[Record]:
        for record in source:
            self.owed.append(record)
            yield record

    @contextmanager
    def begun(
        self, arguments: Sequence[str], folder: str | Path, before_exec: Callable[[], None] | None
    ) -> Iterator[None]:
        """Start the command; at the end nothing of it is left. Raises `NotExecutable`."""
        pipe = subprocess.PIPE
        try:
            self._guard = guard()
        except OSError:
            self._stderr.close()
            raise
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=pipe,
                stdout=pipe,
                stderr=self._stderr,
                bufsize=0,
                process_group=self._guard.pid,
                preexec_fn=before_exec,
            )
        except OSError as error:
            self._end_group()
            self._stderr.close()
            raise NotExecutable(f"{arguments[0]}: {error.strerror or error}") from error
        try:
            yield
        finally:
            self._end()

    def answers(self) -> Iterator[list[Answer]]:
        """What it answers, until it has answered all or is over. Raises `BadAnswer`, with nothing more to come."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: int | None = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe, False)
            try:
                fcntl.fcntl(pipe, F_SETPIPE_SZ, PIPE_BYTES)
            except OSError:
                pass  # more than this user may have: the usual size does too
        while self._stdin is None or self._refill():
            if not self._wait():
                if self._is_done():
                    return
                self.ending = f"has hung (no answer in {self._timeout_s:g} s)"
                return
            if self._stdin is not None and self._outgoing:
                self._write()
            data = self._read()
            if data == b"":
                self.ending = self._how_it_ended()
                return
            if data:
                yield self._understood(data)

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        return f"; it said: {self._words}" if self._words else ""

    # -- writing ----------------------------------------------------------------------------------

    def _refill(self) -> bool:
        """Have something to write, unless too much is owed already; at the end, close. Always true."""
        if self._outgoing or self._owes() > OWED_RECORDS_MAX or self._owed_bytes > OWED_BYTES_MAX:
            return True
        batch, size = [], 0
        for record in islice(self._unsent, BATCH_RECORDS):
            batch.append(record)
            size += len(record[0]) + len(record[1])
            if size > BATCH_BYTES:
                break
        if batch:
            self.given += len(batch)
            self._owed_bytes += size
            self._outgoing = memoryview(asked(batch))
        else:
            self._close_stdin()
        return True

    def _write(self) -> None:
        assert self._stdin is not None
        try:
            self._outgoing = self._outgoing[os.write(self._stdin, self._outgoing) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._close_stdin()  # it listens no more; it may still have something to say

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._stdin, self._outgoing = None, memoryview(b"")

    # -- reading ----------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Until a pipe is ready. False: the command owes something, and nothing has moved for too long."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if self._stdin is not None and self._outgoing:
            poll.register(self._stdin, select.POLLOUT)
        deadline = time.monotonic() + (SHUTDOWN_S if self._is_done() else self._timeout_s)
        while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if time.monotonic() >= deadline:
                return False
        return True

    def _read(self) -> bytes | None:
        try:
            return os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return None

    def _understood(self, data: bytes) -> list[Answer]:
        self._incoming += data
        try:
            answers, length = parse(bytes(self._incoming))
        except BadAnswer as error:
            self._settle(len(error.answers))
            raise
        if len(answers) > self._owes():
            self._settle(self._owes())
            raise BadAnswer([], str(answers[-1]))
        del self._incoming[:length]
        self._settle(len(answers))
        return answers

    def _is_done(self) -> bool:
        return self._stdin is None and not self._owes()

    def _owes(self) -> int:
        return self.given - self._answered

    def _settle(self, answered: int) -> None:
        self._answered += answered
        for _ in range(answered):
            key, value = self.owed.popleft()
            self._owed_bytes -= len(key) + len(value)

    # -- the end ----------------------------------------------------------------------------------

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if status < 0:
            return f"was killed ({signal.Signals(-status).name})"
        return f"ended with exit code {status}"

    def _end_group(self) -> None:
        try:
            os.killpg(self._guard.pid, signal.SIGKILL)
        except PermissionError:
            pass  # some of it may not be killed by this user
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _end(self) -> None:
        self._end_group()
        self._process.kill()  # it may have left the group
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - LAST_WORDS_BYTES))
        self._words = self._stderr.read().decode(errors="replace").strip()
        self._stderr.close()
