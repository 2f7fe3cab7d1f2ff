"""The phases of shutdown: wait APP, undeploy APP, drain NODE, stop NODE. Each waits, shows for what, and can be given
up with Ctrl-C."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Failed, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection, Limit
from tenure.cli.show import counted, moment, print_json, print_table, say
from tenure.clients.node_rows import node_rows
from tenure.clients.selector import NODES, Selector, one_name, parse_selector

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["drain", "shutdown", "stop", "undeploy", "wait", "workers"]

Timers = Literal["keep", "fire"]
Flag = Annotated[bool, Parameter(negative="")]
Work = Callable[["GridClient"], Awaitable[Any]]


class Teller:
    """Shows what is waited for: in one line that changes, or, where nobody looks, a line for each change."""

    def __init__(self) -> None:
        self._last, self._is_terminal = "", sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        if what and what != self._last:
            self._last = what
            if self._is_terminal:
                print(f"\r\x1b[Kwaiting for {what}", end="", file=sys.stderr, flush=True)
            else:
                say(f"waiting for {what}")

    def end(self) -> None:
        if self._is_terminal and self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def wait(
    application: str,
    /,
    *,
    timers: Timers = "keep",
    refuse_inputs: Flag = False,
    within: Limit = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Wait until the jobs of an application are quiet, on all nodes: nothing waits, runs, is on its way or to be tried
    again, and no activity goes on. The cluster knows; nothing is guessed from time.

    Parameters
    ----------
    application
        As job types name it: @tenure.job(…, application="shop"). Those that name none are "default". It has jobs.
    timers
        Timers that are not due: keep them, or fire them now, once (recurring ones are kept).
    refuse_inputs
        What clients publish to its jobs meanwhile becomes a dead letter, which can be replayed.
    within
        Give up after so many seconds; never, unless given.
    """
    from tenure.clients.quiescing import wait_quiet

    teller = Teller()
    quiet = _run(connection, lambda c: wait_quiet(c, application, timers, refuse_inputs, teller, within), teller)
    _check_there(application, quiet["jobs"])
    if connection.json:
        print_json(quiet)
    else:
        later = f"; {quiet['timers']:,} timers are set, the first for {moment(quiet['first_due_ms'])}"
        say(f"{application} is quiet: {counted(quiet['jobs'], 'job')}{later if quiet['timers'] else ''}.")
    return Exit.DONE


