"""A node: it says that it is there, sees who else is, follows the assignment, and serves its partitions.

beat ──► who is there? ──► assignment (one value, compare-and-set) ──► open what is ours, close what is not
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import trio

from tenure.scheduler.assignment import ASSIGNMENT, VERSION_MAX, Assignment, NodeInfo, assign, runs_all
from tenure.scheduler.bulkhead import Bulkhead, cause_of
from tenure.scheduler.chronicle import Chronicle
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.errors import TenureError, Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.handoffs import Handoffs
from tenure.scheduler.heard import Heard
from tenure.scheduler.host import Host
from tenure.scheduler.lookout import Lookout, Neighbours
from tenure.scheduler.orders import Order, leave_key, order_key
from tenure.scheduler.presence import Presence
from tenure.scheduler.seal import SealWatch, lift
from tenure.scheduler.serving import Serving
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import decode, encode

__all__ = ["Listening", "Node"]

LEADER_PATIENCE_BEATS = 8
CUTS_AT_ONCE, CUTS_PAUSE_S = 8, 0.02


class Listening(Protocol):
    """What brings hints to a node for as long as it is open (see `tenure.listeners`)."""

    def __call__(self, node: "Node") -> AbstractAsyncContextManager[None]: ...


class Node:
    """One Tenure process (or one of several in a simulation)."""

    def __init__(
        self,
        host: Host,
        listening: Listening,
        *,
        name: str = "",
        pid: int = 0,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.host, self.settings, self.grid = host, host.settings, host.grid
        self.tenures: dict[int, Tenure] = {}
        """The partitions that are open here."""
        self.heard: dict[int, Heard] = {}
        """What comes to partitions that are being opened."""
        self.lost: dict[int, str] = {}
        """Partitions that should be ours, and can't be: the reason."""
        self.assignment = Assignment(0, ())
        self.nodes: dict[str, NodeInfo] = {}
        """The live nodes, as this one sees them."""
        self.draining = False
        """It hands everything over, and takes nothing."""
        self.leaving = False
        """It ends when that is done."""
        self.holds = False
        """All nodes are to go: autoscalers change nothing."""
        self.told_to_leave = trio.Event()
        """Somebody wants this node to go (see `tenure.scheduler.orders`)."""
        self.chronicle = Chronicle(host.node, lambda text: host.tell(text))
        self.bulkhead = Bulkhead(host.now_ms, host.log_error)
        self.refused: UnreadableFormat | None = None
        """Why this node can't stay."""
        self.presence = Presence(self, name, pid, neighbours)
        self._lookout = Lookout(host, neighbours)
        self._seal_watch = SealWatch()
        self._listening = listening
        self.handoffs = Handoffs(self)
        self._serving: dict[int, Serving] = {}
        host.live_nodes = lambda: tuple(self.nodes.values())
        host.is_shut_down = lambda: self.holds and self.leaving
        self._disagreed = 0
        self._said = ""
        """What was reported last of what is damaged."""
        self._published = 0
        self._overruled_s = -math.inf
        self._nursery: trio.Nursery | None = None
        self._look = trio.Event()
        self._drained = trio.Event()
        self._heard: frozenset[str] = frozenset()
        self._table: int | None = None
        """The version of the partition table that was seen last,"""
        self._moved_s = -math.inf
        """and when it changed."""
        self._cluster: Cluster | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained; started once others can see it. Cancelling is a crash: others take over.

        Raises `UnreadableFormat`, after all was handed over, when the cluster declares a format that this node can't
        read.
        """
        async with self._listening(self), trio.open_nursery() as nursery:
            self._nursery = nursery
            self.start(self._keep_on, "letting openings go first", self.host.precedence.run)
            await nursery.start(self.presence.run)
            task_status.started()
            await self._follow()
            nursery.cancel_scope.cancel()
        await self._take_leave()
        if self.refused is not None:
            raise self.refused

    async def drain(self) -> None:
        """Close every partition in favour of others, then end; returns when `run` is about to."""
        self.draining = self.leaving = True
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

    async def _take_leave(self) -> None:
        # Without it the others would wait for our heart to stop; a hint, like all of this.
        try:
            await self.presence.stop()
            if self.told_to_leave.is_set():
                for key in (order_key(self.host.node), leave_key(self.host.node)):
                    await self.grid.delete(Map.NODES, 0, key)
        except GridError:
            pass

    async def _see(self) -> None:
        seen = await self._lookout.look()
        self.chronicle.answered()
        self.chronicle.saw_nodes(seen.live)
        self.chronicle.saw_members(self.grid.ownership().members)
        self.holds = seen.holds
        if seen.order is not None:
            self._heed(seen.order)
        if seen.request is not None and self.host.snapshots.hear(seen.request):
            self.start(self._hear_of_snapshot)
        if seen.cluster is not None:
            self._cluster = seen.cluster
        self.nodes = seen.live | {self.host.node: self.presence.info()}
        if not self.host.has_clock_of_all:
            others = (info for id, info in self.nodes.items() if id != self.host.node)
            self.host.clocks.compare(info.clock_ms for info in others if info.clock_ms)
        for partition in self.host.hangs.see(seen.hangs, trio.current_time()):
            if (tenure := self.tenures.get(partition)) is not None:
                tenure.suspicion.heard()
        for partition in self.host.hangs.partitions():
            if (tenure := self.tenures.get(partition)) is not None:
                tenure.suspicion.tidy()
        self._heed_format(seen.cluster)
        await self._lookout.forget(seen.silent)
        if seen.cluster is not None:
            await self._heed_seal(seen.cluster, seen.holds)

    def _heed(self, order: bytes) -> None:
        try:
            found = decode(order, Order)
        except TenureError as error:
            self._say_once(f"node {self.host.node} was told something that it does not understand: {error}")
            return
        if found.leave and not self.told_to_leave.is_set():
            self.leaving = True
            self.told_to_leave.set()
        self.draining = self.leaving or found.drain

    def _heed_format(self, cluster: Cluster | None) -> None:
        """Write what the cluster declares from now on; a node that can't read that has no business here."""
        formats = self.host.formats
        readers: dict[int, list[str]] = {}
        for id, info in sorted(self.nodes.items()):
            for number in info.reads:
                readers.setdefault(number, []).append(id)
        formats.readers = readers
        if cluster is not None:
            try:
                formats.declare(cluster.format)
            except UnreadableFormat as error:
                self.refused = error
                self.draining = self.leaving = True

    async def _heed_seal(self, cluster: Cluster, holds: bool) -> None:
        """A cluster that was shut down goes on where its snapshot is restored, also if nobody has told us to leave. Is
        who sealed it gone without a word, clients go on."""
        if cluster.ended and not self.leaving:
            self.host.report(f"this cluster was shut down with snapshot {cluster.ended}: this node leaves")
            self.draining = self.leaving = True
            self.told_to_leave.set()
        if self._seal_watch.abandoned(cluster, holds, trio.current_time()):
            self.host.report("a shutdown with a snapshot was not gone on with: what clients publish is let in again")
            await lift(self.grid, cluster.sealed)

    def _belongs(self) -> bool:
        """May partitions be open? Not while a snapshot is being restored; then we belong to what came of it."""
        found, host = self._cluster, self.host
        if found is None or not (found.restoring or found.replaces):
            return True
        if found.restoring or found.formation != host.formation:
            self.drop()
        if found.restoring or (self._serving and found.formation != host.formation):
            return False
        if found.formation != host.formation:
            host.report(f"a snapshot was restored: this node goes on with cluster {found.formation}")
            host.formation, host.incarnation = found.formation, found.incarnation
            self.lost.clear()
        return True

    async def _hear_of_snapshot(self) -> None:
        # Not all at once: turns would wait for all of them. Those that are met by a mark don't wait.
        for n, partition in enumerate(list(self.tenures), 1):
            if (tenure := self.tenures.get(partition)) is not None:
                tenure.cutting.hear()
            if n % CUTS_AT_ONCE == 0:
                await trio.sleep(CUTS_PAUSE_S)

    async def _follow(self) -> None:
        while not (self.leaving and not self._serving and self._is_handed_over()):
            self._look = trio.Event()
            try:
                try:
                    await self._see()
                    await self._settle_assignment()
                except GridError as error:
                    self.chronicle.unanswered(str(error))
                if self._belongs():
                    self._apply()
                    self._mind_strange_jobs()
                self.chronicle.tell_taken()
            except Exception as error:  # noqa: BLE001  # one odd entry must not end all nodes
                with trio.move_on_after(self.bulkhead.met("a look at the cluster", error)):
                    await self._look.wait()
            await self._rest()
        self._drained.set()

    async def _rest(self) -> None:
        """Until the next beat, or until there is something to look at."""
        due_s = trio.current_time() + self.settings.heartbeat_s
        with trio.move_on_at(due_s) as rest:
            await self._look.wait()
        late_s = trio.current_time() - due_s if rest.cancelled_caught else 0.0
        self._lookout.late(late_s)
        self.chronicle.late(late_s)

    def _others(self) -> bool:
        return any(not node.draining for id, node in self.nodes.items() if id != self.host.node)

    def _is_handed_over(self) -> bool:
        return not self._others() or self.host.node not in self.assignment.owners

    async def _settle_assignment(self) -> None:
        stored = await self.grid.get(Map.NODES, 0, ASSIGNMENT)
        found = self._read_assignment(stored) if stored is not None else None
        # It is damaged; or what we follow has gone with the member that alone had it, and others never saw it.
        is_lost = found is None if stored is not None else self.assignment.version > 0
        is_lost |= found is not None and found.version < self.assignment.version
        if found is not None and not is_lost:
            if found.version > self.assignment.version == self._published:
                self._overruled_s = trio.current_time()
            self.assignment = found
        self._watch_data()
        owners = assign(self.assignment.owners, self.grid.ownership(), self.nodes.values())
        if (owners == self.assignment.owners and not is_lost) or not any(owners):
            self._disagreed = 0
            return
        if not is_lost and self._can_wait(owners):
            return
        # One node at a time speaks, so that different views don't fight; if it stays silent, others do.
        self._disagreed += 1
        speaker = min((id for id, node in self.nodes.items() if not node.draining), default=self.host.node)
        if self.host.node != speaker and not self.draining and self._disagreed < LEADER_PATIENCE_BEATS:
            return
        if trio.current_time() < self._overruled_s + self.settings.heartbeat_s:
            return  # two that see different things don't answer each other at the speed of the grid
        await self._publish(stored, Assignment(self.assignment.version + 1, owners))

    def _read_assignment(self, stored: bytes) -> Assignment | None:
        """None: it is damaged, and computed again. (All versions write it in the first format.)"""
        try:
            found = decode(stored, Assignment)
        except (Undecodable, UnreadableFormat) as error:
            self._say_once(f"the assignment of partitions to nodes is damaged, and is computed again: {error}")
            return None
        if len(found.owners) in (0, self.grid.partition_count) and 0 <= found.version < VERSION_MAX:
            return found
        self._say_once("the assignment of partitions to nodes makes no sense, and is computed again")
        return None

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.host.report(text)

    def _watch_data(self) -> None:
        version = self.grid.ownership().version
        if self._table not in (None, version):
            self._moved_s = trio.current_time()
        self._table = version

    def _can_wait(self, owners: tuple[str, ...]) -> bool:
        """Are these mere moves, to where the data has gone, and does data still move? Handoffs amid that would make it
        slower, and some be undone in a moment."""
        if trio.current_time() >= self._moved_s + self.settings.still_s:
            return False
        staying = {id for id, node in self.nodes.items() if not node.draining}
        changes = zip(self.assignment.owners, owners, strict=False)
        return bool(self.assignment.owners) and all(old in staying for old, new in changes if old != new)

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
            if owner != me and serving is not None:
                self.handoffs.give(serving, owner)
            elif serving is not None:
                self.handoffs.keep(partition)
            elif owner == me and not self.draining:
                self._begin(partition)
        if self.draining and not self._others():
            for serving in list(self._serving.values()):
                serving.close("")

    def _hear(self) -> None:
        """Where members have no node of their own, their partitions' events must come to us all the same."""
        ownership = self.grid.ownership()
        me, served = self.host.node, self._serving  # those, too, that are another's by now, until they are handed over
        members: set[str] = set()
        for partition, (primary, owner) in enumerate(zip(ownership.primaries, self.assignment.owners, strict=False)):
            if primary is not None and primary != ownership.paired and (owner == me or partition in served):
                members.add(primary)
        if members != self._heard:
            self._heard = frozenset(members)
            self.grid.hear(self._heard)

    def _mind_strange_jobs(self) -> None:
        """Partitions with jobs that others can run, and we can't, are theirs."""
        unfit = self.host.unfit
        others = [info for id, info in self.nodes.items() if id != self.host.node and not info.draining]
        for partition, tenure in self.tenures.items():
            strange = tenure.lives.strange
            if strange and partition not in unfit:
                able = [info.id for info in others if partition not in info.unfit and runs_all(info, strange)]
                if able:
                    jobs = ", ".join(f"{type} {version}" for type, version in strange.items())
                    unfit[partition] = f"it has jobs that can't run here ({jobs}); {', '.join(able)} can run them"

    def _begin(self, partition: int) -> None:
        serving = self._serving[partition] = Serving(self, partition)
        self.start(serving.run)

    def start(self, task: Callable[..., Any], *args: Any) -> None:
        """Run for as long as this node, or until it ends by itself."""
        assert self._nursery is not None
        self._nursery.start_soon(self._guarded, task, *args)

    async def _guarded(self, task: Callable[..., Any], *args: Any) -> None:
        name = getattr(task, "__qualname__", repr(task))
        try:
            await task(*args)
        except BaseException as error:  # noqa: BLE001  # what is the process's goes on up
            self.bulkhead.met(name, cause_of(error))

    async def _keep_on(self, what: str, task: Callable[[], Awaitable[Any]]) -> None:
        """What must not end as long as the node lives."""
        while True:
            try:
                await task()
            except Exception as error:  # noqa: BLE001
                await trio.sleep(self.bulkhead.met(what, error))

    def ended(self, partition: int) -> None:
        """A serving has ended."""
        self._serving.pop(partition, None)
        self.look()

    def is_alive(self, id: str) -> bool:
        """Has this node's heart been heard lately?"""
        return id in self.nodes
