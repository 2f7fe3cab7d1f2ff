"""A node: it says that it is there, sees who else is, follows the assignment, and serves its partitions.

beat ──► who is there? ──► assignment (one value, compare-and-set) ──► open what is ours, close what is not
"""

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from tenure.scheduler.assignment import Assignment, NodeInfo, assign
from tenure.scheduler.errors import Final, TenureError
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.host import Host
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import decode, encode

__all__ = ["Listening", "Node"]

ASSIGNMENT = b"assignment"
NODE_PREFIX = b"node/"
LEADER_PATIENCE_BEATS = 8
STILL_S = 0.1
"""A journal that is followed and stands still for so long may have been cleared from under its follower."""


class Listening(Protocol):
    """What brings hints to a node for as long as it is open (see `tenure.listeners`)."""

    def __call__(self, node: "Node") -> AbstractAsyncContextManager[None]: ...


class Node:
    """One Tenure process (or one of several in a simulation)."""

    def __init__(self, host: Host, listening: Listening, *, name: str = "", pid: int = 0) -> None:
        self.host, self.settings, self.grid = host, host.settings, host.grid
        self.name, self.pid = name, pid
        self.tenures: dict[int, Tenure] = {}
        """The partitions that are open here."""
        self.lost: dict[int, str] = {}
        """Partitions that should be ours, and can't be: the reason."""
        self.assignment = Assignment(0, ())
        self.nodes: dict[str, NodeInfo] = {}
        """The live nodes, as this one sees them."""
        self.draining = False
        self._listening = listening
        self._serving: dict[int, _Serving] = {}
        self._beats: dict[str, tuple[int, float]] = {}
        self._beat = 0
        self._beat_key = NODE_PREFIX + host.node.encode()
        self._disagreed = 0
        self._published = 0
        self._overruled_s = -math.inf
        self._since_s: dict[int, float] = {}
        self._nursery: trio.Nursery | None = None
        self._look = trio.Event()
        self._drained = trio.Event()
        self._heard: frozenset[str] = frozenset()

    # -- life -------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained; started once others can see it. Cancelling is a crash: others take over."""
        async with self._listening(self), trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._keep_beating)
            task_status.started()
            await self._follow()
            nursery.cancel_scope.cancel()
        await self._take_leave()

    async def drain(self) -> None:
        """Close every partition in favour of others, then end; returns when `run` is about to."""
        self.draining = True
        self.look()
        await self._drained.wait()

    def look(self) -> None:
        """Members, nodes or partitions may have changed: look at once, not at the next beat."""
        self._look.set()

    def drop(self, partitions: list[int] | None = None) -> None:
        """Forget tenures without a word (after a merge, or a lost partition): they open anew."""
        for partition, serving in list(self._serving.items()):
            if partitions is None or partition in partitions:
                serving.scope.cancel()

    # -- the beat ---------------------------------------------------------------------------------

    async def _keep_beating(self, *, task_status: trio.TaskStatus[None]) -> None:
        ttl_s = max(60.0, 20 * self.settings.gone_after_s)
        seen = False
        while True:
            self._beat += 1
            try:
                await self.grid.set(Map.NODES, 0, self._beat_key, encode(self.info()), ttl_s=ttl_s)
                if not seen:
                    seen = True
                    task_status.started()
            except GridError:
                pass
            await trio.sleep(self.settings.heartbeat_s)

    async def _take_leave(self) -> None:
        # Without it the others would wait for our heart to stop; a hint, like all of this.
        try:
            await self.grid.delete(Map.NODES, 0, self._beat_key)
        except GridError:
            pass

    def info(self) -> NodeInfo:
        """What this node says of itself."""
        return NodeInfo(
            self.host.node,
            self._beat,
            member=self.grid.ownership().paired or "",
            types={type.name: type.version for type in self.host.registry},
            draining=self.draining,
            allows_pickled=self.settings.allow_pickled_jobs,
            pid=self.pid,
            name=self.name,
            owned=tuple(self.tenures),
            lost=tuple(self.lost),
        )

    async def _see_nodes(self) -> None:
        """Who is alive: whose beat has moved within `gone_after_s` of our own clock."""
        nodes: dict[str, NodeInfo] = {}
        async for page in self.grid.scan(Map.NODES, 0):
            for entry in page:
                if entry.key.startswith(NODE_PREFIX):
                    try:
                        info = decode(entry.value, NodeInfo)
                    except TenureError:
                        continue
                    nodes[info.id] = info
        live = {}
        now_s = trio.current_time()  # after the scan: it may have taken long, and we been frozen meanwhile
        for id, info in nodes.items():
            beat, since_s = self._beats.get(id, (-1, now_s))
            if info.beat != beat:
                self._beats[id] = (info.beat, now_s)
                live[id] = info
            elif now_s - since_s < self.settings.gone_after_s:
                live[id] = info
        live[self.host.node] = self.info()
        self.nodes = live

    # -- the assignment ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        while not (self.draining and not self._serving and self._is_handed_over()):
            self._look = trio.Event()
            try:
                await self._see_nodes()
                await self._settle_assignment()
            except GridError:
                pass
            self._apply()
            with trio.move_on_after(self.settings.heartbeat_s):
                await self._look.wait()
        self._drained.set()

    def _others(self) -> bool:
        return any(not node.draining for id, node in self.nodes.items() if id != self.host.node)

    def _is_handed_over(self) -> bool:
        return not self._others() or self.host.node not in self.assignment.owners

    async def _settle_assignment(self) -> None:
        stored = await self.grid.get(Map.NODES, 0, ASSIGNMENT)
        if stored is not None and (found := decode(stored, Assignment)).version >= self.assignment.version:
            if found.version > self.assignment.version == self._published:
                self._overruled_s = trio.current_time()
            self.assignment = found
        owners = assign(self.assignment.owners, self.grid.ownership(), self.nodes.values())
        if owners == self.assignment.owners or not any(owners):
            self._disagreed = 0
            return
        # One node at a time speaks, so that different views don't fight; if it stays silent, others do.
        self._disagreed += 1
        speaker = min((id for id, node in self.nodes.items() if not node.draining), default=self.host.node)
        if self.host.node != speaker and not self.draining and self._disagreed < LEADER_PATIENCE_BEATS:
            return
        if trio.current_time() < self._overruled_s + self.settings.heartbeat_s:
            return  # two that see different things don't answer each other at the speed of the grid
        await self._publish(stored, Assignment(self.assignment.version + 1, owners))

    async def _publish(self, stored: bytes | None, assignment: Assignment) -> None:
        new = encode(assignment)
        if stored is None:
            done = await self.grid.put_if_absent(Map.NODES, 0, ASSIGNMENT, new) is None
        else:
            done = await self.grid.replace_if_same(Map.NODES, 0, ASSIGNMENT, stored, new)
        if done:
            self.assignment = assignment
            self._published = assignment.version
            self._disagreed = 0

    def _apply(self) -> None:
        """Open what is ours, close what is not."""
        me = self.host.node
        self._hear()
        for partition, owner in enumerate(self.assignment.owners):
            serving = self._serving.get(partition)
            if owner == me and serving is None and not self.draining:
                self._begin(partition)
            elif owner != me and serving is not None:
                serving.close(self._successor(owner))
        if self.draining and not self._others():
            for serving in list(self._serving.values()):
                serving.close("")

    def _hear(self) -> None:
        """Where members have no node of their own, their partitions' events must come to us all the same."""
        ownership = self.grid.ownership()
        mine = zip(ownership.primaries, self.assignment.owners, strict=False)
        members = frozenset(
            m for m, owner in mine if m is not None and owner == self.host.node and m != ownership.paired
        )
        if members != self._heard:
            self._heard = members
            self.grid.hear(members)

    def _successor(self, owner: str) -> str:
        return owner if owner != self.host.node else ""

    def _begin(self, partition: int) -> None:
        assert self._nursery is not None
        serving = self._serving[partition] = _Serving(self, partition)
        self._nursery.start_soon(serving.run)

    def ended(self, partition: int) -> None:
        """A serving has ended."""
        self._serving.pop(partition, None)
        self.look()

    def is_alive(self, id: str) -> bool:
        """Has this node's heart been heard lately?"""
        return id in self.nodes


