"""What the doctor asks of members beyond their configuration: are all there, has each partition its copies, do clocks
agree.
"""

from collections import Counter
from collections.abc import Iterable
from statistics import median

from tenure.cli.show import counted, far
from tenure.members import Standard, Verdict
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.grid.hazelcast import MemberTold
from tenure.scheduler.grid.port import Ownership

__all__ = ["judge_clocks", "judge_copies", "judge_spread"]

GOOD, WARNING, BAD = Standard.GOOD, Standard.WARNING, Standard.BAD
APART_S, FAR_APART_S = 2.0, 60.0
"""What heartbeats and calls take is less than the first. The second is no drift."""
UNEVEN = 1.25
"""So many times its share of the data."""


def judge_copies(members: int, told: Iterable[MemberTold]) -> Verdict:
    """Members that are not safe say so while copies of partitions are made or moved."""
    told = list(told)
    unsafe = [member.address for member in told if not member.is_safe]
    if unsafe:
        return Verdict(
            "copies",
            WARNING,
            f"copies of partitions are missing or on their way, say {', '.join(unsafe)}",
            "Wait until they are in place, and end or replace no member meanwhile: what it holds may be the only copy.",
        )
    if len(told) < members:
        finding = f"only {len(told)} of {counted(members, 'member')} said whether theirs are in place"
        return Verdict("copies", WARNING, finding, "Look at the members' logs.")
    return Verdict("copies", GOOD, "every partition has its copies in place")


def judge_clocks(
    nodes: Iterable[NodeInfo], asked_ms: int, members: Iterable[tuple[int, Iterable[MemberTold]]]
) -> Verdict:
    """Of nodes, members, and of whoever asks: what the clock here showed when each was asked goes with it."""
    ahead_s = {"this machine": 0.0}
    ahead_s |= {f"node {node.id}": (node.clock_ms - asked_ms) / 1000 for node in nodes if node.clock_ms}
    for here_ms, told in members:
        ahead_s |= {f"member {member.address}": (member.clock_ms - here_ms) / 1000 for member in told}
    middle_s = median(ahead_s.values())
    apart = {name: by_s - middle_s for name, by_s in ahead_s.items() if abs(by_s - middle_s) > APART_S}
    if not apart:
        return Verdict("clocks", GOOD, f"{len(ahead_s)} agree: those of members, nodes and this machine")
    is_far = max(map(abs, apart.values())) > FAR_APART_S
    shown = "; ".join(
        f"{name} is {far(abs(by_s))} {'ahead' if by_s > 0 else 'behind'}" for name, by_s in apart.items()
    )
    return Verdict(
        "clocks",
        BAD if is_far else WARNING,
        shown,
        "Set it right (NTP): timers ring by the clock of the node that owns the job.",
    )


def judge_spread(ownership: Ownership) -> Verdict:
    """Each member has its share of the partitions, and so has the node that it is paired with."""
    if None in ownership.primaries:
        return Verdict("partitions", BAD, "some have no member", "Wait, or look at the members' logs.")
    addresses = {member.id: member.address for member in ownership.members}
    counts = Counter(dict.fromkeys(addresses.values(), 0))
    counts.update(addresses.get(id or "", "?") for id in ownership.primaries)
    share = len(ownership.primaries) / max(1, len(addresses))
    if counts and max(counts.values()) > UNEVEN * share + 1:
        shown = ", ".join(f"{address} has {count}" for address, count in counts.most_common())
        return Verdict("partitions", GOOD, f"each has a member; unevenly, which evens out when members change: {shown}")
    return Verdict("partitions", GOOD, "each has a member")
