"""Commands for all jobs that a selector names: jobs, pause, resume, cancel, retry."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Failed, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import counted, moment, print_json, print_table, say
from tenure.clients.selector import Selector, one_name, parse_selector

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["cancel", "jobs", "pause", "resume", "retry"]

AT_ONCE_MAX = 64
Work = Callable[["GridClient", str], Awaitable[Any]]
DryRun = Annotated[bool, Parameter(negative="")]


def jobs(*selector: str, connection: Connection = USUAL_CONNECTION) -> int:
    """List jobs.

    Parameters
    ----------
    selector
        Which: type=…, id=…*, node=…, state=failed; and, or, not, parentheses. All, if none is given.
    """
    chosen = parse_selector(" ".join(selector))

    async def run() -> list[dict[str, Any]]:
        async with connected(connection) as client:
            return await select(client, chosen)

    found = _run(run)
    if connection.json:
        for job in found:
            print_json(job)
        return Exit.DONE
    print_table(
        ("id", "type", "state", "waiting", "next timer", "node", "error"),
        map(_row, found),
    )
    return Exit.DONE


def _row(job: dict[str, Any]) -> tuple[Any, ...]:
    state = f"{job['status']} ({job['stuck']})" if job["stuck"] else job["status"]
    node = job["node_name"] or job["node"]
    return job["id"], job["type"], state, job["waiting"] or "", moment(job["due_ms"]), node, job["error"]


def pause(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """Let jobs take no more turns; messages wait.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "paused", lambda client, id: client.defining.want(id, "paused"))


def resume(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """Let paused and failed jobs go on.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "resumed", lambda client, id: client.defining.want(id, "running"))


def cancel(*selector: str, dry_run: DryRun = False, connection: Connection = USUAL_CONNECTION) -> int:
    """End running turns and activities, and pause their jobs. What a turn was about stays first in its job's queue.

    Parameters
    ----------
    selector
        Which jobs: an id that there is, or a selector (see `tenure jobs --help`), which may find none.
    dry_run
        Only print the jobs that are meant.
    """
    return _change(selector, dry_run, connection, "cancelled", lambda client, id: client.directory.cancel(id))


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
    return _change(
        selector,
        dry_run,
        connection,
        "tried again",
        lambda client, id: client.directory.retry(id, skip=skip),
        also=lambda job: job["status"] == "failed" or bool(job["error"]),
    )


async def select(client: "GridClient", chosen: Selector) -> list[dict[str, Any]]:
    """The jobs that a selector names, in the order of their ids."""
    names = {node.id: node.name for node in await client.directory.nodes()}
    found = [job | {"node_name": names.get(job["node"], "")} for job in await client.directory.jobs()]
    return [job for job in found if chosen(job)]


def _change(
    selector: tuple[str, ...],
    dry_run: bool,
    connection: Connection,
    done: str,
    work: Work,
    also: Selector = lambda job: True,
) -> int:
    text = " ".join(selector)
    if not text.strip():
        raise Usage("Say which jobs: an id, or a selector like 'type=counter and state=failed' (all: 'id=*').")
    chosen = parse_selector(text)

    async def run() -> tuple[list[str], dict[str, str]]:
        async with connected(connection) as client:
            meant = await select(client, chosen)
            if not meant and (name := one_name(text)):
                raise Failed(f"There is no job {name!r}: see `tenure jobs`.")
            ids = [str(job["id"]) for job in meant if also(job)]
            return ids, {} if dry_run else await _each(client, ids, work)

    ids, failures = _run(run)
    _tell(ids, failures, done, dry_run, connection)
    return Exit.FAILED if failures else Exit.DONE


async def _each(client: "GridClient", ids: list[str], work: Work) -> dict[str, str]:
    """Do it to all; what could not be done, and why."""
    import trio

    from tenure.scheduler.errors import TenureError

    failures: dict[str, str] = {}
    limiter = trio.CapacityLimiter(AT_ONCE_MAX)

    async def one(id: str) -> None:
        async with limiter:
            try:
                await work(client, id)
            except TenureError as error:
                failures[id] = str(error)

    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(one, id)
    return failures


def _tell(ids: list[str], failures: dict[str, str], done: str, dry_run: bool, connection: Connection) -> None:
    if connection.json:
        for id in ids:
            print_json({"id": id, "done": not dry_run and id not in failures, "error": failures.get(id, "")})
        return
    for id in ids:
        if dry_run:
            print(id)
        elif id in failures:
            say(f"{id}: {failures[id]}")
    if dry_run:
        say(f"{counted(len(ids), 'job')} would be {done}.")
    else:
        say(f"{counted(len(ids) - len(failures), 'job')} {done}" + (f", {len(failures)} not." if failures else "."))


def _run(work: Callable[[], Awaitable[Any]]) -> Any:
    import trio

    return trio.run(work)
