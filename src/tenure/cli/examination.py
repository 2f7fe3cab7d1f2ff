"""What the doctor looks at, each thing by itself: the machine, the members, the grid, nodes, partitions, jobs."""

import ipaddress
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from tenure.cli.ends import first_error
from tenure.cli.partitions_seen import look_at_partitions
from tenure.cli.standing import Unformed, standing
from tenure.connect import wall_clock_ms
from tenure.members import MemberError, Standard, Verdict, check_members, find_java
from tenure.members.jar import cache_dir
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.hazelcast import HazelcastGrid
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.keys import HEAD
from tenure.scheduler.nodes_seen import live_nodes
from tenure.scheduler.repairing import damaged_entries
from tenure.scheduler.wire import Head, decode

__all__ = ["examine_cluster", "examine_grid", "examine_machine"]

WRITES = 20
HEAD_READS = 3
"""A head that reads absent so often is lost: a member that fails may hide it for a moment."""
SLOW_WRITE_MS = 50
GOOD, WARNING, BAD = Standard.GOOD, Standard.WARNING, Standard.BAD


async def examine_machine() -> list[Verdict]:
    """What running a member here would take. Not having it is no fault: members may run elsewhere."""
    try:
        java = await trio.to_thread.run_sync(find_java)
        found = Verdict("Java", GOOD, f"{java.version} ({java.executable})")
    except MemberError as error:
        found = Verdict("Java", WARNING, f"{error.what.rstrip('.')}, so no member can run here", error.next_step)
    jars = sorted(cache_dir().glob("hazelcast-*.jar"))
    jar = f"{jars[-1].name} is in the cache" if jars else "not in the cache; it is fetched when the first member starts"
    return [found, Verdict("Hazelcast", GOOD, jar)]


async def examine_cluster(grid: HazelcastGrid, *, timeout_s: float) -> list[Verdict]:
    """Everything that a client can find out."""
    return [*check_members(grid), _exposure(grid), *await examine_grid(grid, timeout_s=timeout_s)]


async def examine_grid(grid: Grid, *, timeout_s: float) -> list[Verdict]:
    """What is found out by using it. What can't be looked at is bad, and takes nothing from what else was found."""
    verdicts = await _looked("writes", partial(_writes, grid))
    try:
        found, nodes = await standing(grid), await live_nodes(grid)
    except (TenureError, GridError) as error:
        return [*verdicts, _not_looked("grid", error)]
    verdicts += await _looked("bookkeeping", partial(_bookkeeping, grid))
    if isinstance(found, Unformed):
        verdicts.append(Verdict("cluster", BAD, found.finding, found.next_step))
        return [*verdicts, _nodes(nodes), *_threads(nodes), *_types(nodes)] if nodes else verdicts
    verdicts += [*await _looked("data", partial(_heads, grid, found)), _nodes(nodes), *_threads(nodes), *_types(nodes)]
    if nodes:
        verdicts += await _looked("owners", partial(_work, grid, timeout_s))
    return verdicts


async def _bookkeeping(grid: Grid) -> list[Verdict]:
    """What can't be read of it, if anything; damaged heads are told of with the data, restores with the cluster."""
    found = await damaged_entries(grid, with_restores=False)
    if not found:
        return []
    shown = _some([f"{damage.where}: {damage.finding}" for damage in found], 3)
    standard = BAD if any(damage.harms for damage in found) else WARNING
    return [Verdict("bookkeeping", standard, shown, "See `tenure repair --dry-run`.")]


async def _looked(about: str, look: Callable[[], Awaitable[list[Verdict]]]) -> list[Verdict]:
    try:
        return await look()
    except Exception as error:
        first = first_error(error)  # nurseries wrap it
        if isinstance(first, (TenureError, GridError)):
            return [_not_looked(about, first)]
        raise


def _not_looked(about: str, error: BaseException) -> Verdict:
    finding = f"could not be looked at: {str(error).rstrip('.') or type(error).__name__}"
    return Verdict(about, BAD, finding, "Look at the logs of members and nodes.")


