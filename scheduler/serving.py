"""One partition on its way through a node: wait for it, open, serve, close; again if need be."""

from typing import TYPE_CHECKING

import trio

from tenure.scheduler.bulkhead import cause_of
from tenure.scheduler.errors import Final, PartitionLost, UnreadableFormat
from tenure.scheduler.handoffs import Bell
from tenure.scheduler.heard import Heard
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.state import PartitionState
from tenure.scheduler.tenure import Tenure

if TYPE_CHECKING:
    from tenure.scheduler.node import Node

__all__ = ["Serving"]

STILL_S = 0.5
"""A journal that is followed and stands still for so long may have been cleared from under its follower."""


class Serving:
    """One partition on its way through this node: follow, open, serve, close; again if need be."""

    def __init__(self, node: "Node", partition: int) -> None:
        self.node, self.host, self.partition = node, node.host, partition
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.journal: Journal | None = None
        self._successor: str | None = None
        self._closed = trio.Event()
        self._opening = trio.CancelScope()

    def close(self, successor: str) -> None:
        """Hand over."""
        self._successor = successor
        self._closed.set()
        self._opening.cancel()
        if (tenure := self.node.tenures.get(self.partition)) is not None:
            tenure.close(successor)

    async def run(self) -> None:
        try:
            with self.scope:
                await self._serve()
        finally:
            self.ended.set()
            self.node.heard.pop(self.partition, None)
            self.node.tenures.pop(self.partition, None)
            self.node.ended(self.partition)

    async def _serve(self) -> None:
        host, node = self.host, self.node
        journal = self.journal = Journal(
            host.grid,
            self.partition,
            formation=host.formation,
            settings=host.settings,
            new_id=host.new_id,
            random=host.random,
            report=host.report,
            encode=host.formats.encode,
            large_images=host.large_images,
            rest=host.pace.pause,
        )
        try:
            await self._serve_once(journal)
        except BaseException as error:  # noqa: BLE001  # what is the process's goes on up
            pause_s = self._pause_after(cause_of(error))
            node.tenures.pop(self.partition, None)
            with trio.move_on_after(pause_s):
                await self._closed.wait()  # whoever is to go does not wait for a pause to end

    def _pause_after(self, error: BaseException) -> float:
        """How it ended, and so how long to wait before it begins again."""
        host, node = self.host, self.node
        if isinstance(error, TenureOver):
            return host.random.random() * host.settings.retry_pause_max_s
        if isinstance(error, UnreadableFormat):
            self._park(error)
            return host.settings.lost_after_s
        if isinstance(error, PartitionLost):
            if self.partition not in node.lost:
                host.report(str(error))
            node.lost[self.partition] = str(error)
            return host.settings.lost_after_s
        return node.bulkhead.park(self.partition, error)

    async def _serve_once(self, journal: Journal) -> None:
        node = self.node
        try:
            with self._opening, node.handoffs.bell(self.partition) as bell:
                await self._await_turn(journal, bell)
            if self._successor is not None:
                return
            owner = journal.state.owner
            heard = await self._open(journal)
            node.chronicle.took(owner, handed_over=journal.closed_before)
            node.lost.pop(self.partition, None)
            tenure = node.tenures[self.partition] = Tenure(self.host, journal)
            node.heard.pop(self.partition, None)
            node.bulkhead.opened(self.partition)
            if self._successor is not None:
                tenure.close(self._successor)
            await tenure.run(crashed=not journal.closed_before, heard=heard)
        finally:
            # However it ended: nobody steps aside for one that waits to be tried again.
            self.host.precedence.served(self.partition)

    def _park(self, error: UnreadableFormat) -> None:
        """Nothing is touched: what can't be read here is another node's to read, now or later."""
        reason = f"{error} ({self.host.formats.who_reads(error.format)})"
        if self.host.unfit.get(self.partition) != reason:
            self.host.report(f"partition {self.partition} is parked on node {self.host.node}: {reason}")
        self.host.unfit[self.partition] = reason

    async def _open(self, journal: Journal) -> Heard:
        """Open it, with the first sweep beside that: nobody waits for both."""
        heard = self.node.heard[self.partition] = Heard()
        failure: TenureOver | Final | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heard.sweep, self.host.grid, self.partition, journal.pause)
            try:
                await journal.open(self.host.node, self.host.now_ms, followed=True)
            except (TenureOver, Final) as error:
                failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return heard

    async def _await_turn(self, journal: Journal, bell: Bell) -> None:
        """Until the last owner has closed, is gone, or has had time enough."""
        handoffs = self.node.handoffs
        handoffs.expect(self.partition)
        try:
            deadline_s = trio.current_time() + handoffs.patience_s(self.partition)
            await handoffs.come_near(self.partition, bell)
            self.host.precedence.goes_first(self.partition)
            await journal.read()
            journal.expect_more()
            progress = journal.slot, trio.current_time()
            while True:
                await journal.follow()
                if journal.slot != progress[0]:
                    progress = journal.slot, trio.current_time()
                elif trio.current_time() - progress[1] >= STILL_S:
                    await journal.keep_up()
                    progress = -1, trio.current_time()
                if self._is_free(journal.state) or trio.current_time() >= deadline_s:
                    return
                if await bell.wait(handoffs.pause_s(self.partition)) is not None:
                    journal.expect_more()
        finally:
            handoffs.expected(self.partition)

    def _is_free(self, state: PartitionState) -> bool:
        """Has its last owner closed it for us, or for one that will not come; or is it gone?"""
        if self.node.assignment.owners[self.partition] != self.host.node:
            return False  # it is another's by now, who may be opening it
        if state.closed_for == self.host.node:
            return True
        if state.closed_for is not None and not self._is_wanted(state.closed_for):
            return True
        return state.epoch == 0 or state.owner == self.host.node or not self.node.is_alive(state.owner)

    def _is_wanted(self, successor: str) -> bool:
        """May whom it was closed for still open it? Not one that knows that it is ours now."""
        info = self.node.nodes.get(successor)
        return info is not None and info.follows < self.node.assignment.version
