"""`tenure scale`: how large the cluster is and how busy; add nodes, remove nodes, have so many."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cyclopts

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection, Seconds
from tenure.cli.show import counted, print_json, print_table, say

if TYPE_CHECKING:
    from tenure.clients.views import NodeStatus, ScaleStatus
    from tenure.scheduler.client import GridClient

__all__ = ["app"]

WITHIN_S = 120.0

app = cyclopts.App(
    name="scale", help="How large the cluster is and how busy; add nodes, remove nodes.", help_format="plaintext"
)


@app.default
def scale(
    *,
    to: int | None = None,
    spawn: str | None = None,
    run: str | None = None,
    logs: Path | None = None,
    within: Seconds = WITHIN_S,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """How large the cluster is and how busy each node; with --to, have so many nodes.

    Parameters
    ----------
    to
        Have so many nodes: start some with --spawn, or let those with the last names leave. Returns when all serve.
    spawn
        The command that starts one node on this machine, like "tenure node app.py". It finds the cluster in
        TENURE_CLUSTER, and may use {name}. No shell sees it.
    run
        Instead: a command to be run once, with {nodes} for the number, like
        "kubectl scale statefulset/tenure-node --replicas={nodes}".
    logs
        A folder for the logs of nodes that are started; by default in the user's state folder.
    within
        Seconds that all this may take.
    """
    if to is None:
        if spawn or run:
            raise Usage("Say how many nodes there are to be: --to N.")
        return _show(connection)
    from tenure.clients.scaling import scale_to

    _tell(connection, _run(connection, lambda client: scale_to(client, to, spawn, run, logs, within)))
    return Exit.DONE


@app.command(name="add-node")
def add_node(
    count: int = 1,
    /,
    *,
    spawn: str,
    logs: Path | None = None,
    within: Seconds = WITHIN_S,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Start nodes on this machine; returns when they serve their share. (Elsewhere: just start `tenure node`.)

    Parameters
    ----------
    count
        How many.
    spawn
        The command that starts one, like "tenure node app.py". It finds the cluster in TENURE_CLUSTER, and may use
        {name}. No shell sees it.
    logs
        A folder for their logs; by default in the user's state folder.
    within
        Seconds that it may take.
    """
    from tenure.clients.scaling import add_nodes

    _tell(connection, _run(connection, lambda client: add_nodes(client, count, spawn, logs, within)))
    return Exit.DONE


@app.command(name="remove-node")
def remove_node(node: str, /, *, within: Seconds = WITHIN_S, connection: Connection = USUAL_CONNECTION) -> int:
    """Let a node hand over what it has, and end; returns when it has. (SIGTERM does the same.)

    Parameters
    ----------
    node
        Its id or its name, as `tenure nodes` shows them.
    within
        Seconds that it may take.
    """
    from tenure.clients.scaling import remove_node

    _tell(connection, [_run(connection, lambda client: remove_node(client, node, within))])
    return Exit.DONE


def _show(connection: Connection) -> int:
    from tenure.clients.scaling import scale

    found: ScaleStatus = _run(connection, scale)
    if connection.json:
        print_json(found)
        return Exit.DONE
    rows = (
        (node["id"], _state(node), node["partitions"], node["waiting"], _share(node["busy"]))
        for node in found["nodes"]
    )
    print_table(("node", "state", "partitions", "waiting", "busy"), rows)
    say(
        f"{counted(len(found['nodes']), 'node')} on {counted(found['members'], 'member')}; "
        f"messages that wait: {found['waiting']:,}; nodes are busy for {_share(found['busy'])}."
    )
    return Exit.DONE


def _state(node: "NodeStatus") -> str:
    return "draining" if node["draining"] else "running"


def _share(part: float) -> str:
    return f"{part:.0%}"


def _tell(connection: Connection, changed: list[str]) -> None:
    if connection.json:
        print_json({"changed": changed})
    else:
        say(f"{', '.join(changed)}: done." if changed else "Nothing to do.")


def _run(connection: Connection, work: "Callable[[GridClient], Awaitable[Any]]") -> Any:
    import trio

    async def run() -> Any:
        async with connected(connection) as client:
            return await work(client)

    return trio.run(run)
