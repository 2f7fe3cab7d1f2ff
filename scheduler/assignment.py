"""Who should own what: a pure function of the partition table, the live nodes and what they know.

Its result is published as one value, which all nodes follow; safety never rests on it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from tenure.scheduler.formats import FIRST
from tenure.scheduler.grid.port import Ownership
from tenure.scheduler.load import Load

__all__ = [
    "ASSIGNMENT",
    "NODE_PREFIX",
    "PICKLED",
    "RULES",
    "Assignment",
    "NodeInfo",
    "all_have_some",
    "assign",
    "is_settled",
    "runs_all",
]

RULES = 3
"""The rules of `assign` that this version knows: 2 knows what nodes are unfit for, 3 shares evenly. What is in force is
the oldest that a living node knows: nodes that compute different things would take partitions from each other again and
again."""

NODE_PREFIX = b"node/"
"""What the keys of heartbeats begin with."""


ASSIGNMENT = b"assignment"
"""The key of the published value, in the map of nodes."""


VERSION_MAX = 2**62
"""No cluster changes its assignment so often; one that says so is damaged."""


class NodeInfo(Struct, frozen=True):
    """What a node says of itself with each heartbeat."""

    id: str
    beat: int
    host: str = ""
    """Where it runs: two of the same can see each other's processes. Empty: nobody can."""
    member: str = ""
    """The member that it is paired with."""
    types: dict[str, int] = {}
    """Job types and versions that it knows."""
    draining: bool = False
    allows_pickled: bool = False
    pid: int = 0
    name: str = ""
    owned: tuple[int, ...] = ()
    """The partitions that it has open."""
    lost: tuple[int, ...] = ()
    """The partitions that it should have, and whose heads are gone."""
    follows: int = 0
    """The version of the assignment that it has seen."""
    born: int = 0
    """When its process began, on its host's clock: with `pid`, which process it is."""
    load: Load = Load()
    """How much it has to do."""
    reads: tuple[int, ...] = (FIRST,)
    """The formats that it reads (see `formats`)."""
    rules: int = 1
    """The rules of `assign` that it knows."""
    version: str = ""
    """Its version of Tenure. Empty: older than this field."""
    place: str = ""
    """Where it launches activities: two of the same see the same runs."""
    unfit: tuple[int, ...] = ()
    """The partitions that it has met something in that it can't read or run."""
    cuts: bool = False
    """Can it take part in a snapshot? Versions before snapshots can't."""
    late_s: float = 0.0
    """How late its heartbeats were of late."""
    holds: bool | None = None
    """Has it heard that all nodes are to go (see `orders`)? None: its version hears nothing of that."""
    spawned_by: str = ""
    """What the command said that started it (see `tenure.jobs.spawning`). Empty: nothing, or its version can't tell."""
    parked: dict[int, str] = {}
    """The partitions that stand still on it for an error that nobody expected, and why (see `bulkhead`)."""
    threads_lost: int = 0
    """Threads of blocking turns that were given up, and that still run (see `threads`)."""
    names: bool = False
    """Does it call turns by the cluster that they are of (see `turnid`)? Versions before that can't."""
    clock_ms: int = 0
    """What its clock showed. 0: its version does not say."""

    heartbeat_s: float = 0.2
    """How often it says so."""


class Assignment(Struct, frozen=True):
    """The published value."""

    version: int
    owners: tuple[str, ...]
    """The node of each partition; empty: nobody is there."""


PICKLED = "a pickled callable"
"""Stands for all ad hoc job types, where types are looked for."""


def runs_all(node: NodeInfo, types: Mapping[str, int]) -> bool:
    """Does this node know all these job types, in these versions or newer ones?"""
    return all(
        node.allows_pickled if type == PICKLED else node.types.get(type, 0) >= version
        for type, version in types.items()
    )


