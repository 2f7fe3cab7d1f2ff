"""Starting nodes: a process on this machine that outlives who started it, or a command that sees to it elsewhere."""

import os
import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import trio

from tenure.jobs.folders import state_folder
from tenure.jobs.reporting import OUTLIVES, REPORT_FD, RUN_FILE, RUN_TAG
from tenure.scheduler.errors import HookFailed, Mistake

__all__ = ["SPAWNED_BY", "Spawned", "filled_in", "run_hook", "spawned_by", "split"]

CLUSTER_VARIABLE = "TENURE_CLUSTER"
SPAWNED_BY = "TENURE_SPAWNED_BY"
"""Tells a node who started it; the node tells all. A node takes it out of its environment, so that it is nobody's who
is started by what the node runs."""
LAST_WORDS_CHARS = 500
LAST_WORDS_BYTES = 4 * LAST_WORDS_CHARS
SAID_NOTHING = "it has said nothing"
HOOK_TIMEOUT_S = 120.0


_running: "list[subprocess.Popen[bytes]]" = []
"""Nobody here waits for them. Kept, as Python complains of those that are forgotten, until they have ended: the system
would keep their numbers otherwise."""


class Spawned:
    """A process that runs on its own: ending is its own business."""

    def __init__(self, command: Sequence[str], cluster: str, log_file: Path, token: str = "") -> None:
        self.command, self.log_file = list(command), log_file
        log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_released(_environment(cluster, token)),
            )
        self.pid = self._process.pid
        _running[:] = [process for process in _running if process.poll() is None]
        _running.append(self._process)

    def ended(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll()

    def last_words(self) -> str:
        """The end of what it has said."""
        with self.log_file.open("rb") as log:
            return _last_words(log) or SAID_NOTHING


async def spawned_by(command: Sequence[str], cluster: str, log_folder: Path | None = None, token: str = "") -> Spawned:
    """Start a process; `{name}` in its arguments becomes a name that no other one has. A node that comes of it says the
    `token`, if it is of this machine, and of a version that knows how."""
    name = f"node-{secrets.token_hex(3)}"
    argv = filled_in(command, {"name": name, "cluster": cluster})
    log_file = (log_folder or state_folder() / "nodes") / f"{name}.log"
    try:
        return await trio.to_thread.run_sync(Spawned, argv, cluster, log_file, token)
    except OSError as error:
        raise Mistake(f"{argv[0]} can't be started: {error.strerror or error}") from error


async def run_hook(command: Sequence[str], cluster: str, nodes: int) -> None:
    """Run a command that changes the number of nodes, to its end; `{nodes}` becomes the number that is wanted."""
    argv = filled_in(command, {"nodes": str(nodes), "cluster": cluster})
    try:
        done = await trio.to_thread.run_sync(_run, argv, cluster)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HookFailed(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        said = done.stdout or SAID_NOTHING
        raise HookFailed(f"{' '.join(argv)} has ended with exit code {done.returncode}: {said}")


def _run(argv: list[str], cluster: str) -> "subprocess.CompletedProcess[str]":
    """To the end of the command itself: a pipe would be open for as long as what it has started in the background."""
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(cluster),
            timeout=HOOK_TIMEOUT_S,
            check=False,
        )
        return subprocess.CompletedProcess(argv, done.returncode, _last_words(output))


def _last_words(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
    return output.read().decode(errors="replace").strip()[-LAST_WORDS_CHARS:]


def split(command: str | Sequence[str]) -> list[str]:
    """A command's arguments; a text is split as a shell does, and no shell sees it."""
    try:
        return shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise Mistake(f"{command!r} is no command: {error}") from error


def filled_in(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command's arguments with `{name}` and the like replaced; other braces are left as they are."""
    if not command:
        raise Mistake("a command has at least a program")
    filled = []
    for argument in command:
        for name, value in values.items():
            argument = argument.replace("{" + name + "}", value)
        filled.append(argument)
    return filled


def _environment(cluster: str, token: str = "") -> dict[str, str]:
    return {**os.environ, CLUSTER_VARIABLE: cluster, SPAWNED_BY: token}


def _released(environment: dict[str, str]) -> dict[str, str]:
    """Where this is part of an activity's run (a lifecycle controller's, for one): what is started does not end with
    that run, and knows nothing of it."""
    tags = [environment.get(name, "") for name in (OUTLIVES, RUN_TAG)]
    own = {name: value for name, value in environment.items() if name not in (RUN_TAG, RUN_FILE, REPORT_FD)}
    return {**own, OUTLIVES: ",".join(filter(None, tags))} if environment.get(RUN_TAG) else own
