"""The launcher of processes on this machine. All that it knows is in files: any node here, now or later, knows it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import trio

import tenure.jobs
from tenure.jobs.born import born
from tenure.jobs.folders import Keeper, RunFolder, place_of, prune, state_folder, write_whole
from tenure.jobs.kinds import KINDS, Kind, command_of
from tenure.jobs.processes import end_all
from tenure.jobs.reporting import REPORT_FD, RUN_FILE, RUN_TAG, RunFile, load_run
from tenure.scheduler.activities_port import Found, Launcher, Run

__all__ = ["LocalLauncher", "local_launchers"]

PRUNE_EVERY_S = 3600.0
FORCE_DEADLINE_S = 15.0
POLL_S = 0.05
_MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tenure.jobs.wrapper import main; sys.exit(main())"
_IN_BACKGROUND = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null &'


class NotEnded(OSError):
    """Some process of a run can't be killed."""


class LocalLauncher:
    """See `Launcher`. One serves all kinds that are commands."""

    def __init__(
        self,
        cluster: dict[str, Any],
        *,
        state: Path | None = None,
        kinds: Mapping[str, str | Kind] | None = None,
        start: Callable[[RunFolder], None] | None = None,
        reach: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """`cluster` is what a run needs to reach it (see `RunFile`), `reach` the same as of now: members come and go.
        `start` has a wrapper started for a folder; by default as a process of its own."""
        self.cluster = cluster
        self._reach = reach or (lambda: cluster)
        self._state = state or state_folder()
        self._kinds = KINDS if kinds is None else kinds
        self._start = start or start_wrapper
        self._pruned_s = -PRUNE_EVERY_S
        self.runs = self._state / "runs"
        self.place = self._place()

    def _place(self) -> str:
        try:
            return place_of(self._state)
        except OSError:
            return "nowhere"  # a node that can't keep runs does all else; `launch` says why it can't

    async def find(self, tag: str) -> Found:
        folder = RunFolder(self.runs, tag)
        found = folder.find()
        if found.state == "over":
            _reap(folder)
        await trio.lowlevel.checkpoint()
        return found

    async def launch(self, run: Run) -> None:
        await trio.to_thread.run_sync(self._launch, run, self._reach())

    def _launch(self, run: Run, cluster: dict[str, Any]) -> None:
        folder = RunFolder(self.runs, run.tag)
        if (folder / "began").exists():
            return
        command = command_of(run, self._kinds)
        command = msgspec.structs.replace(command, env=_whereabouts(cluster) | command.env)
        file = RunFile(run=run, cluster=cluster, command=msgspec.to_builtins(command))
        folder.make()
        write_whole(folder / "run.json", msgspec.json.encode(file))
        self._start(folder)
        if time.monotonic() - self._pruned_s > PRUNE_EVERY_S:
            self._pruned_s = time.monotonic()
            prune(self.runs)

    async def cancel(self, tag: str, *, force: bool) -> None:
        folder = RunFolder(self.runs, tag)
        if folder.path.exists():
            with suppress(OSError):  # the disk is full: the signal says it, too
                (folder / "cancel").touch(mode=0o600)
            _signal(folder, signal.SIGKILL if force else signal.SIGTERM)
        if force:
            await self._end(folder)

    async def _end(self, folder: RunFolder) -> None:
        with trio.move_on_after(FORCE_DEADLINE_S):
            while True:
                gone = await trio.to_thread.run_sync(partial(end_all, folder.tag))
                if gone and not folder.is_locked():
                    _reap(folder)
                    return
                await trio.sleep(POLL_S)
        raise NotEnded(f"processes of run {folder.tag} are still there {FORCE_DEADLINE_S:g} s after kill -9")

    async def end_all(self) -> None:
        """End all runs of this cluster here at once: its grid is going, and with it their jobs."""
        for path in sorted(self.runs.iterdir()) if self.runs.exists() else ():
            folder = RunFolder(self.runs, path.name)
            if path.is_dir() and folder.is_locked() and _cluster_of(folder) in (self.cluster, self._reach()):
                await self.cancel(folder.tag, force=True)


def local_launchers(cluster: dict[str, Any], *, state: Path | None = None) -> dict[str, Launcher]:
    """A launcher for each kind that runs as processes on this machine."""
    launcher = LocalLauncher(cluster, state=state)
    return dict.fromkeys(KINDS, launcher)


def start_wrapper(folder: RunFolder) -> None:
    """A process in a session of its own, and nobody's child: it is reaped by init when it ends, whoever lives then."""
    source = str(Path(tenure.jobs.__file__).parents[1].parent)
    environment = {name: value for name, value in os.environ.items() if name not in (RUN_TAG, RUN_FILE, REPORT_FD)}
    wrapper = [sys.executable, "-c", _MAIN, source, str(folder.path)]
    subprocess.run(
        ["/bin/sh", "-c", _IN_BACKGROUND, "tenure-launch", str(folder / "wrapper.log"), *wrapper],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=environment,
        check=True,
    )


def _signal(folder: RunFolder, number: int) -> None:
    """To the wrapper, if it is the one that it was."""
    keeper = folder.keeper()
    if keeper is None or not folder.is_locked():
        return
    try:
        process = psutil.Process(keeper.pid)
        if _is_it(process, keeper) and process.pid != os.getpid():
            process.send_signal(number)
    except (psutil.Error, OSError):
        pass  # it has ended


def _is_it(process: psutil.Process, keeper: Keeper) -> bool:
    if keeper.born:
        return born(process.pid) == keeper.born
    return bool(abs(process.create_time() - keeper.created_s) < 1)


def _reap(folder: RunFolder) -> None:
    """In a container without an init, orphans become children of the first process: us, perhaps."""
    if os.getpid() == 1 and (keeper := folder.keeper()) is not None:
        try:
            os.waitpid(keeper.pid, os.WNOHANG)
        except ChildProcessError:
            pass


def _whereabouts(cluster: dict[str, Any]) -> dict[str, str]:
    """What lets clients and nodes that a run starts find the run's own cluster."""
    if "addresses" not in cluster:
        return {}
    return {"TENURE_CLUSTER": f"{cluster['cluster_name']}@{','.join(cluster['addresses'])}"}


def _cluster_of(folder: RunFolder) -> dict[str, Any] | None:
    try:
        return load_run(folder / "run.json").cluster
    except (OSError, ValueError, RecursionError):
        return None
