"""What the doctor looks at, each thing by itself: the machine, the members, the grid, nodes, partitions, jobs."""

import ipaddress
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from tenure.cli.ends import first_error
from tenure.cli.examination_jobs import (
    judge_bounds,
    judge_jobs,
    judge_letters,
    judge_partitions,
    judge_snapshots,
    some,
)
from tenure.cli.examination_members import judge_clocks, judge_copies, judge_spread
from tenure.cli.partitions_seen import look_at_partitions
from tenure.cli.standing import Unformed, standing
from tenure.connect import wall_clock_ms
from tenure.members import MemberError, Standard, Verdict, check_members, find_java, judge_count
from tenure.members.jar import cache_dir
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.hazelcast import HazelcastGrid, MemberTold
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.keys import HEAD
from tenure.scheduler.nodes_seen import live_nodes, said_nodes
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
    ownership, seen = grid.ownership(), grid.members_seen()
    asked_ms = wall_clock_ms()
    told = await grid.members_told()
    verdicts = [verdict for verdict in check_members(grid) if verdict.about != "partitions"]
    verdicts += [*judge_count(seen), judge_copies(len(seen), told), judge_spread(ownership), _exposure(grid)]
    return [*verdicts, *await examine_grid(grid, timeout_s=timeout_s, members=[(asked_ms, told)])]


async def examine_grid(
    grid: Grid,
    *,
    timeout_s: float,
    now_ms: Callable[[], int] = wall_clock_ms,
    members: Sequence[tuple[int, Sequence[MemberTold]]] = (),
) -> list[Verdict]:
    """What is found out by using it. What can't be looked at is bad, and takes nothing from what else was found."""
    verdicts = await _looked("writes", partial(_writes, grid))
    try:
        found, nodes = await standing(grid), await live_nodes(grid)
        asked_ms, said = now_ms(), await said_nodes(grid)
    except (TenureError, GridError) as error:
        return [*verdicts, _not_looked("grid", error)]
    verdicts += await _looked("bookkeeping", partial(_bookkeeping, grid))
    if isinstance(found, Unformed):
        verdicts.append(Verdict("cluster", BAD, found.finding, found.next_step))
        return [*verdicts, _nodes(nodes), *_threads(nodes), *_types(nodes)] if nodes else verdicts
    verdicts += [*await _looked("data", partial(_heads, grid, found)), _nodes(nodes), *_silent(nodes, said)]
    verdicts += [*_threads(nodes), *_types(nodes), judge_clocks(_alive(nodes, said), asked_ms, members)]
    if nodes:
        verdicts += await _looked("owners", partial(_work, grid, timeout_s, now_ms))
    return verdicts


async def _bookkeeping(grid: Grid) -> list[Verdict]:
    """What can't be read of it, if anything; damaged heads are told of with the data, restores with the cluster."""
    found = await damaged_entries(grid, with_restores=False)
    if not found:
        return []
    shown = some([f"{damage.where}: {damage.finding}" for damage in found], 3)
    standard = BAD if any(damage.harms for damage in found) else WARNING
    return [Verdict("bookkeeping", standard, shown, "See `tenure repair --dry-run`.")]


def _alive(nodes: list[NodeInfo], said: list[NodeInfo]) -> list[NodeInfo]:
    """As they were seen last."""
    ids = {node.id for node in nodes}
    return [node for node in said if node.id in ids]


def _silent(nodes: list[NodeInfo], said: list[NodeInfo]) -> list[Verdict]:
    ids = {node.id for node in nodes}
    silent = [node.id for node in said if node.id not in ids]
    if not silent:
        return []
    finding = f"nothing is heard of {', '.join(silent)}; others have taken over what they had"
    next_step = "See whether its process is frozen, or its machine; one that has ended is listed for about a minute."
    return [Verdict("silent nodes", WARNING, finding, next_step)]


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
    what = "all partitions have" if len(gone) == grid.partition_count else f"partitions {some(gone)} have"
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


async def _work(grid: Grid, timeout_s: float, now_ms: Callable[[], int]) -> list[Verdict]:
    async with open_client(grid, registry=Registry(), now_ms=now_ms) as client:
        rows = await look_at_partitions(client, timeout_s=min(timeout_s, 10.0))
        # One that is lost, or does not answer, hides nothing of the others.
        those = [row["partition"] for row in rows if row["state"] == "open"]
        verdicts = [judge_partitions(rows)]
        if those:
            verdicts += await _looked("jobs", partial(_jobs, client, those, timeout_s, now_ms))
        return [*verdicts, judge_letters(rows), *judge_bounds(rows)]


async def _jobs(client: GridClient, those: list[int], timeout_s: float, now_ms: Callable[[], int]) -> list[Verdict]:
    jobs = await client.directory.jobs(deadline_s=timeout_s, only=those, silent={})
    snapshots = partial(judge_snapshots, client, jobs, now_ms=now_ms(), timeout_s=timeout_s)
    return [judge_jobs(jobs), await snapshots()]
