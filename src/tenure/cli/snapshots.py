"""Commands for snapshots: take, schedule, list, verify, export, restore."""

import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import cyclopts
from cyclopts import Parameter

from tenure.cli.connection import connected, connected_grid
from tenure.cli.ends import Exit, Failed, Usage, was_interrupted
from tenure.cli.options import USUAL_CONNECTION, USUAL_OUTPUT, Connection, Limit, Output
from tenure.cli.show import as_json, counted, moment, print_json, print_table, say

__all__ = ["app", "restore", "snapshot"]

T = TypeVar("T")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
Flag = Annotated[bool, Parameter(negative="")]


def snapshot(
    url: str,
    /,
    *,
    every: str | None = None,
    keep: int = 0,
    within: Limit = None,
    stop: Flag = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Take a snapshot of all jobs, while they go on.

    Parameters
    ----------
    url
        Where to: a directory that all nodes see under the same path, or s3://… and the like (with tenure[snapshots]).
    every
        Take one now and again after so long, like 30m or 1d: by a job, whoever comes and goes.
    keep
        Keep so many there, the newest; 0: all.
    within
        Seconds that it may take, with --every each of them: one that takes longer is given up. 600, unless given.
    stop
        Take no more by schedule. Those that are there stay.
    """
    where = location(url)
    if stop and every is not None:
        raise Usage("Say --every to begin or --stop to end, not both.")
    if stop or every is not None:
        return _schedule(where, 0.0 if every is None else _seconds(every), keep, within, connection)

    async def run() -> dict[str, Any]:
        from tenure.scheduler.snapshots import calls

        async with connected(connection) as client:
            return await calls.snapshot(client, where, keep=keep, deadline_s=within)

    taken = _run(run)
    if connection.json:
        print_json(taken)
    else:
        say(
            f"Snapshot {taken['name']}: {counted(taken['jobs'], 'job')}, {_size(taken['size_bytes'])}, of which "
            f"{_size(taken['written_bytes'])} were written, in {taken['duration_s']:.1f} s."
        )
    if not_deleted := taken.get("not_deleted"):
        say(f"It is there, and older ones stay that were not to be kept. {not_deleted}.")
    return Exit.FAILED if not_deleted else Exit.DONE


def _schedule(url: str, every_s: float, keep: int, within: float | None, connection: Connection) -> int:
    async def run() -> str:
        from tenure.scheduler.snapshots import calls
        from tenure.scheduler.snapshots.schedule import job_of

        async with connected(connection) as client:
            if every_s:
                return await calls.schedule_snapshots(client, url, every_s=every_s, keep=keep, within_s=within)
            await calls.unschedule_snapshots(client, url)
            return job_of(url)

    id = _run(run)
    if connection.json:
        print_json({"scheduled" if every_s else "unscheduled": id})
    elif every_s:
        say(f"Scheduled. `tenure describe '{id}'` shows the last one.")
    else:
        say("No more are taken. Those that are there stay.")
    return Exit.DONE


def restore(
    url: str,
    /,
    *,
    name: str = "",
    replace: Flag = False,
    keep_dead_letters: bool = True,
    resume_snapshots: Flag = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Restore a snapshot into this cluster, of whatever size and partition count. It takes as long as it takes;
    --timeout is for what comes before anything is changed.

    Parameters
    ----------
    url
        Where it is.
    name
        Which one; the newest, if none is given.
    replace
        Also where there are jobs: they are gone then.
    keep_dead_letters
        Keep those of the cluster that is replaced, beside those of the snapshot.
    resume_snapshots
        Let schedules of snapshots go on also if it was another cluster that was snapshotted. That one may still be
        alive, and write to the same place.
    """
    where, closed = location(url), [False]

    async def run() -> dict[str, Any]:
        import msgspec

        from tenure.connect import wall_clock_ms
        from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
        from tenure.scheduler.snapshots.stores import open_store

        options = RestoreOptions(
            name=name,
            replace=replace,
            answer_s=connection.timeout,
            keep_dead_letters=keep_dead_letters,
            resume_snapshots=resume_snapshots,
            on_closed=closed.append,
        )
        async with connected_grid(connection) as grid:
            result = await restore_snapshot(grid, open_store(where), wall_clock_ms, options)
        return msgspec.structs.asdict(result)

    try:
        restored = _run(run)
    except BaseException as error:
        if closed[-1] and was_interrupted(error):
            raise Failed(
                "interrupted, with what was here removed in part: nodes keep out, and no job runs, until a snapshot is "
                "restored. Run `tenure restore` again, to its end."
            ) from error
        raise
    if connection.json:
        print_json(restored)
    else:
        say(
            f"Restored snapshot {restored['name']}: {counted(restored['jobs'], 'job')} in "
            f"{restored['partition_count']} partitions, in {restored['duration_s']:.1f} s. "
            "Nodes that run go on with it; start others."
        )
        _tell_what_follows(restored)
    return Exit.DONE


def _tell_what_follows(restored: dict[str, Any]) -> None:
    if count := restored["letters_kept"]:
        say(f"{counted(count, 'dead letter')} of the cluster that was here were kept: see `tenure dead-letters`.")
    if unread := restored["letters_unread"]:
        some = ", ".join(map(str, unread[:5])) + (", …" if len(unread) > 5 else "")
        say(f"Partitions {some} could not be read: what dead letters they had is lost.")
    for id in restored["snapshots_resumed"]:
        say(f"Snapshots go on as they were scheduled: {id.partition(' ')[2]}.")
    for id in restored["snapshots_stopped"]:
        say(
            f"NO SNAPSHOTS ARE TAKEN to {id.partition(' ')[2]} any more: the cluster that was snapshotted may still "
            "write there. Schedule them anew: `tenure snapshot URL --every …`; or restore with --resume-snapshots."
        )


# -- looking at them ------------------------------------------------------------------------------

app = cyclopts.App(name="snapshots", help="Snapshots that were taken: list, verify, export.")


@app.command(name="list")
def list_(url: str, /, *, output: Output = USUAL_OUTPUT) -> int:
    """List the snapshots at a place, oldest first; those that can't be read, too, with the reason.

    Parameters
    ----------
    url
        Where they are.
    """

    from tenure.scheduler.snapshots import calls

    found = _run(lambda: calls.snapshots(location(url)))
    unreadable = [snapshot for snapshot in found if "problem" in snapshot]
    if output.json:
        for snapshot in found:
            print_json(snapshot)
        return Exit.FAILED if unreadable else Exit.DONE
    print_table(
        ("name", "taken", "jobs", "size", "written", "partitions", "took"),
        [
            (snapshot["name"], "can't be read", *[""] * 5)
            if "problem" in snapshot
            else (
                snapshot["name"],
                moment(snapshot["taken_ms"]),
                f"{snapshot['jobs']:,}",
                _size(snapshot["size_bytes"]),
                _size(snapshot["written_bytes"]),
                snapshot["partition_count"],
                f"{snapshot['duration_s']:.1f} s",
            )
            for snapshot in found
        ],
    )
    for snapshot in unreadable:
        print(snapshot["problem"])
    if unreadable:
        say(
            f"{counted(len(unreadable), 'snapshot')} can't be read, of {len(found)}: restore another one. Delete the "
            "manifest if it can't be repaired: where it is to be kept, nothing older is deleted."
        )
        return Exit.FAILED
    return Exit.DONE


@app.command
def verify(url: str, name: str = "", /, *, output: Output = USUAL_OUTPUT) -> int:
    """Read a snapshot, and compare every checksum.

    Parameters
    ----------
    url
        Where it is.
    name
        Which one; the newest, if none is given.
    """
    from tenure.scheduler.snapshots import calls

    found = _run(lambda: calls.verify(location(url), name))
    if output.json:
        print_json(found)
    else:
        for problem in found["problems"]:
            print(problem)
        say(
            f"Snapshot {found['name']} is whole: {counted(found['jobs'], 'job')}, {_size(found['size_bytes'])}."
            if found["whole"]
            else f"Snapshot {found['name']} is damaged: restore an earlier one. Without the damaged "
            "files, the next snapshot writes anew what was in them."
        )
    return Exit.DONE if found["whole"] else Exit.FAILED


@app.command
def export(url: str, name: str = "", /, *, to: Path | None = None, output: Output = USUAL_OUTPUT) -> int:
    """Print a snapshot as lines of JSON: jobs with their states, topics, dead letters, messages on their way.

    Parameters
    ----------
    url
        Where it is.
    name
        Which one; the newest, if none is given.
    to
        A file to write to. Standard output, if none is given.
    """

    async def run() -> int:
        from tenure.clients.exports import replaced
        from tenure.scheduler.snapshots import calls

        count = 0
        with replaced(to) if to is not None else nullcontext(sys.stdout) as file:
            # Read and written line by line: no other task waits for this one.
            async for line in calls.exported(location(url), name):
                count += 1
                print(as_json(line), file=file)
        return count

    count = _run(run)
    if to is not None:
        say(f"{count:,} lines are in {to}.")
    return Exit.DONE


# -- small things ---------------------------------------------------------------------------------


def location(url: str) -> str:
    """A directory's path from the root, wherever the command is run."""
    if not url.strip():
        raise Usage("The place of snapshots is empty: name a directory (. is this one), or s3://… and the like.")
    return url if ":" in url else str(Path(url).expanduser().absolute())


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = float(found[1]) * SECONDS[found[2] or "s"] if found else 0.0
    if not seconds:
        raise Usage(f"--every {text}: write a time like 90s, 30m, 6h or 1d.")
    return seconds


def _size(size_bytes: int) -> str:
    if size_bytes < 10_000:
        return f"{size_bytes:,} bytes"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.0f} kB"


def _run(work: Callable[[], Awaitable[T]]) -> T:
    import trio

    return trio.run(work)