class _Serving:
    """One partition on its way through this node: follow, open, serve, close; again if need be."""

    def __init__(self, node: Node, partition: int) -> None:
        self.node, self.host, self.partition = node, node.host, partition
        self.scope = trio.CancelScope()
        self._successor: str | None = None
        self._opening = trio.CancelScope()
        self._attempt = 0

    def close(self, successor: str) -> None:
        """Hand over."""
        self._successor = successor
        self._opening.cancel()
        if (tenure := self.node.tenures.get(self.partition)) is not None:
            tenure.close(successor)

    async def run(self) -> None:
        try:
            with self.scope:
                await self._serve()
        finally:
            self.node.tenures.pop(self.partition, None)
            self.node.ended(self.partition)

    async def _serve(self) -> None:
        host, node = self.host, self.node
        journal = Journal(
            host.grid,
            self.partition,
            formation=host.formation,
            settings=host.settings,
            new_id=host.new_id,
            random=host.random,
            report=host.report,
        )
        try:
            with self._opening:
                await self._await_turn(journal)
            if self._successor is not None:
                return
            await journal.open(host.node, host.now_ms)
            node.lost.pop(self.partition, None)
            tenure = node.tenures[self.partition] = make_tenure(host, journal)
            if self._successor is not None:
                tenure.close(self._successor)
            await tenure.run(crashed=not journal.closed_before)
        except TenureOver:
            await trio.sleep(host.random.random() * host.settings.retry_pause_max_s)
        except Final as error:
            if self.partition not in node.lost:
                host.report(str(error))
            node.lost[self.partition] = str(error)
            await trio.sleep(host.settings.lost_after_s)

    async def _await_turn(self, journal: Journal) -> None:
        """Until the last owner has closed, is gone, or has had time enough."""
        host = self.host
        deadline_s = trio.current_time() + host.settings.handoff_deadline_s
        await journal.read()
        progress = journal.slot, trio.current_time()
        while True:
            await journal.follow()
            if journal.slot != progress[0]:
                progress = journal.slot, trio.current_time()
            elif trio.current_time() - progress[1] >= STILL_S:
                await journal.keep_up()
                progress = -1, trio.current_time()
            state = journal.state
            if state.closed_for is not None and state.closed_for in ("", host.node):
                return
            if state.epoch == 0 or state.owner == host.node or not self.node.is_alive(state.owner):
                return
            if trio.current_time() >= deadline_s:
                return
            await trio.sleep(host.settings.handoff_poll_s)


make_tenure: Callable[[Host, Journal], Tenure] = Tenure