def _exposure(grid: HazelcastGrid) -> Verdict:
    exposed = [member.host for member in grid.ownership().members if not _is_loopback(member.host)]
    if not exposed:
        return Verdict("exposure", GOOD, "members listen on loopback only")
    return Verdict(
        "exposure",
        WARNING,
        f"members listen at {', '.join(sorted(set(exposed)))}",
        "Keep that in a network of its own: whoever reaches it and knows the cluster's name may write.",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _writes(grid: Grid) -> list[Verdict]:
    """The protocol's own kind of write, to partitions all over the grid."""
    key, took_ms = b"doctor/" + os.urandom(8), []
    for n in range(WRITES):
        partition, began_s = n * grid.partition_count // WRITES, trio.current_time()
        await grid.set(Map.NODES, partition, key, b"first", ttl_s=60)
        if not await grid.replace_if_same(Map.NODES, partition, key, b"first", b"second"):
            return [Verdict("writes", BAD, "a value that was just written is not there", "Look at the members' logs.")]
        took_ms.append((trio.current_time() - began_s) * 1000 / 2)
        await grid.delete(Map.NODES, partition, key)
    median_ms = sorted(took_ms)[len(took_ms) // 2]
    finding = f"{median_ms:.1f} ms each (median of {WRITES})"
    if median_ms > SLOW_WRITE_MS:
        return [Verdict("writes", WARNING, finding, "Look at the network between members, and at their load.")]
    return [Verdict("writes", GOOD, finding)]


async def _heads(grid: Grid, cluster: Cluster) -> list[Verdict]:
    missing, foreign = [], []
    for partition in range(grid.partition_count):
        stored = await _head(grid, partition)
        if stored is None:
            missing.append(partition)
        else:
            try:
                if decode(stored, Head).formation != cluster.formation:
                    foreign.append(partition)
            except TenureError:
                foreign.append(partition)
    if not missing and not foreign:
        finding = f"all {grid.partition_count} partitions are those of cluster {cluster.formation}"
        return [Verdict("data", GOOD, finding)]
    gone = sorted(missing + foreign)
    what = "all partitions have" if len(gone) == grid.partition_count else f"partitions {_some(gone)} have"
    next_step = "Restore a snapshot, or begin anew (`tenure node --begin-anew`)."
    return [Verdict("data", BAD, f"{what} lost their data", next_step)]


async def _head(grid: Grid, partition: int) -> bytes | None:
    """None if it reads absent each time. Raises `GridError`: what can't be read is not known to be lost."""
    failure: GridError | None = None
    for _ in range(HEAD_READS):
        try:
            if (stored := await grid.get(Map.HEADS, partition, HEAD)) is not None:
                return stored
        except GridError as error:
            failure = error
        await trio.sleep(0.1)
    if failure is not None:
        raise failure
    return None


def _threads(nodes: list[NodeInfo]) -> list[Verdict]:
    losers = [f"{node.id} ({node.threads_lost})" for node in nodes if node.threads_lost]
    if not losers:
        return []
    finding = f"turns were given up whose threads still run, on {', '.join(losers)}"
    next_step = "The node's log says what they stand in; restart the node to end them."
    return [Verdict("threads", WARNING, finding, next_step)]


def _nodes(nodes: list[NodeInfo]) -> Verdict:
    if not nodes:
        return Verdict("nodes", BAD, "none is running: nobody runs jobs", "Start one with `tenure node APP`.")
    shown = ", ".join(f"{node.id} ({'draining, ' * node.draining}{len(node.owned)} partitions)" for node in nodes)
    if len(nodes) == 1:
        return Verdict("nodes", WARNING, f"one: {shown}; if it dies, all jobs wait for another", "Start a second one.")
    return Verdict("nodes", GOOD, f"{len(nodes)}: {shown}")


def _types(nodes: list[NodeInfo]) -> list[Verdict]:
    if not nodes:
        return []
    versions: dict[str, set[int]] = {}
    for node in nodes:
        for name, version in node.types.items():
            versions.setdefault(name, set()).add(version)
    unequal = sorted(
        name for name, found in versions.items() if len(found) > 1 or any(name not in node.types for node in nodes)
    )
    if unequal:
        finding = f"nodes differ in {', '.join(unequal)}"
        return [Verdict("job types", WARNING, finding, "Finish the upgrade: run the same application on all nodes.")]
    return [Verdict("job types", GOOD, f"all nodes know the same {len(versions)}: {', '.join(sorted(versions))}")]


async def _work(grid: Grid, timeout_s: float) -> list[Verdict]:
    async with open_client(grid, registry=Registry(), now_ms=wall_clock_ms) as client:
        rows = await look_at_partitions(client, timeout_s=min(timeout_s, 10.0))
        owners = _partitions(rows)
        if owners.standard is Standard.BAD:
            return [owners]  # jobs are asked of all partitions
        return [owners, *await _looked("jobs", partial(_jobs, client, timeout_s)), _letters(rows)]


async def _jobs(client: GridClient, timeout_s: float) -> list[Verdict]:
    jobs = await client.directory.jobs(deadline_s=timeout_s)
    failed = [str(job["id"]) for job in jobs if job["status"] == "failed"]
    stuck = [str(job["id"]) for job in jobs if job["stuck"]]
    if not failed and not stuck:
        return [Verdict("jobs", GOOD, f"{len(jobs)}, none has failed")]
    told = [
        (failed, "have failed", "`tenure describe`, and `retry`"),
        (stuck, "are stuck", "`tenure describe` for why"),
    ]
    return [
        Verdict(
            "jobs",
            WARNING,
            "; ".join(f"{len(those)} {how}: {_some(those)}" for those, how, _ in told if those),
            f"See {next(step for those, _, step in told if those)}.",
        )
    ]


def _letters(rows: list[dict[str, Any]]) -> Verdict:
    letters = sum(row["dead_letters"] for row in rows)
    dropped, expired = (sum(row.get(f"dead_letters_{what}", 0) for row in rows) for what in ("dropped", "expired"))
    lost = [f"{count} {how}" for count, how in ((dropped, "were dropped"), (expired, "have expired")) if count]
    if full := [row["partition"] for row in rows if row.get("dead_letters_full")]:
        what = f"{letters}; partitions {_some([str(p) for p in full])} have too many: who would send more waits"
        return Verdict("dead letters", BAD, "; ".join([what, *lost]), "Replay or discard them: `tenure dead-letters`.")
    if letters or dropped:
        return Verdict("dead letters", WARNING, "; ".join([f"{letters}", *lost]), "See `tenure dead-letters`.")
    return Verdict("dead letters", GOOD, "none")


NOT_OPEN = {
    "lost": ("are lost", "Restore a snapshot."),
    "parked": (
        "are parked: no node that lives reads what is in them",
        "Start a node of the version that wrote it; `tenure partitions`, and the nodes' logs, say more.",
    ),
    "silent": ("do not answer", "Look at the nodes' logs."),
}
"""state -> what is so, and what to do; the worst first"""


def _partitions(rows: list[dict[str, Any]]) -> Verdict:
    found = {state: [row["partition"] for row in rows if row["state"] == state] for state in NOT_OPEN}
    if not any(found.values()):
        return Verdict("owners", GOOD, f"all {len(rows)} partitions are open")
    if stopped := [row for row in rows if "error" in row]:
        those = [row["partition"] for row in stopped]
        why = next((row["error"] for row in stopped if row["error"]), "its node's log says why")
        finding = f"partitions {_some(those)} are parked for an error that nobody expected, and tried again: {why}"
        return Verdict("owners", BAD, finding, "Its log has the traceback: report it, or start a mended version.")
    shown = "; ".join(f"partitions {_some(those)} {NOT_OPEN[state][0]}" for state, those in found.items() if those)
    worst = next(state for state, those in found.items() if those)
    return Verdict("owners", BAD, shown, NOT_OPEN[worst][1])


def _some(things: "list[object] | list[int] | list[str]", shown: int = 5) -> str:
    text = ", ".join(map(str, things[:shown]))
    return text if len(things) <= shown else f"{text} and {len(things) - shown} more"
