"""The kinds of activity that run as processes on the node's machine: what command each is.

A kind is a function from a `Run` to a `Command`. It is called in the node, before anything is launched, so what
is wrong with the work is refused there, by name. To add one: write the function, and put it into `KINDS`. Its module
must not register job types: a node knows those of its application, and none else.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from tenure.scheduler.activities_port import Run
from tenure.scheduler.errors import Mistake

__all__ = ["KINDS", "Command", "Kind", "command_of"]


class Command(Struct, frozen=True, kw_only=True):
    """What the wrapper starts for a run."""

    argv: list[str]
    """The program (looked up already: an absolute path) and its arguments."""
    env: dict[str, str] = {}
    """Set in addition to what the node's own environment holds."""
    cwd: str = ""
    """Where it runs; empty: in the run's folder."""
    stdin: str = ""
    """What it reads from its standard input."""
    log_bytes_max: int = 8 * 2**20
    """Of standard output and standard error each, so much is kept (the newest)."""
    exit_is_final: bool = False
    """What it says by another exit code than 0 is its answer: only a run that was lost is tried again."""


Kind = Callable[[Run], Command]
"""Raises `LaunchRefused` if this work can't run here, with the nearest thing that could."""

KINDS: dict[str, str] = {
    "process": "tenure.jobs.process_command:command",
    "tenure": "tenure.jobs.lifecycle_command:command",
    "spark": "tenure.jobs.spark.launching:command",
}
"""kind -> "module:function", imported when first used."""


def command_of(run: Run, kinds: Mapping[str, str | Kind] | None = None) -> Command:
    """What to start for this run."""
    found: Any = (KINDS if kinds is None else kinds).get(run.kind)
    if found is None:
        known = ", ".join(sorted(KINDS if kinds is None else kinds))
        raise Mistake(f"no activity is of kind {run.kind!r}; there are {known}")
    if isinstance(found, str):
        module, _, name = found.partition(":")
        found = getattr(import_module(module), name)
    command = found(run)
    assert isinstance(command, Command)
    return command
