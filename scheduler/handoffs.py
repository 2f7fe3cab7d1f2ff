"""Partitions that go from one living node to another: a few at a time, so that each stands still only briefly.

The giver closes a few, lowest numbers first, and the next when the taker has opened one of them. The taker expects
them in that order: what is next in line it has read already and looks at often, the others rarely.

    giver:   close 0, 1, … 7 ─────────── close 8 ── close 9 ──
    taker:   read 0 … 15, follow ──> open 0 ──> open 1 ──> …

All of it only saves time. Who takes part without knowing the order is served as well, a little later.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.keys import journal_key

if TYPE_CHECKING:
    from tenure.scheduler.node import Node
    from tenure.scheduler.serving import Serving

__all__ = ["Bell", "Handoffs"]

STEP_S = 0.25
"""The next one goes after so long if this one does not close: a turn that takes its time holds up nobody else."""
TAKE_S = 1.0
"""And after so long if it is closed, but nobody takes it."""
TOLD_S = 1.0
"""A successor that has not said for so long that it knows is taken to know."""
READ_AHEAD = 2
"""So many times what goes at once is read by the taker in advance."""


class Bell:
    """Rings when a partition's head is written; also for who listens only afterwards."""

    def __init__(self) -> None:
        self._rung, self._head = trio.Event(), b""

    def ring(self, head: bytes) -> None:
        self._head = head
        self._rung.set()

    async def wait(self, patience_s: float) -> bytes | None:
        """The head as it was last written since the last look, or None if it was not for so long."""
        with trio.move_on_after(patience_s):
            await self._rung.wait()
        head, rung = self._head, self._rung.is_set()
        if rung:
            self._rung = trio.Event()
        return head if rung else None


class Handoffs:
    """One node's, in both directions."""

    def __init__(self, node: "Node") -> None:
        self.node, self.settings = node, node.settings
        self._to_give: dict[int, tuple[Serving, str]] = {}
        self._giving: set[int] = set()
        self._version, self._since_s = 0, 0.0
        self._bells: dict[int, Bell] = {}
        self._givers: dict[int, str] = {}
        """partition that we wait for -> who has it now, as far as we know"""
        self._lines: dict[str, list[int]] = defaultdict(list)
        """the same the other way round, in order"""

    # -- bells ------------------------------------------------------------------------------------

    @contextmanager
    def bell(self, partition: int) -> Iterator[Bell]:
        """While open, it rings when the partition's head is written.

        Givers write it once more when they close, takers claim it when they have opened: each tells the other.
        """
        bell = self._bells[partition] = Bell()
        try:
            yield bell
        finally:
            if self._bells.get(partition) is bell:
                del self._bells[partition]

    def ring(self, partition: int, head: bytes) -> None:
        """The partition's head was written."""
        if (bell := self._bells.get(partition)) is not None:
            bell.ring(head)

    # -- giving -----------------------------------------------------------------------------------

    def give(self, serving: "Serving", successor: str) -> None:
        """This partition is another's now; said again with every beat until it is closed."""
        if serving.partition not in self._giving:
            self._to_give[serving.partition] = serving, successor
            if self._knows(successor):
                self._go_on()

    def _knows(self, successor: str) -> bool:
        """Has the successor seen that it is one? What was closed before that would stand still meanwhile."""
        version = self.node.assignment.version
        if version != self._version:
            self._version, self._since_s = version, trio.current_time()
        if trio.current_time() >= self._since_s + TOLD_S:
            return True
        info = self.node.nodes.get(successor)
        return info is None or info.follows >= version

    def keep(self, partition: int) -> None:
        """It is ours after all; too late if its closing has begun."""
        self._to_give.pop(partition, None)

    def _go_on(self) -> None:
        while self._to_give and len(self._giving) < max(1, self.settings.handoffs_at_once):
            partition = min(self._to_give)
            serving, successor = self._to_give.pop(partition)
            if not serving.ended.is_set():  # else what is open now, if anything, is another one, and not to be given
                self._giving.add(partition)
                self.node.start(self._give, serving, successor)

    async def _give(self, serving: "Serving", successor: str) -> None:
        try:
            serving.close(successor)
            with trio.move_on_after(STEP_S):
                await serving.ended.wait()
            if serving.ended.is_set():
                with trio.move_on_after(TAKE_S):
                    await self._taken(serving)
        finally:
            self._giving.discard(serving.partition)
            self._go_on()

    async def _taken(self, serving: "Serving") -> None:
        """Until the slot behind our closing record is taken: by the opening of the next owner."""
        journal = serving.journal
        if journal is None or journal.state.closed_for is None:
            return
        key, ours = journal_key(journal.slot), journal.stored_head
        try:
            with self.bell(serving.partition) as bell:
                while await self.node.grid.get(Map.JOURNAL, serving.partition, key) is None:
                    while await bell.wait(self.settings.handoff_poll_s) == ours:
                        pass  # that was our own
        except GridError:
            pass

    # -- taking -----------------------------------------------------------------------------------

    def expect(self, partition: int) -> None:
        """We are waiting for this one."""
        for id, info in self.node.nodes.items():
            if id != self.node.host.node and partition in info.owned:
                self._givers[partition] = id
                insort(self._lines[id], partition)
                return

    def expected(self, partition: int) -> None:
        """We are not, any more."""
        if (giver := self._givers.pop(partition, None)) is not None:
            self._lines[giver].remove(partition)
            if not self._lines[giver]:
                del self._lines[giver]

    async def come_near(self, partition: int, bell: Bell) -> None:
        """Until it is about to come."""
        while True:
            if self._rounds(partition) < READ_AHEAD or not self.node.is_alive(self._givers[partition]):
                return
            await bell.wait(self.pause_s(partition))

    def pause_s(self, partition: int) -> float:
        """After how long to look again whether it has been closed: not before its turn can come."""
        return self.settings.handoff_poll_s * (1 + self._rounds(partition))

    def patience_s(self, partition: int) -> float:
        """How long to wait before it is opened by force."""
        return self.settings.handoff_deadline_s + (STEP_S + TAKE_S) * self._rounds(partition)

    def _rounds(self, partition: int) -> int:
        """How many times what goes at once goes before this one."""
        giver = self._givers.get(partition)
        if giver is None:
            return 0
        return bisect_left(self._lines[giver], partition) // max(1, self.settings.handoffs_at_once)
