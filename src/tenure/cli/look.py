"""Commands that only look: topics, nodes, partitions."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenure.cli.connection import connected, connected_grid
from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json, print_table
from tenure.cli.unheard import say_silent
from tenure.clients.node_rows import node_rows
from tenure.clients.selector import NODES, parse_selector
from tenure.scheduler.errors import TenureError

__all__ = ["nodes", "partitions", "topics"]


def topics(*, connection: Connection = USUAL_CONNECTION) -> int:
    """Topics, and how many jobs subscribe to each."""

    silent: dict[int, TenureError] = {}

    async def run() -> dict[str, int]:
        async with connected(connection) as client:
            return await client.directory.topics(silent=silent)

    found = _run(run)
    if connection.json:
        for topic, count in found.items():
            print_json({"topic": topic, "subscribers": count})
    else:
        print_table(("topic", "subscribers"), found.items())
    return say_silent("topics", silent)


def nodes(*selector: str, connection: Connection = USUAL_CONNECTION) -> int:
    """Nodes, and what they own. One that has fallen silent is listed as such for about a minute.

    Parameters
    ----------
    selector
        Which: node=…, state=draining, version=…, type=… (a job type that it knows); and, or, not. All, if none is
        given.
    """
    chosen = parse_selector(" ".join(selector), NODES)

    async def run() -> list[dict[str, Any]]:
        async with connected_grid(connection) as grid:
            return [row for row in await node_rows(grid) if chosen(row)]

    rows = _run(run)
    if connection.json:
        for row in rows:
            print_json(row)
    else:
        columns = ("id", "state", "pid", "partitions", "member", "version", "types")
        titles = ("node", "state", "pid", "partitions", "member", "version", "job types")
        print_table(titles, ([", ".join(row[c]) if c == "types" else row[c] for c in columns] for row in rows))
    return Exit.DONE


def partitions(*, connection: Connection = USUAL_CONNECTION) -> int:
    """Partitions: their owner, epoch, jobs, and what waits. Exit code 1 if one is lost or does not answer."""
    from tenure.cli.partitions_seen import look_at_partitions

    async def run() -> list[dict[str, Any]]:
        async with connected(connection) as client:
            return await look_at_partitions(client, timeout_s=connection.timeout)

    rows = _run(run)
    if connection.json:
        for row in rows:
            print_json(row)
    else:
        columns = ("partition", "state", "node", "epoch", "slot", "jobs", "waiting", "outbox", "lanes", "dead_letters")
        titles = [column.replace("_", " ") for column in columns]
        print_table(titles, ([row.get(column, "") for column in columns] for row in rows))
        for row in rows:
            if row.get("error"):
                print(f"Partition {row['partition']} is parked on node {row['node']}: {row['error']}")
    return Exit.DONE if all(row["state"] == "open" for row in rows) else Exit.FAILED


def _run(work: Callable[[], Awaitable[Any]]) -> Any:
    import trio

    return trio.run(work)
