"""A command as the work of a run: in a session of its own, on a lifeline, with its output in log files.

    wrapper ── holds a pipe ──► watcher (sh): end of file means the wrapper is gone: kill -9 all of the run
       ├── gate ──► sh ── reads a line from it ── exec ──► the command     (killed before that line: never starts)
       └── socket ◄── lines (see `tenure.jobs.reporting`)

The watcher holds the run's lock too: it is free only when nothing of the run is left. (Asking the kernel to signal
a child when its parent dies follows the *thread* that started it, and ours are short-lived.)
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from tenure.jobs.attempt import WorkRefused
from tenure.jobs.folders import RunFolder
from tenure.jobs.kinds import Command
from tenure.jobs.logs import BoundedLog, remark
from tenure.jobs.processes import adopt_orphans, end_all, reap
from tenure.jobs.reporting import LINE_BYTES_MAX, REPORT_FD, RUN_FILE, RUN_TAG
from tenure.scheduler.activities_port import Outcome

__all__ = ["CommandWork", "open_command"]

LAST_LINES_S = 2.0
"""So long are its output and reports waited for when it has ended; who holds them open longer is no part of it."""
CHUNK_BYTES = 64 * 1024
REAP_EVERY_S = 0.5
NONSENSE_NAMED_MAX = 100
"""So many lines of a program that are no reports are named in `wrapper.log`."""
NOT_EXECUTED = {126: "it is not executable", 127: "there is no such file"}

_WATCHER = """
while read -r line; do [ "$line" = end ] && exit 0; group=$line; done
n=0
while [ $n -lt 200 ]; do
  [ -n "$group" ] && kill -9 -- "-$group"
  left=$(grep -lzsxF -- "$2=$1" /proc/[0-9]*/environ)
  [ -n "$left" ] || exit 0
  for file in $left; do pid=${file#/proc/}; kill -9 "${pid%/environ}"; done
  n=$((n + 1)); sleep 0.05
done
"""

_GATE = 'read -r _ || exit 125; input=$1; shift; exec "$@" <"$input"'


class CommandWork:
    """See `tenure.jobs.attempt.Work`."""

    def __init__(
        self, folder: RunFolder, command: Command, lock: int, nursery: trio.Nursery, *, alone: bool = False
    ) -> None:
        """`alone`: this process is there for nothing else, so all its descendants are the command's."""
        self.folder, self.command = folder, command
        self._lock, self._nursery, self._alone = lock, nursery, alone
        self._watcher: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: trio.SocketStream | None = None
        self._on_line: Callable[[dict[str, Any]], None] = lambda line: None
        self._to_say, self._to_be_said = trio.open_memory_channel[bytes](1000)
        self._logs: list[BoundedLog] = []
        self._open_ends = 0
        self._all_read = trio.Event()
        self._nonsense = 0

    # -- beginning --------------------------------------------------------------------------------

    async def start(self, on_line: Callable[[dict[str, Any]], None]) -> None:
        self._on_line = on_line
        ours, theirs = socket.socketpair()
        try:
            try:
                self._spawn(theirs)
            except OSError as error:
                ours.close()
                where = f" in {self.command.cwd}" if self.command.cwd else ""
                raise WorkRefused(f"NotStarted: {self.command.argv[0]}{where}: {error.strerror or error}") from error
        finally:
            theirs.close()
        self._channel = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        half = self.command.log_bytes_max
        self._logs = [BoundedLog(self.folder / f"{name}.log", half) for name in ("stdout", "stderr")]
        self._open_ends = 3
        self._nursery.start_soon(self._read_output, self._process.stdout.fileno(), self._logs[0])
        self._nursery.start_soon(self._read_output, self._process.stderr.fileno(), self._logs[1])
        self._nursery.start_soon(self._read_lines)
        self._nursery.start_soon(self._write_lines)
        self._open_gate()

    def _spawn(self, channel: socket.socket) -> None:
        tag = self.folder.tag
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "tenure-watcher", tag, RUN_TAG],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._lock],
            start_new_session=True,
            env=_without_marks(os.environ),
        )
        stdin = os.devnull
        if self.command.stdin:
            stdin = str(self.folder / "stdin")
            (self.folder / "stdin").write_text(self.command.stdin)
        number = channel.fileno()
        marks = {RUN_TAG: tag, RUN_FILE: str(self.folder / "run.json"), REPORT_FD: str(number)}
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "tenure-gate", stdin, *self.command.argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[number],
            start_new_session=True,
            cwd=self.command.cwd or self.folder.path,
            env=_without_marks(os.environ) | self.command.env | marks,
        )

    def _open_gate(self) -> None:
        """From here on the watcher knows whom to kill: now the command may begin."""
        assert self._watcher is not None
        assert self._watcher.stdin is not None
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._watcher.stdin.write(b"%d\n" % self._process.pid)
            self._watcher.stdin.flush()
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # one of them was killed: the command never starts, and `wait` tells

    # -- under way --------------------------------------------------------------------------------

    async def wait(self) -> Outcome:
        assert self._process is not None
        await _ended(self._process)
        await self.kill()  # what it has started, and left behind
        self._take_back_group()
        code = self._process.wait()
        with trio.move_on_after(LAST_LINES_S):
            await self._all_read.wait()
        return self._outcome(code)

    def _take_back_group(self) -> None:
        """Once it is reaped, its number may be another group's: the watcher, too, must not kill that."""
        assert self._watcher is not None
        assert self._watcher.stdin is not None
        with suppress(BrokenPipeError):
            self._watcher.stdin.write(b"\n")
            self._watcher.stdin.flush()

    def _outcome(self, code: int) -> Outcome:
        if code == 0:
            return Outcome(status="succeeded")
        last = self._logs[1].tail() if self._logs else ""
        line = next((line.strip() for line in reversed(last.splitlines()) if line.strip()), "")
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            error = f"Killed: it was ended by {name}"
        else:
            error = f"ExitCode: it ended with exit code {code}"
            if code in NOT_EXECUTED and not line:
                error += f": {NOT_EXECUTED[code]}"
        error = f"{error}: {line[:500]}" if line else error
        return Outcome(status="failed", error=error, traceback=last, final=self.command.exit_is_final and code > 0)

    def say(self, line: dict[str, Any]) -> None:
        try:
            self._to_say.send_nowait(json.dumps(line).encode() + b"\n")
        except (trio.WouldBlock, trio.BrokenResourceError):
            pass  # it does not listen

    def terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGTERM)
            except (ProcessLookupError, PermissionError):
                pass

    async def kill(self) -> None:
        if self._process is None:
            return
        # Once it is reaped, its number may be another group's.
        group = self._process.pid if self._process.returncode is None else None
        spare = {process.pid for process in (self._watcher,) if process is not None} if self._alone else None
        if not await trio.to_thread.run_sync(partial(end_all, self.folder.tag, group, spare=spare)):
            remark(f"some processes of run {self.folder.tag} can't be killed")

    async def reap_orphans(self) -> None:
        """For as long as it takes."""
        while True:
            await trio.sleep(REAP_EVERY_S)
            reap({process.pid for process in (self._watcher, self._process) if process is not None})

    # -- its output -------------------------------------------------------------------------------

    async def _read_output(self, descriptor: int, log: BoundedLog) -> None:
        stream = trio.lowlevel.FdStream(os.dup(descriptor))
        async with stream:
            while data := await stream.receive_some(CHUNK_BYTES):
                try:
                    log.write(data)
                except OSError:
                    pass  # the disk is full: the work goes on without its log
                self._on_line({"beat": True})
        self._one_end()

    async def _read_lines(self) -> None:
        assert self._channel is not None
        waiting = bytearray()
        try:
            while data := await self._channel.receive_some(CHUNK_BYTES):
                waiting += data
                *lines, rest = waiting.split(b"\n")
                waiting = bytearray() if len(rest) > LINE_BYTES_MAX else bytearray(rest)
                for line in lines:
                    self._hear(bytes(line))
        except trio.BrokenResourceError:
            pass
        self._one_end()

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            if b"\\ud" in line.lower():  # lone surrogates, perhaps, which nothing else takes
                said = json.loads(json.dumps(said, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            self._nonsense += 1
            if self._nonsense <= NONSENSE_NAMED_MAX:  # a log that nobody bounds
                remark(f"no report: {line[:200]!r}")
            return
        if isinstance(said, dict):
            self._on_line(said)

    async def _write_lines(self) -> None:
        assert self._channel is not None
        try:
            async for line in self._to_be_said:
                await self._channel.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def _one_end(self) -> None:
        self._open_ends -= 1
        if not self._open_ends:
            self._all_read.set()

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing is left: let the watcher go."""
        for process in (self._process, self._watcher):
            if process is None:
                continue
            if process is self._watcher and process.stdin is not None and not process.stdin.closed:
                try:
                    process.stdin.write(b"end\n")
                except BrokenPipeError:
                    pass
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
            process.wait()
        if self._channel is not None:
            self._channel.socket.close()
        for log in self._logs:
            log.close()


@asynccontextmanager
async def open_command(
    folder: RunFolder, command: Command, lock: int, *, alone: bool = False
) -> AsyncIterator[CommandWork]:
    """A command to be started. Left, nothing of it is left."""
    work: CommandWork | None = None
    try:
        async with trio.open_nursery() as nursery:
            work = CommandWork(folder, command, lock, nursery, alone=alone)
            if alone and adopt_orphans():
                nursery.start_soon(work.reap_orphans)
            try:
                yield work
            finally:
                with trio.CancelScope(shield=True):
                    await work.kill()
                nursery.cancel_scope.cancel()
    finally:
        if work is not None:
            work.close()


async def _ended(process: "subprocess.Popen[bytes]") -> None:
    """Return when it has ended; it is not reaped yet, so its number is still its own."""
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _without_marks(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in (RUN_TAG, RUN_FILE, REPORT_FD)}