def undeploy(
    application: str,
    /,
    *,
    timers: Timers = "keep",
    now: Flag = False,
    dry_run: Flag = False,
    within: Limit = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Remove all jobs of an application, when it has finished: its inputs are refused, what was accepted is finished.

    Parameters
    ----------
    application
        As `tenure wait` takes it; one that has jobs.
    timers
        Timers that are not due: let them go with their jobs, or fire them first.
    now
        Don't wait until it has finished.
    dry_run
        Only print the jobs that are meant.
    within
        Give up after so many seconds in all; never, unless given. Jobs that are not removed by then stay as they are.
    """
    from tenure.clients.quiescing import all_jobs_of, undeploy

    if dry_run:
        ids = _run(connection, lambda client: all_jobs_of(client, application, within))
        _check_there(application, len(ids))
        for id in ids:
            print_json({"id": id, "done": False}) if connection.json else print(id)
        say(f"{counted(len(ids), 'job')} would be removed.")
        return Exit.DONE
    teller = Teller()
    removed = _run(connection, lambda client: undeploy(client, application, timers, now, teller, within), teller)
    _check_there(application, removed)
    print_json({"application": application, "removed": removed}) if connection.json else say(
        f"{application} is undeployed: {counted(removed, 'job')} removed."
    )
    return Exit.DONE


def drain(
    *selector: str,
    undo: Flag = False,
    dry_run: Flag = False,
    within: Limit = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Let nodes hand over all their partitions. They stay, and own nothing, until they are stopped, or take part again.

    Parameters
    ----------
    selector
        Which nodes: a name or id that there is, or a selector, which may find none, like
        'name=web-* and version!=2.0' (see `tenure nodes --help`).
    undo
        Let drained nodes take part again.
    dry_run
        Only print the nodes that are meant.
    within
        Give up on a node after so many seconds: it takes part again. Never, unless given.
    """
    from tenure.clients.draining import drain, undrain

    chosen, teller = _chosen(selector), Teller()

    async def run(client: "GridClient") -> list[str]:
        rows = await node_rows(client.grid)
        ids = _meant(selector, [row for row in rows if chosen(row)])
        staying = [row["id"] for row in rows if row["state"] == "running" and row["id"] not in ids]
        if dry_run:
            return ids
        if ids and not staying and not undo:
            raise Failed("No node would stay to take what these hand over: start another one, or `tenure stop` them.")
        for id in ids:
            await (undrain(client, id) if undo else drain(client, id, teller, within))
        return ids

    done = "taking part again" if undo else "drained"
    return _tell(_run(connection, run, teller), done, dry_run, connection)


def stop(
    *selector: str,
    drain: Flag = False,
    dry_run: Flag = False,
    within: Limit = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """End nodes on which nothing runs: drained ones.

    Parameters
    ----------
    selector
        Which nodes: a name or id that there is, or a selector, which may find none, like
        'state=draining' (see `tenure nodes --help`).
    drain
        Drain them first. The last node, too: all that it has is kept by the members, and goes on with the next.
    dry_run
        Only print the nodes that are meant.
    within
        Give up on a node after so many seconds; never, unless given.
    """
    from tenure.clients.draining import stop

    chosen, drain_first, teller = _chosen(selector), drain, Teller()

    async def run(client: "GridClient") -> list[str]:
        ids = _meant(selector, [row for row in await node_rows(client.grid) if chosen(row)])
        for id in ids if not dry_run else ():
            await stop(client, id, drain_first, teller, within)
        return ids

    return _tell(_run(connection, run, teller), "stopped", dry_run, connection)


def shutdown(
    *,
    snapshot: str | None = None,
    timers: Timers = "keep",
    within: Limit = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """End all nodes, in phases: inputs of all applications are refused, what was accepted is finished, then nodes end.
    Members stay, and keep all jobs for the nodes that come next.

    Parameters
    ----------
    snapshot
        Take one to this place (as `tenure snapshot` does) before any node ends, with all that was ever acknowledged.
        The cluster goes on where it is restored, and takes nothing here any more. If it fails, nothing ends.
    timers
        Timers that are not due: keep them, or fire them first.
    within
        Give up after so many seconds without quiet, and without the snapshot; never, unless given (a snapshot after
        600). Then all goes on.
    """
    from tenure.clients.ending import shutdown, shutdown_with_snapshot

    teller = Teller()
    if snapshot is None:
        nodes = _run(connection, lambda client: shutdown(client, timers, teller, within), teller)
        return _tell(nodes, "stopped", False, connection)
    from tenure.cli.snapshots import location

    url = location(snapshot)
    ended = _run(connection, lambda client: shutdown_with_snapshot(client, url, timers, teller, within), teller)
    _tell(ended["nodes"], "stopped", False, connection)
    taken = ended["snapshot"]
    if connection.json:
        print_json({"snapshot": taken["name"], "url": url, "jobs": taken["jobs"]})
    else:
        say(
            f"Snapshot {taken['name']} has all of it: {counted(taken['jobs'], 'job')}. Restore it where it is to go on."
        )
    return Exit.DONE


def workers(application: str = "", /, *, node: str = "", connection: Connection = USUAL_CONNECTION) -> int:
    """Activities (processes outside of turns) that are wanted or under way.

    Parameters
    ----------
    application
        Whose; of all applications, if none is named.
    node
        Only those on this node's machine.
    """
    from tenure.clients.quiescing import workers

    found = _run(connection, lambda client: workers(client, application, node, None))
    if connection.json:
        for worker in found:
            print_json(worker)
        return Exit.DONE
    rows = (
        (w["job"], w["name"], w["kind"], w["status"], w["attempt"], w["pid"] or "", ", ".join(w["nodes"]), w["error"])
        for w in found
    )
    print_table(("job", "activity", "kind", "state", "attempt", "pid", "on the machine of", "error"), rows)
    return Exit.DONE


def _check_there(application: str, jobs: int) -> None:
    if not jobs:
        raise Failed(f"No job belongs to application {application!r}: see `tenure jobs`.")


def _chosen(selector: tuple[str, ...]) -> Selector:
    text = " ".join(selector)
    if not text.strip():
        raise Usage("Say which nodes: a name, or a selector like 'name=web-*' (all: 'id=*').")
    return parse_selector(text, NODES)


def _meant(selector: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    """A selector may find none, and leaves out those that are silent; what is named is there. Raises `NodeSilent`."""
    from tenure.clients.draining import silent

    ids = [row["id"] for row in rows if row["state"] != "silent"]
    if not ids and (name := one_name(" ".join(selector))):
        if rows:
            raise silent(rows[0]["id"], rows[0]["pid"])
        raise Failed(f"No node is called {name!r}: see `tenure nodes`.")
    return ids


def _tell(ids: list[str], done: str, dry_run: bool, connection: Connection) -> int:
    if connection.json:
        for id in ids:
            print_json({"id": id, "done": not dry_run})
    elif dry_run:
        for id in ids:
            print(id)
        say(f"{counted(len(ids), 'node')} would be {done}.")
    else:
        say(f"{', '.join(ids)}: {done}." if ids else f"0 nodes {done}.")
    return Exit.DONE


def _run(connection: Connection, work: Work, teller: Teller | None = None) -> Any:
    import trio

    async def run() -> Any:
        async with connected(connection) as client:
            return await work(client)

    try:
        return trio.run(run)
    finally:
        if teller is not None:
            teller.end()
