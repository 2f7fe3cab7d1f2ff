"""Who should own what: a pure function of the partition table, the live nodes and what they know.

Its result is published as one value, which all nodes follow; safety never rests on it.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from tenure.scheduler.grid.port import Ownership
from tenure.scheduler.load import Load

__all__ = ["ASSIGNMENT", "NODE_PREFIX", "Assignment", "NodeInfo", "assign", "is_settled"]

NODE_PREFIX = b"node/"
"""What the keys of heartbeats begin with."""


ASSIGNMENT = b"assignment"
"""The key of the published value, in the map of nodes."""


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
    format: int = 1
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


class Assignment(Struct, frozen=True):
    """The published value."""

    version: int
    owners: tuple[str, ...]
    """The node of each partition; empty: nobody is there."""


def assign(current: tuple[str, ...], ownership: Ownership, nodes: Iterable[NodeInfo]) -> tuple[str, ...]:
    """The node of each partition: next to its data, spread evenly, moved no more than needed.

    Nodes that know most job types come first; a draining node owns nothing, also if it is the last.
    """
    able = _able(list(nodes))
    if not able:
        return tuple("" for _ in ownership.primaries)
    by_member: dict[str, list[str]] = {}
    for node in able:
        by_member.setdefault(node.member, []).append(node.id)
    everyone = [node.id for node in able]
    count = len(ownership.primaries)
    owners = [""] * count
    groups: dict[tuple[str, ...], list[int]] = {}
    for partition, primary in enumerate(ownership.primaries):
        near = by_member.get(primary or "")
        groups.setdefault(tuple(sorted(near or everyone)), []).append(partition)
    load: Counter[str] = Counter()
    for candidates, partitions in sorted(groups.items(), key=lambda group: (len(group[0]), group[0])):
        _spread(owners, current, candidates, partitions, load)
    return tuple(owners)


def is_settled(node: NodeInfo, published: Assignment, ownership: Ownership, nodes: Iterable[NodeInfo]) -> bool:
    """Does this node serve what it is to serve, and will it stay so as long as nobody comes or goes?"""
    owners = assign(published.owners, ownership, nodes)
    mine = {partition for partition, owner in enumerate(owners) if owner == node.id}
    return owners == published.owners and mine <= {*node.owned, *node.lost}


def _able(nodes: list[NodeInfo]) -> list[NodeInfo]:
    staying = [node for node in nodes if not node.draining]
    if not staying:
        return []
    most = max(len(node.types) for node in staying)
    return sorted((node for node in staying if len(node.types) == most), key=lambda node: node.id)


def _spread(
    owners: list[str], current: tuple[str, ...], candidates: tuple[str, ...], partitions: list[int], load: Counter[str]
) -> None:
    # Fair shares of what these candidates have together; who has more than a share gives up the surplus.
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
