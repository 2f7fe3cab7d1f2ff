"""`tenure upgrade`: replace nodes by newer ones, see how that stands, and end it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection, Seconds, SecondsOrZero
from tenure.cli.show import counted, print_json, print_table, say
from tenure.clients.node_rows import node_rows
from tenure.clients.selector import NODES, parse_selector

if TYPE_CHECKING:
    from tenure.clients.views import UpgradeStatus
    from tenure.scheduler.client import GridClient

__all__ = ["app"]

app = cyclopts.App(
    name="upgrade", help="Replace nodes by newer ones, some at a time, without stopping.", help_format="plaintext"
)


@app.default
def upgrade(
    *selector: str,
    spawn: str = "",
    at_once: int = 1,
    watch: SecondsOrZero = 3.0,
    logs: Path | None = None,
    within: Seconds = 120.0,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Replace nodes: start a new one, wait until all is well, drain the old one; then the next. Stops at the first that
    is not well, and says what to do; run again, it goes on with those that are left.

    Parameters
    ----------
    selector
        Which nodes are to be replaced (see `tenure nodes --help`); all, or those that were left last time, if none is
        given.
    spawn
        The command that starts one new node on this machine, like "/srv/new/bin/tenure node app.py --name {name}". It
        finds the cluster in TENURE_CLUSTER. No shell sees it.
    at_once
        So many at the same time.
    watch
        For so many seconds no more jobs may fail than at first, and the new nodes must answer, before old ones go; and
        once more when the last one has gone.
    logs
        A folder for the logs of nodes that are started; by default in the user's state folder.
    within
        Seconds that each step may take.
    dry_run
        Only print which nodes would be replaced, in order.
    """
    from tenure.clients.upgrading import plan_upgrade
    from tenure.clients.upgrading import upgrade as upgraded

    if not spawn and not dry_run:
        raise Usage("Say how a new node is started: --spawn COMMAND.")
    text = " ".join(selector)
    if selector and not text.strip():
        raise Usage("The selector of nodes is empty: name them, or leave it out for all.")
    chosen = parse_selector(text, NODES)

    async def run(client: "GridClient") -> list[str] | dict[str, str]:
        nodes = None
        if text.strip():
            nodes = [row["id"] for row in await node_rows(client.grid) if row["state"] != "silent" and chosen(row)]
            if not nodes:
                raise Usage(f"No living node is meant by {text!r}: see `tenure nodes`.")
        if dry_run:
            return await plan_upgrade(client, nodes, spawn)
        return await upgraded(client, spawn, nodes, at_once, watch, logs, _teller(), within)

    done = _run(connection, run)
    if isinstance(done, list):
        for id in done:
            print_json({"node": id, "replaced_by": None}) if connection.json else print(id)
        say(f"{counted(len(done), 'node')} would be replaced, {at_once} at a time.")
        return Exit.DONE
    for old, new in done.items():
        if connection.json:
            print_json({"node": old, "replaced_by": new or None})
        else:
            print(f"{old} -> {new or 'left when the upgrade had stopped'}")
    say("All are replaced. When there is no going back any more: `tenure upgrade finalize`.")
    return Exit.DONE


@app.command
def status(*, connection: Connection = USUAL_CONNECTION) -> int:
    """How an upgrade stands: versions, formats, nodes that are yet to be replaced."""
    from tenure.clients.upgrading import upgrade_status

    found: UpgradeStatus = _run(connection, upgrade_status)
    if connection.json:
        print_json(found)
        return Exit.DONE
    rows = (
        (
            node["id"],
            node["version"] or "older",
            ", ".join(map(str, node["reads"])),
            "to be replaced" if node["left"] else "",
            ", ".join(f"{type} {version}" for type, version in sorted(node["types"].items())),
        )
        for node in found["nodes"]
    )
    print_table(("node", "version", "reads formats", "upgrade", "job types"), rows)
    say(_in_words(found))
    return Exit.DONE


def _in_words(found: "UpgradeStatus") -> str:
    if found["under_way"]:
        left = ", ".join(found["left"])
        replaced = counted(len(found["replaced"]), "node")
        return f"An upgrade has replaced {replaced}, and has {len(found['left'])} left: {left}."
    if found["declared"] == found["newest"]:
        return f"Format {found['declared']} is written, the newest that these nodes read."
    if found["behind"]:
        behind = ", ".join(found["behind"])
        return f"Format {found['declared']} is written. Format {found['newest']} is not read by {behind}."
    return (
        f"Format {found['declared']} is written, and all nodes read {found['newest']}: `tenure upgrade finalize` "
        "declares it. Then there is no way back."
    )


@app.command
def finalize(*, connection: Connection = USUAL_CONNECTION) -> int:
    """End an upgrade: everybody writes the newest format that all nodes read. Older versions can't come back then."""
    from tenure.clients.upgrading import finalize

    declared: int = _run(connection, lambda client: finalize(client, connection.timeout))
    if connection.json:
        print_json({"declared": declared})
    else:
        say(f"Format {declared} is written from now on.")
    return Exit.DONE


def _teller() -> Callable[[str], None]:
    last = ""

    def tell(what: str) -> None:
        nonlocal last
        if what != last:
            last = what
            say(what)

    return tell


def _run(connection: Connection, work: "Callable[[GridClient], Awaitable[Any]]") -> Any:
    import trio

    async def run() -> Any:
        async with connected(connection) as client:
            return await work(client)

    return trio.run(run)
