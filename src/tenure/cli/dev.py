"""`tenure dev`: a member and a node, and a new node whenever the application changes."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.application import is_file
from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_OUTPUT, Output
from tenure.cli.show import say

if TYPE_CHECKING:
    import trio

__all__ = ["dev", "snapshot", "watched_folder"]

LOOK_EVERY_S = 0.5
FILES_MAX = 5_000
SKIPPED = {"__pycache__", "node_modules", "site-packages"}
TESTS = ("test_*.py", "*_test.py", "conftest.py")
TEST_FOLDERS = {"test", "tests"}
IMPORTS = re.compile(rb"^[ \t]*(?:from|import)\b([^(\n]*(?:\([^)]*\))?[^\n]*)", re.MULTILINE)

Seen = dict[Path, int]


def dev(app: str, /, *, output: Output = USUAL_OUTPUT) -> int:
    """Develop: a member and a node that starts again when the application changes.

    Jobs keep their state from one node to the next; all of it is gone when this command ends. A change that
    is no valid Python leaves the running node alone.

    Parameters
    ----------
    app
        A Python file or module that registers job types.
    """
    import trio

    _check_there(app)
    return trio.run(_run, app, output)


def _check_there(app: str) -> None:
    """What is not there is said at once; what can't be loaded may be about to be changed."""
    from importlib.machinery import PathFinder

    from tenure.nodes.application import source_of

    source, folder = source_of(app)
    if is_file(source):
        if not Path(source).is_file():
            raise Usage(f"There is no file {source}: name a Python file or module that registers job types.")
        return
    places: Sequence[str] | None = [str(folder), *sys.path]
    name = ""
    for part in source.split("."):
        name = f"{name}.{part}".lstrip(".")
        found = PathFinder.find_spec(name, places) if places is not None else None
        if found is None:
            raise Usage(f"There is no module {name}, nor a file {app}: name a Python file or module.")
        places = found.submodule_search_locations


async def _run(app: str, output: Output) -> int:
    import trio

    from tenure.members import rich_progress
    from tenure.nodes.embedded import open_embedded
    from tenure.nodes.launching import open_launchers
    from tenure.nodes.whereabouts import announced

    folder = watched_folder(app)
    progress = rich_progress() if sys.stderr.isatty() else None
    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        await nursery.start(_heed, stop)
        async with open_embedded(progress=progress) as cluster, open_launchers(cluster, ends_with_it=True):
            with announced(cluster):
                say(f"Cluster {cluster}; watching {folder}. Ctrl-C ends it, and all that is in it.")
                await _keep_running(app, cluster, folder, stop, output)
        nursery.cancel_scope.cancel()
    return Exit.DONE


async def _keep_running(app: str, cluster: str, folder: Path, stop: "trio.Event", output: Output) -> None:
    import trio

    seen = snapshot(folder, app)
    node, told = _start(app, cluster, output), False
    try:
        while not stop.is_set():
            with trio.move_on_after(LOOK_EVERY_S):
                await stop.wait()
            if not stop.is_set() and node.poll() == Exit.HUNG:
                say("The node's watchdog has ended it: a handler did not return, as it says above. Starting it again …")
                node, told = _start(app, cluster, output), False
            if not told and not stop.is_set() and node.poll() is not None:
                told = True
                say(f"The node has ended (exit code {node.returncode}). Waiting for a change.")
            now = await trio.to_thread.run_sync(snapshot, folder, app)
            changed = sorted(path for path in seen.keys() | now.keys() if seen.get(path) != now.get(path))
            seen = now
            if not changed:
                continue
            names = ", ".join(str(path.relative_to(folder)) for path in changed[:3])
            if (problem := _syntax_problem(changed)) is not None:
                waits = "The node goes on with what it has" if node.poll() is None else "Waiting for another change"
                say(f"Changed: {names}; {problem}. {waits}.")
                continue
            say(f"Changed: {names}. Starting the node again …")
            await _end(node)
            _forget_bytecode(changed)
            node, told = _start(app, cluster, output), False
    finally:
        with trio.CancelScope(shield=True):
            await _end(node)


def _start(app: str, cluster: str, output: Output) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tenure.cli", "node", app, "--cluster", cluster, "--name", "dev"]
    # Without its member, which ends with us at the latest, it has nothing to wait for.
    command += ["--give-up-after", "5", *(["--json"] if output.json else []), *(["--debug"] if output.debug else [])]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


async def _end(node: "subprocess.Popen[bytes]") -> None:
    import trio

    if node.poll() is None:
        node.terminate()
    with trio.move_on_after(15):
        while node.poll() is None:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.02)
        return
    node.kill()
    await trio.to_thread.run_sync(node.wait)


async def _heed(stop: "trio.Event", *, task_status: "trio.TaskStatus[None]") -> None:
    import trio

    from tenure.signals import told_to_stop

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for _, again in told_to_stop(received):
            if again:
                os._exit(Exit.FAILED)
            stop.set()


def _forget_bytecode(paths: list[Path]) -> None:
    """Python takes stored bytecode for that of a file which has the same length and was changed in the same second."""
    for path in paths:
        try:
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        except OSError:
            pass  # not ours to remove: it will hardly be ours to have written


def watched_folder(app: str) -> Path:
    """The folder whose Python files make up the application: its package's, or the one that its file is in."""
    from tenure.nodes.application import source_of

    source, folder = source_of(app)
    if source.endswith(".py") or Path(source).is_file():
        return folder
    top = folder / source.partition(".")[0]
    return top if top.is_dir() else folder


def snapshot(folder: Path, app: str = "") -> Seen:
    """When each Python file was last changed; of tests, only those that the application is, or imports."""
    from tenure.nodes.application import source_of

    source = source_of(app)[0] if app else ""
    own = Path(source).stem if is_file(source) else source.rpartition(".")[2]
    seen, tests = Seen(), Seen()
    for path in islice(_python_files(folder), FILES_MAX):
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            continue  # gone since it was listed
        (tests if path.stem != own and _is_test(path, folder) else seen)[path] = changed_ns
    new: Seen = seen
    while tests and new:
        names = frozenset[str]().union(*(_imported(path, changed_ns) for path, changed_ns in new.items()))
        new = {path: tests.pop(path) for path in list(tests) if _name(path) in names}
        seen |= new
    return seen


def _is_test(path: Path, folder: Path) -> bool:
    folders = path.relative_to(folder).parts[:-1]
    return any(map(path.match, TESTS)) or not TEST_FOLDERS.isdisjoint(folders)


def _name(path: Path) -> str:
    return path.parent.name if path.stem == "__init__" else path.stem


@lru_cache(4 * FILES_MAX)
def _imported(path: Path, changed_ns: int) -> frozenset[str]:
    """All names in its import statements: more than it imports, so that nothing is missed."""
    try:
        statements = IMPORTS.findall(path.read_bytes())
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"\w+", b" ".join(statements).decode(errors="replace")))


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / name for name in files if name.endswith(".py"))


def _syntax_problem(paths: list[Path]) -> str | None:
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except OSError:
            continue  # it was removed
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # nested too deeply, the last two
            line, what = getattr(error, "lineno", "?"), getattr(error, "msg", error)
            return f"{path.name}:{line}: {type(error).__name__}: {what}"
    return None
