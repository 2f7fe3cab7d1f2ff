"""Commands for all jobs that a selector names: jobs, pause, resume, cancel, retry, purge, unschedule."""

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from cyclopts import Parameter, validators

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import counted, print_json, print_table, say, when
from tenure.cli.unheard import say_silent
from tenure.clients import operations
from tenure.clients.selecting import Action, do, meant, select
from tenure.clients.selector import one_name, parse_selector
from tenure.clients.views import JobSummary
from tenure.scheduler.errors import TenureError

__all__ = ["cancel", "jobs", "pause", "purge", "resume", "retry", "unschedule"]

Count = Annotated[int | None, Parameter(show_default=False, validator=validators.Number(gte=1))]
DryRun = Annotated[bool, Parameter(negative="")]
LEFT_SHOWN = 5
LIMIT_MAX = 2**31
"""Larger numbers than this mean: all."""


def jobs(*selector: str, limit: Count = None, connection: Connection = USUAL_CONNECTION) -> int:
    """List jobs.

    Parameters
    ----------
    selector
        Which: type=…, id=…*, node=…, state=failed; and, or, not, parentheses. All, if none is given.
    limit
        Only the first so many, by id.
    """
    text, silent = " ".join(selector), dict[int, TenureError]()
    parse_selector(text)  # a mistake in it is said before anybody is asked
    limit = None if limit is None else min(limit, LIMIT_MAX)

    async def run() -> list[JobSummary]:
        async with connected(connection) as client:
            # One more than is shown, to know whether there are more.
            most = None if limit is None else limit + 1
            return await select(client, text, limit=most, silent=silent)

    found = _run(run)
    is_cut = limit is not None and len(found) > limit
    now_ms = time.time_ns() // 1_000_000
    if connection.json:
        for job in found[:limit]:
            print_json(job)
    else:
        print_table(COLUMNS, [_row(job, now_ms) for job in found[:limit]])
    if is_cut:
        say(f"There are more: these are the first {limit}, by id.")
    return say_silent("jobs", silent)


COLUMNS = ("id", "type", "state", "waiting", "next timer", "node", "error")


def _row(job: JobSummary, now_ms: int) -> tuple[Any, ...]:
    retrying = " (retrying)" if job["error"] and job["status"] == "running" else ""
    state = f"{job['status']} ({job['stuck']})" if job["stuck"] else f"{job['status']}{retrying}"
    return job["id"], job["type"], state, job["waiting"] or "", when(job["due_ms"], now_ms), job["node"], job["error"]


def pause(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """Let jobs take no more turns; messages wait.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "paused", "pause")


def resume(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """Let paused and failed jobs go on.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "resumed", "resume")


def cancel(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """End running turns and activities, and pause their jobs. What a turn was about stays first in its job's queue.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "cancelled", "cancel")


def retry(
    *selector: str,
    skip: Annotated[bool, Parameter(negative="")] = False,
    dry_run: DryRun = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Let failed jobs try again what they failed on.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none. Those
        that have not failed are left alone.
    skip
        Make a dead letter of what each failed on, and go on with the next.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "tried again", "skip" if skip else "retry")


def purge(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """Drop the messages that wait for jobs, and tell how many there were. Running turns go on.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "purged", "purge", counts=True)


def unschedule(
    *selector: str,
    now: Annotated[bool, Parameter(negative="")] = False,
    dry_run: DryRun = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Remove jobs: what they have accepted is finished, their on_stop runs, then their states are gone.

    Parameters
    ----------
    selector
        Which jobs: an id, or a selector (see `tenure jobs --help`), which may find none.
    now
        Cancel running turns, whose messages become dead letters; drop what waits, and tell how much that was; try
        on_stop once. Also for jobs that are being removed and don't come to their end.
    dry_run
        Only print the jobs that are meant.
    """
    text = " ".join(selector)
    name = one_name(text) if text.strip() else ""
    if not name or dry_run:
        return _change(selector, dry_run, connection, "removed", "end" if now else "unschedule", counts=now)

    async def run() -> int:
        async with connected(connection) as client:
            return await operations.unschedule(client, name, False, None, now)

    dropped = _run(run)
    if connection.json:
        print_json({"unscheduled": name} | ({"dropped": dropped} if now else {}))
    else:
        say(f"Job {name} is removed." + (f" {counted(dropped, 'message')} dropped." if now else ""))
    return Exit.DONE


def _change(
    selector: tuple[str, ...],
    dry_run: bool,
    connection: Connection,
    done: str,
    action: Action,
    *,
    counts: bool = False,
) -> int:
    text = " ".join(selector)
    if not text.strip():
        raise Usage("Say which jobs: an id, or a selector like 'type=counter and state=failed' (all: 'id=*').")
    parse_selector(text)  # a mistake in it is said before anybody is asked
    told: dict[str, Any] = {}

    silent: dict[int, TenureError] = {}
    left: dict[str, str] = {}

    async def run() -> tuple[list[str], dict[str, str]]:
        async with connected(connection) as client:
            ids = await meant(client, action, text, silent=silent, left=left)
            failures = {} if dry_run else await do(client, action, ids, told=told)
            return ids, {id: str(error) for id, error in failures.items()}

    ids, failures = _run(run)
    _tell(ids, failures, done, dry_run, connection, told if counts else None)
    if not ids and not connection.json:
        for id, how in sorted(left.items())[:LEFT_SHOWN]:
            say(f"{id} has not failed: it is {how}")
    return max(say_silent("jobs", silent), Exit.FAILED if failures else Exit.DONE)


def _tell(
    ids: list[str],
    failures: dict[str, str],
    done: str,
    dry_run: bool,
    connection: Connection,
    dropped: dict[str, int] | None,
) -> None:
    if connection.json:
        for id in ids:
            row = {"id": id, "done": not dry_run and id not in failures, "error": failures.get(id, "")}
            print_json(row if dropped is None else row | {"dropped": dropped.get(id, 0)})
        return
    for id in ids:
        if dry_run:
            print(id)
        elif id in failures:
            say(f"{id}: {failures[id]}")
    if dry_run:
        say(f"{counted(len(ids), 'job')} would be {done}.")
    else:
        what = "" if dropped is None else f", {counted(sum(dropped.values()), 'message')} dropped"
        not_done = f", {len(failures)} not." if failures else "."
        say(f"{counted(len(ids) - len(failures), 'job')} {done}{what}{not_done}")


def _run(work: Callable[[], Awaitable[Any]]) -> Any:
    import trio

    return trio.run(work)
