"""The process around a run: `python -m tenure.jobs.wrapper FOLDER`. Launched by nodes, and independent of them.

It takes the run's lock, and begins only if the run has never begun; asks to be admitted; starts the command; tells
the job how it goes; and ends, with everything that the command has started, when the job says so, when it is asked
to (SIGTERM), or when the job can't be reached for too long. Of any number of wrappers for a run, one does anything.
"""

import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import trio

from tenure.jobs.attempt import Attempt, Uplink
from tenure.jobs.born import born
from tenure.jobs.command_work import open_command
from tenure.jobs.folders import Keeper, RunFolder, place_of, write_whole
from tenure.jobs.kinds import Command
from tenure.jobs.logs import remark
from tenure.jobs.reporting import RunFile, load_run
from tenure.jobs.uplink import open_cluster_uplink
from tenure.scheduler.activities_port import Outcome, Untold
from tenure.scheduler.texts import storable, told

__all__ = ["OpenUplink", "live", "main"]

LOCK_PATIENCE_S = 2.0
LOOK_S = 0.5
OpenUplink = Callable[[dict[str, Any]], AbstractAsyncContextManager[Uplink]]


async def live(folder: RunFolder, open_uplink: OpenUplink, *, alone: bool = False) -> bool:
    """Run it, from the lock to the last word. False: it has begun before, or somebody else is at it.

    `alone`: this process is there for nothing else: its signals and descendants are the run's.
    """
    lock = await trio.to_thread.run_sync(folder.lock, LOCK_PATIENCE_S)
    if lock is None:
        return False
    try:
        if not folder.begin():
            return False
        own = psutil.Process()
        write_whole(folder / "wrapper.json", msgspec.json.encode(Keeper(own.pid, own.create_time(), _born(own.pid))))
        await _run(folder, load_run(folder / "run.json"), open_uplink, lock, alone)
    except Exception as error:
        _confess(folder, error)
        raise
    finally:
        os.close(lock)
    return True


def _born(pid: int) -> int:
    try:
        return born(pid) or 0
    except OSError:
        return 0


async def _run(folder: RunFolder, file: RunFile, open_uplink: OpenUplink, lock: int, alone: bool) -> None:
    command = msgspec.convert(file.command, Command)

    def keep(outcome: Outcome, untold: Untold) -> None:
        try:
            write_whole(folder / "untold.json", msgspec.json.encode(untold))  # first: the other says that it is over
            write_whole(folder / "outcome.json", msgspec.json.encode(outcome))
        except OSError as error:  # the disk is full: it can still be told
            remark(f"how it ended could not be kept: {error}")

    async with open_uplink(file.cluster) as uplink, open_command(folder, command, lock, alone=alone) as work:
        attempt = Attempt(
            file.run,
            work,
            uplink,
            place=place_of(folder.path.parents[1]),
            pid=os.getpid(),
            nonce=secrets.token_hex(8),
            keep=keep,
            clock=_clock,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_mind_wishes, folder, attempt)
            if alone:
                await nursery.start(_heed_signals, folder, attempt)
            await attempt.live()
            nursery.cancel_scope.cancel()


def _confess(folder: RunFolder, error: BaseException) -> None:
    """What goes wrong in here is the attempt's error. While the lock is held: who finds it free finds this."""
    text = traceback.format_exception(error)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if (folder / "began").exists() and folder.outcome() is None:
        what = Outcome(status="failed", error=f"WrapperFailed: {told(error)}", traceback=storable("".join(text)))
        write_whole(folder / "outcome.json", msgspec.json.encode(what))


def _clock() -> float:
    """Goes on while the machine sleeps, and is not set by anybody."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def _mind_wishes(folder: RunFolder, attempt: Attempt) -> None:
    while not (folder / "cancel").exists():  # noqa: ASYNC110  # a file sets no event; the signal says it sooner
        await trio.sleep(LOOK_S)
    attempt.cancel()


async def _heed_signals(folder: RunFolder, attempt: Attempt, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for _ in received:
            if (folder / "cancel").exists():
                attempt.cancel()
            else:
                attempt.interrupt()


# -- as a process ---------------------------------------------------------------------------------


def main() -> int:
    """Run the folder that the command line names, once."""
    arguments = sys.argv[1:]
    if len(arguments) != 1:
        print("usage: python -m tenure.jobs.wrapper FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    path = Path(arguments[0])
    folder = RunFolder(path.parent, path.name)
    # The shell that started us in the background has switched these off, for our children too.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    trio.run(lambda: live(folder, open_cluster_uplink, alone=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
