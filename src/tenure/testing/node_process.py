"""A node of a testing cluster: a process that runs `tenure node`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

import tenure
from tenure.members.launch import release, spawn
from tenure.scheduler.errors import Final

__all__ = ["NodeEnded", "NodeProcess"]

READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 60.0
POLL_S = 0.02
LOG_LINES_SHOWN = 15


class NodeEnded(Final):
    """A node's process ended on its own, or did not come up; the end of its log is in the text."""


class NodeProcess:
    """Started; ends with the process that started it at the latest."""

    def __init__(
        self,
        name: str,
        app: str,
        cluster: str,
        options: Sequence[str],
        log_file: Path,
        python: str | os.PathLike[str] | None = None,
    ) -> None:
        """`python`: run with this interpreter, and the Tenure that is installed for it; by default with ours."""
        self.name, self.log_file = name, log_file
        arguments = ["-m", "tenure.cli", "node", app, "--cluster", cluster, "--name", name, "--json", *options]
        # A variable, not an option: older versions know none.
        notes = f"TENURE_NODE_STATE={log_file.parent / 'clusters'}"
        if python is not None:
            self._process = spawn(["env", "-u", "PYTHONPATH", notes, str(python), *arguments], log_file)
            return
        folder = str(Path(tenure.__file__).parents[1])
        path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
        self._process = spawn(["env", f"PYTHONPATH={path}", notes, sys.executable, *arguments], log_file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        if self._process.poll() is None:
            return True
        release(self._process)
        return False

    async def ready(self) -> None:
        """Return when it serves its share."""
        with trio.move_on_after(READY_TIMEOUT_S):
            while not self._said_ready():
                if not self.running:
                    raise NodeEnded(f"{self.name} ended while it started:\n{self.log_end()}")
                await trio.sleep(POLL_S)
            return
        raise NodeEnded(f"{self.name} was not ready after {READY_TIMEOUT_S:g} s:\n{self.log_end()}")

    def kill(self) -> None:
        """As a crash would."""
        if self.running:
            self._process.kill()
            self._process.wait()
            release(self._process)

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)
        # The last of its threads stops a little later.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def unpause(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    async def drain(self) -> None:
        """Let it hand over; return when it has ended. Raises if it ended badly."""
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(DRAIN_TIMEOUT_S) as waiting:
            while self.running:  # noqa: ASYNC110  # a process sets no event
                await trio.sleep(POLL_S)
        if waiting.cancelled_caught:
            raise NodeEnded(f"{self.name} has not ended {DRAIN_TIMEOUT_S:g} s after it was told to:\n{self.log_end()}")
        if self._process.returncode != 0:
            raise NodeEnded(f"{self.name} could not hand over (exit {self._process.returncode}):\n{self.log_end()}")

    def log_end(self) -> str:
        """Its last words."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def _said_ready(self) -> bool:
        for line in self.log_file.read_text(errors="replace").splitlines():
            if line.startswith("{") and '"ready"' in line:
                try:
                    return bool(json.loads(line).get("event") == "ready")
                except json.JSONDecodeError:
                    continue  # half a line
        return False
