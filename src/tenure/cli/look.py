"""Commands that only look: topics, nodes, partitions."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenure.cli.connection import connected, connected_grid
from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json, print_table

__all__ = ["nodes", "partitions", "topics"]


def topics(*, connection: Connection = USUAL_CONNECTION) -> int:
    """Topics, and how many jobs subscribe to each."""

    async def run() -> dict[str, int]:
        async with connected(connection) as client:
            return await client.directory.topics()

    found = _run(run)
    if connection.json:
        for topic, count in found.items():
            print_json({"topic": topic, "subscribers": count})
    else:
        print_table(("topic", "subscribers"), found.items())
    return Exit.DONE


def nodes(*, connection: Connection = USUAL_CONNECTION) -> int:
    """Nodes, and what they own. One that has fallen silent is listed as such for about a minute."""
    from tenure.scheduler.assignment import NodeInfo
    from tenure.scheduler.nodes_seen import live_nodes, said_nodes

    async def run() -> tuple[list[NodeInfo], set[str], dict[str, str]]:
        async with connected_grid(connection) as grid:
            alive = {node.id: node for node in await live_nodes(grid)}
            said = {node.id: node for node in await said_nodes(grid)}
            members = {member.id: f"{member.host}:{member.port}" for member in grid.ownership().members}
            return sorted((said | alive).values(), key=lambda node: node.id), set(alive), members

    found, alive, members = _run(run)
    rows = [
        {
            "id": node.id,
            "name": node.name,
            "pid": node.pid,
            "state": "silent" if node.id not in alive else "draining" if node.draining else "running",
            "partitions": len(node.owned) if node.id in alive else 0,
            "lost": list(node.lost),
            "member": members.get(node.member, ""),
            "types": dict(sorted(node.types.items())),
        }
        for node in found
    ]
    if connection.json:
        for row in rows:
            print_json(row)
    else:
        print_table(
            ("node", "state", "pid", "partitions", "member", "job types"),
            (
                (row["id"], row["state"], row["pid"], row["partitions"], row["member"], ", ".join(row["types"]))
                for row in rows
            ),
        )
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
    return Exit.DONE if all(row["state"] == "open" for row in rows) else Exit.FAILED


def _run(work: Callable[[], Awaitable[Any]]) -> Any:
    import trio

    return trio.run(work)
