"""What a node says of the big events, once each, so that its log tells afterwards what happened: members and nodes that
come and go, partitions that are taken over, the time without any member, and that the node itself stood still.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import trio

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.grid.port import Member

__all__ = ["Chronicle"]

UNANSWERED_S = 1.0
"""So long must no member have answered before that is said."""
STOOD_STILL_S = 1.0
GATHERED_S = 1.0
"""Partitions that are opened within so long are told of in one line."""


class Chronicle:
    """One node's."""

    def __init__(self, node: str, tell: Callable[[str], None]) -> None:
        self._node, self._tell = node, tell
        self._nodes: dict[str, NodeInfo] | None = None
        self._members: dict[str, Member] | None = None
        self._answered_s: float | None = None
        self._is_unanswered = False
        self._taken: Counter[tuple[str, bool]] = Counter()
        self._taken_s = 0.0

    def saw_nodes(self, live: Mapping[str, NodeInfo]) -> None:
        """These live."""
        others = {id: info for id, info in live.items() if id != self._node}
        before, self._nodes = self._nodes, others
        if before is None or before.keys() == others.keys():
            return
        for id in sorted(others.keys() - before.keys()):
            self._tell(f"node {id} is there; there are {len(others) + 1}")
        for id in sorted(before.keys() - others.keys()):
            info = before[id]
            how = "has left" if info.draining else f"is gone, with {len(info.owned)} partitions"
            self._tell(f"node {id} {how}; there are {len(others) + 1}")

    def saw_members(self, members: Collection[Member]) -> None:
        """These are there, as far as can be told; none: nothing can."""
        if not members:
            return
        now = {member.id: member for member in members}
        before, self._members = self._members, now
        if before is None or before.keys() == now.keys():
            return
        for id in sorted(now.keys() - before.keys()):
            self._tell(f"member {now[id].address} is there; there are {len(now)}")
        for id in sorted(before.keys() - now.keys()):
            self._tell(f"member {before[id].address} is gone; there are {len(now)}")

    def answered(self) -> None:
        """The grid has answered."""
        unanswered_s, self._answered_s = self._unanswered_s(), trio.current_time()
        if self._is_unanswered:
            self._is_unanswered = False
            self._tell(f"members answer again, after {unanswered_s:.1f} s")

    def unanswered(self, why: str) -> None:
        """It has not."""
        unanswered_s = self._unanswered_s()
        if unanswered_s >= UNANSWERED_S and not self._is_unanswered:
            self._is_unanswered = True
            self._tell(f"no member has answered for {unanswered_s:.1f} s; all jobs of this node wait: {why}")

    def _unanswered_s(self) -> float:
        if self._answered_s is None:
            self._answered_s = trio.current_time()
        return trio.current_time() - self._answered_s

    def late(self, late_s: float) -> None:
        """So late was the loop."""
        if late_s >= STOOD_STILL_S:
            self._tell(f"this node stood still for {late_s:.1f} s; others may have taken over what it had")

    def took(self, owner: str, *, handed_over: bool) -> None:
        """A partition is open here that was this node's (empty: nobody's) before."""
        if not self._taken:
            self._taken_s = trio.current_time()
        self._taken[owner, handed_over] += 1

    def tell_taken(self) -> None:
        """Say what was taken lately; to be called now and then."""
        if not self._taken or trio.current_time() < self._taken_s + GATHERED_S:
            return
        taken, self._taken = self._taken, Counter()
        for (owner, handed_over), count in sorted(taken.items()):
            what = f"{count} partition{'s' * (count != 1)}"
            if not owner:
                self._tell(f"opened {what}, for the first time")
            elif owner == self._node:
                self._tell(f"opened {what} of its own again")
            elif handed_over:
                self._tell(f"took {what} that node {owner} handed over")
            else:
                self._tell(f"took over {what} of node {owner}, which had not closed them")
