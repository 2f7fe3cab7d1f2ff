"""Who is about to go, told from how partitions move.

A Hazelcast member that leaves in peace gives its partitions away one after the other, and takes writes until each is
gone; but from its first moment on it tells nobody of any event, and nobody that it is leaving.
"""

from collections import Counter

from tenure.scheduler.grid.port import Ownership

__all__ = ["leaving"]


def leaving(before: Ownership, after: Ownership) -> frozenset[str]:
    """The members that have given away so much that they have less than a fair share, and don't get it back.

    One that makes room for a member that has come keeps its share.
    """
    had, has = Counter(before.primaries), Counter(after.primaries)
    share = len(after.primaries) // max(1, len(after.members))
    return frozenset(
        member.id
        for member in after.members
        if has[member.id] < share
        and (has[member.id] < had[member.id] or (has[member.id] == had[member.id] and member.id in before.leaving))
    )
