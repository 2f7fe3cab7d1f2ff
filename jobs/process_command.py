"""The kind `process`: an external command. What is wrong with it is said before anything is launched.

Apart from the job type, so that a node that runs such a command does not come to know a type by it.
"""

import difflib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tenure.jobs.kinds import Command
from tenure.scheduler.activities_port import LaunchRefused, Run

__all__ = ["CommandNotFound", "NoSuchFolder", "NotExecutable", "ProcessWork", "WrongWork", "command"]


class CommandNotFound(LaunchRefused):
    """There is no such program on this node."""


class NotExecutable(LaunchRefused):
    """The program is there, and can't be run."""


class NoSuchFolder(LaunchRefused):
    """The folder that the command is to run in is not there."""


class WrongWork(LaunchRefused):
    """The work of a `process` activity has another shape."""


class ProcessWork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work of an activity of kind `process`."""

    argv: list[str]
    """A program (looked up in PATH, or by its path) and its arguments. No shell sees them."""
    env: dict[str, str] = {}
    """Set in addition to the node's environment."""
    cwd: str = ""
    """Where it runs: an absolute path; empty: in the run's own folder."""
    stdin: str = ""
    """What it reads from its standard input."""
    log_bytes_max: int = 8 * 2**20
    """Of standard output and standard error each, the newest so much is kept."""


def command(run: Run) -> Command:
    """What to start."""
    try:
        work = msgspec.convert(run.work, ProcessWork)
    except msgspec.ValidationError as error:
        raise WrongWork(f"the work of a process activity: {error}") from error
    if not work.argv or not work.argv[0]:
        raise WrongWork("argv is empty: name a program")
    if any("\0" in part for part in [*work.argv, work.cwd, *work.env, *work.env.values()]):
        raise WrongWork("a command can't have a zero byte in it")
    if odd := [name for name in work.env if not name or "=" in name]:
        raise WrongWork(f"a variable of the environment can't be named {odd[0]!r}")
    if work.cwd:
        _check_folder(work.cwd)
    program = _program(work.argv[0], work)
    return Command(
        argv=[program, *work.argv[1:]], env=work.env, cwd=work.cwd, stdin=work.stdin, log_bytes_max=work.log_bytes_max
    )


def _check_folder(cwd: str) -> None:
    if not os.path.isabs(cwd):
        raise NoSuchFolder(f"cwd {cwd!r} is not absolute: on which machine a command runs is not known beforehand")
    if not Path(cwd).is_dir():
        raise NoSuchFolder(f"there is no folder {cwd} on this node{_nearest_path(Path(cwd))}")


def _program(name: str, work: ProcessWork) -> str:
    search = work.env.get("PATH", os.environ.get("PATH", os.defpath))
    if os.sep not in name:
        found = shutil.which(name, path=search)
        if found is None:
            raise _not_in_path(name, search)
        path = Path(found)
    else:
        if not os.path.isabs(name) and not work.cwd:
            raise CommandNotFound(f"{name!r} is relative, and no cwd is given: name it by its whole path")
        path = Path(work.cwd, name)
        if not path.exists():
            raise CommandNotFound(f"there is no {path} on this node{_nearest_path(path)}")
    if path.is_dir():
        raise NotExecutable(f"{path} is a folder")
    if not os.access(path, os.X_OK):
        raise NotExecutable(f"{path} is not executable: `chmod +x {path}`, or name its interpreter first")
    _check_interpreter(path, search)
    return str(path.absolute())


def _not_in_path(name: str, search: str) -> LaunchRefused:
    for folder in search.split(os.pathsep):
        there = Path(folder or ".", name)
        if there.is_file():
            return NotExecutable(f"{there} is not executable: `chmod +x {there}`")
    names = {entry for folder in search.split(os.pathsep) for entry in _entries(Path(folder or "."))}
    return CommandNotFound(f"no command {name!r} is in PATH on this node{_nearest(name, names)}")


def _check_interpreter(path: Path, search: str) -> None:
    """A script whose first line names an interpreter that isn't there is "not found" to the system: say what isn't."""
    with path.open("rb") as file:
        if file.read(2) != b"#!":
            return
        words = file.readline(500).decode(errors="replace").split()
    if words and not Path(words[0]).exists():
        raise NotExecutable(f"{path} asks for the interpreter {words[0]} in its first line, which is not there")
    is_plain = len(words) > 1 and Path(words[0]).name == "env" and not words[1].startswith("-") and "=" not in words[1]
    if is_plain and shutil.which(words[1], path=search) is None:
        raise NotExecutable(f"{path} asks for {words[1]!r} in its first line, which is not in PATH")


def _nearest_path(path: Path) -> str:
    return _nearest(path.name, set(_entries(path.parent)), path.parent)


def _nearest(name: str, names: set[str], folder: Path | None = None) -> str:
    close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.7)
    if not close:
        return ""
    return f"; did you mean {str(folder / close[0]) if folder is not None else close[0]!r}?"


def _entries(folder: Path) -> list[Any]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