def assign(current: tuple[str, ...], ownership: Ownership, nodes: Iterable[NodeInfo]) -> tuple[str, ...]:
    """The node of each partition: next to its data, spread evenly, moved no more than needed.

    Nodes that have met something in a partition that they can't read or run do not get it, as long as there are
    others; a draining node owns nothing, also if it is the last.
    """
    known = list(nodes)
    rules = min((node.rules for node in known), default=RULES)
    able = _able(known) if rules >= 2 else _able_before(known)
    spread = _spread if rules >= 3 else _spread_before
    if not able:
        return tuple("" for _ in ownership.primaries)
    by_member: dict[str, list[NodeInfo]] = {}
    for node in able:
        by_member.setdefault(node.member, []).append(node)
    unfit = {partition for node in able for partition in node.unfit}
    count = len(ownership.primaries)
    owners = [""] * count
    groups: dict[tuple[str, ...], list[int]] = {}
    for partition, primary in enumerate(ownership.primaries):
        near, everyone = by_member.get(primary or "", []), able
        if partition in unfit:
            near, everyone = _fit(near, partition), _fit(able, partition) or able
        groups.setdefault(tuple(sorted(node.id for node in near or everyone)), []).append(partition)
    load: Counter[str] = Counter()
    for candidates, partitions in sorted(groups.items(), key=lambda group: (len(group[0]), group[0])):
        spread(owners, current, candidates, partitions, load)
    return tuple(owners)


def all_have_some(nodes: Iterable[NodeInfo], partition_count: int) -> bool:
    """Are there partitions enough that each of these nodes is to have some? By the second rules, who came last may get
    none all the same."""
    known = list(nodes)
    return 2 * len(known) <= partition_count and min((node.rules for node in known), default=RULES) != 2


def is_settled(node: NodeInfo, published: Assignment, ownership: Ownership, nodes: Iterable[NodeInfo]) -> bool:
    """Does this node serve what it is to serve, and will it stay so as long as nobody comes or goes?"""
    owners = assign(published.owners, ownership, nodes)
    mine = {partition for partition, owner in enumerate(owners) if owner == node.id}
    return owners == published.owners and mine <= {*node.owned, *node.lost, *node.parked}


def _fit(nodes: list[NodeInfo], partition: int) -> list[NodeInfo]:
    return [node for node in nodes if partition not in node.unfit]


def _able(nodes: list[NodeInfo]) -> list[NodeInfo]:
    return sorted((node for node in nodes if not node.draining), key=lambda node: node.id)


def _able_before(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """By the first rules: only nodes that know most job types, and nobody says what it is unfit for."""
    staying = [msgspec.structs.replace(node, unfit=()) for node in nodes if not node.draining]
    if not staying:
        return []
    most = max(len(node.types) for node in staying)
    return sorted((node for node in staying if len(node.types) == most), key=lambda node: node.id)


def _spread(
    owners: list[str], current: tuple[str, ...], candidates: tuple[str, ...], partitions: list[int], load: Counter[str]
) -> None:
    """Each gets its fair share, counted with what it has of others; within that it keeps what it had."""
    before = {p: current[p] if p < len(current) else "" for p in partitions}
    left = _shares(Counter(before.values()), candidates, len(partitions), load)
    homeless = []
    for partition in partitions:
        if left.get(node := before[partition], 0) > 0:
            owners[partition] = node
            left[node] -= 1
        else:
            homeless.append(partition)
    # In turns: what one gives to several comes to all of them at the same time.
    takers = [node for n in range(max(left.values())) for node in candidates if left[node] > n]
    for partition, node in zip(homeless, takers, strict=True):
        owners[partition] = node
    load.update(owners[partition] for partition in partitions)


def _shares(has: Counter[str], candidates: tuple[str, ...], count: int, load: Counter[str]) -> dict[str, int]:
    """How many of these partitions each is to have, so that all have as many, or one more: those, then, that had."""
    level, rest, ranked, filled = 0, 0, sorted(load[node] for node in candidates), count
    for n, least in enumerate(ranked, 1):
        # The n with least are raised to one level, unless that is above the next: then that one is raised, too.
        filled += least
        level, rest = divmod(filled, n)
        if n < len(ranked) and level < ranked[n]:
            break
    shares = {node: max(0, level - load[node]) for node in candidates}
    able = (node for node in candidates if load[node] <= level)
    raised = sorted(able, key=lambda node: (shares[node] - has[node], node))
    return shares | {node: shares[node] + 1 for node in raised[:rest]}


def _spread_before(
    owners: list[str], current: tuple[str, ...], candidates: tuple[str, ...], partitions: list[int], load: Counter[str]
) -> None:
    # By the first two rules: who has more than the largest share gives up the surplus, and what comes may get nothing.
    total = len(partitions) + sum(load[node] for node in candidates)
    share = -(-total // len(candidates))
    homeless = []
    for partition in partitions:
        before = current[partition] if partition < len(current) else ""
        if before in candidates and load[before] < share:
            owners[partition] = before
            load[before] += 1
        else:
            homeless.append(partition)
    for partition in homeless:
        least = min(candidates, key=lambda node: (load[node], node))
        owners[partition] = least
        load[least] += 1
