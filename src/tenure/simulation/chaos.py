"""What goes wrong in one run, and when: storms with calm between them, and in the end everything heals."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.simulation import scripts
from tenure.simulation.processes import ClientProcess, NodeProcess, Process, start_node
from tenure.simulation.stage import World
from tenure.simulation.watched import Ambush, Call

__all__ = ["Chaos"]

NODES_MAX = 5
KINDS_MAX = 7
RATES = {
    Fault.APPLIED_UNKNOWN: 0.1,
    Fault.DROPPED_UNKNOWN: 0.1,
    Fault.LATE_UNKNOWN: 0.1,
    Fault.WEAK: 0.15,
    Fault.REFUSED: 0.1,
    Fault.STALE_TAKEN: 0.1,
    Fault.DISCARD_LOST: 0.5,
    Fault.READ_FAILED: 0.1,
    Fault.ABSENT: 0.15,
    Fault.STALE: 0.1,
    Fault.SLOW: 0.05,
    Fault.BLOCKED: 0.02,
    Fault.EVENT_LOST: 0.3,
    Fault.EVENT_DELAYED: 0.1,
    Fault.EVENT_DOUBLED: 0.1,
    Fault.EVENT_REORDERED: 0.1,
    Fault.OWNERSHIP_HINT_LOST: 0.5,
}
"""The highest rates of a storm. Scans that come back short are not among them: the port forbids them."""
NODE_MAPS = (None, Map.JOURNAL, Map.JOURNAL, Map.INBOX, Map.HEADS, Map.IMAGES, Map.JOBS)
CLIENT_MAPS = (None, Map.INBOX, Map.INBOX, Map.HEADS, Map.JOBS)
"""Where processes are struck: at any call, or at one that writes to this map."""


class Chaos:
    """Holds the processes of a run, and strikes them."""

    def __init__(self, world: World) -> None:
        self.world, self.cluster = world, world.cluster
        self.dice = world.dice("chaos")
        self.nodes: list[NodeProcess] = []
        self.clients: list[ClientProcess] = []
        self._scope = trio.CancelScope()
        self._draw_sizes()

    def _draw_sizes(self) -> None:
        faults, dice = self.world.faults, self.dice
        faults.detection_s = dice.choice(((0.0, 0.0), (0.1, 1.5)))
        faults.migration_s = dice.choice(((0.0, 0.0), (0.0, 2.0)))
        faults.migration_pause_s = dice.choice(((0.0, 0.0), (0.0, 0.5)))
        faults.ownership_lag_s = dice.choice(((0.0, 0.0), (0.0, 1.0)))
        faults.relisten_s = dice.choice(((0.0, 0.0), (0.0, 1.0)))
        faults.weak_s = dice.choice((None, (0.5, 8.0)))
        faults.late_s_max = dice.choice((0.5, 5.0))
        faults.event_delay_s = (0.05, 2.0)

    # -- processes --------------------------------------------------------------------------------

    def start_node(self) -> NodeProcess:
        """One more node."""
        self.nodes.append(start_node(self.world))
        return self.nodes[-1]

    def living(self) -> list[NodeProcess]:
        """Nodes that were neither killed nor drained."""
        return [node for node in self.nodes if not node.ended and not node.drained]

    def awake(self) -> list[NodeProcess]:
        """Nodes that are not frozen either."""
        return [node for node in self.living() if not node.frozen]

    def busy_clients(self) -> list[ClientProcess]:
        """Clients that are at work."""
        return [client for client in self.clients if not client.ended]

    def replace_all(self) -> None:
        """All nodes die at once; a new one knows only what the grid holds."""
        for node in self.nodes:
            node.kill()
        self.start_node()

    # -- the schedule -----------------------------------------------------------------------------

    async def run(self, more: Sequence["Strike"] = ()) -> None:
        """Break things until the work is over; `more`: what belongs to the workloads of this seed."""
        world, dice = self.world, self.dice
        end_s = trio.current_time() + world.plan.work_s
        # Each seed has its own few kinds of faults: their mixtures differ more than if all had all.
        kinds = dice.sample(STRIKES, dice.randint(2, KINDS_MAX))
        await trio.sleep(dice.uniform(1.5, 3.5))
        with self._scope:
            async with trio.open_nursery() as nursery:
                # Scripts take their time: one that begins late comes to nothing.
                for script in [kind for kind in kinds if kind in SCRIPTS][:1]:
                    nursery.start_soon(script, self)
                for strike in more:
                    nursery.start_soon(strike, self)
                while trio.current_time() < end_s:
                    nursery.start_soon(dice.choice(kinds), self)
                    await trio.sleep(dice.choice((0.0, dice.uniform(0.2, 2.0), dice.uniform(2.0, 6.0))))
                nursery.cancel_scope.deadline = trio.current_time() + 1.0

    async def heal(self) -> None:
        """The end of all faults."""
        world = self.world
        world.cluster.calm()
        for process in (*self.nodes, *self.clients):
            process.grid.ambush = None
            process.thaw()
        if not self.living():
            self.start_node()
        world.trace.tell("chaos", "everything heals")
        await trio.lowlevel.checkpoint()

    def victim(self) -> NodeProcess | None:
        """A node to strike."""
        awake = self.awake()
        return self.dice.choice(awake) if awake else None

    async def at_some_await(self, process: Process, strike: Callable[[], None]) -> None:
        """Strike now, or at one of the process's next awaits, before or after a call's effect."""
        dice = self.dice
        if dice.random() < 0.3:
            strike()
            return
        maps = NODE_MAPS if isinstance(process, NodeProcess) else CLIENT_MAPS
        map, passing = dice.choice(maps), dice.choice((0, 0, 1, 2, 5, 20))

        def fits(call: Call) -> bool:
            nonlocal passing
            if map is not None and (call.map is not map or not call.writes):
                return False
            passing -= 1
            return passing < 0

        struck = trio.Event()

        def struck_there() -> None:
            strike()
            struck.set()

        process.grid.ambush = Ambush(fits, dice.random() < 0.5, struck_there)
        with trio.move_on_after(3.0):
            await struck.wait()
        process.grid.ambush = None

    # -- strikes at processes ---------------------------------------------------------------------

    async def kill_node(self) -> None:
        """A node dies; another is started, some time."""
        node = self.victim()
        if node is None:
            return

        def strike() -> None:
            self.world.struck("node-killed", node.name)
            node.kill()

        await self.at_some_await(node, strike)
        await trio.sleep(self.dice.uniform(0.0, 4.0))
        if len(self.living()) < self.world.plan.nodes:
            self.start_node()

    async def freeze_node(self) -> None:
        """A node stands still, long enough for others to take over or not; then it goes on."""
        node = self.victim()
        if node is None:
            return

        def strike() -> None:
            self.world.struck("node-frozen", node.name)
            node.freeze()

        await self.at_some_await(node, strike)
        try:
            await trio.sleep(self.dice.uniform(0.1, 9.0))
        finally:
            if node.frozen:
                self.world.struck("node-thawed", node.name, 4.0)
            node.thaw()

    async def drain_node(self) -> None:
        """A node hands over and ends."""
        node = self.victim()
        if node is not None and len(self.awake()) > 1:
            self.world.struck("node-drained", node.name, 4.0)
            self.world.nursery.start_soon(node.drain)

    async def add_node(self) -> None:
        """One more."""
        if len(self.living()) < NODES_MAX:
            self.world.struck("node-added", self.start_node().name, 4.0)

    async def cut_node(self) -> None:
        """A node's network is down for a while."""
        node = self.victim()
        if node is None:
            return
        node.grid.cut()
        try:
            await trio.sleep(self.dice.uniform(0.2, 6.0))
        finally:
            if not node.ended:
                self.world.struck("node-mended", node.name, 4.0)
                node.grid.mend()

    async def kill_client(self) -> None:
        """A publisher dies in the middle of what it does."""
        if clients := self.busy_clients():
            client = self.dice.choice(clients)
            self.world.struck("client-killed", client.name, 1.0)
            client.kill()

    async def freeze_client(self) -> None:
        """A publisher stands still, and learns much later what came of what it did."""
        clients = [client for client in self.busy_clients() if not client.frozen]
        if not clients:
            return
        client = self.dice.choice(clients)

        def strike() -> None:
            self.world.struck("client-frozen", client.name)
            client.freeze()

        await self.at_some_await(client, strike)
        try:
            await trio.sleep(self.dice.uniform(0.1, 9.0))
        finally:
            if client.frozen:
                self.world.struck("client-thawed", client.name, 1.0)
            client.thaw()

    async def jump_clock(self) -> None:
        """A process's wall clock jumps."""
        process = self.dice.choice([*self.awake(), *self.busy_clients(), None])
        if process is not None:
            by_ms = self.dice.choice((-1, 1)) * self.dice.choice((50, 3_000, 70_000, 200_000))
            self.world.struck("clock-jumped", f"{process.name} by {by_ms} ms", 0.5)
            process.offset_ms += by_ms

    # -- strikes at the grid ----------------------------------------------------------------------

    async def storm(self) -> None:
        """Calls and events go wrong for a while."""
        dice, faults = self.dice, self.world.faults
        rates = {fault: dice.random() * most for fault, most in RATES.items() if dice.random() < 0.35}
        faults.set_rates(rates)
        self.world.trace.tell("chaos", f"a storm of {', '.join(fault.value for fault in rates)}")
        try:
            await trio.sleep(dice.uniform(1.0, 5.0))
        finally:
            faults.set_rates({})

    async def no_events(self) -> None:
        """Not one event comes for a while."""
        self.world.struck("all-events-lost", "", 4.0)
        self.world.faults.drop_all_events = True
        try:
            await trio.sleep(self.dice.uniform(1.0, 5.0))
        finally:
            self.world.faults.drop_all_events = False

    def spare_member(self) -> str | None:
        """A member whose loss the backups make good, or None."""
        members = self.cluster.members
        least = max(2, self.world.plan.members // 2 + 2 if self.world.plan.members >= 3 else 2)
        if not self.cluster.is_safe() or len(members) < least:
            return None
        return self.dice.choice(members)

    async def kill_member(self) -> None:
        """A member dies; another joins, some time."""
        member = self.spare_member()
        if member is not None:
            self.cluster.kill_member(member)
            await trio.sleep(self.dice.uniform(0.5, 3.0))
            self.cluster.add_member()

    async def replace_member(self) -> None:
        """A member joins, and one leaves in good order."""
        member = self.spare_member()
        if member is not None:
            self.cluster.add_member()
            await trio.sleep(self.dice.uniform(0.1, 3.0))
            if self.cluster.is_safe() and member in self.cluster.members:
                self.cluster.leave_member(member)

    async def pause_member(self) -> None:
        """A member stands still for a while: its partitions answer nothing."""
        member = self.spare_member()
        if member is None:
            return
        self.cluster.pause_member(member)
        try:
            await trio.sleep(self.dice.uniform(0.2, 4.0))
        finally:
            if member in self.cluster.members:
                self.cluster.unpause_member(member)

    async def migrate(self) -> None:
        """Partitions move."""
        if self.cluster.is_safe():
            for _ in range(self.dice.randint(1, 3)):
                partition = self.dice.randrange(self.cluster.partition_count)
                self.cluster.migrate(partition, self.dice.choice(self.cluster.members))
                await trio.sleep(self.dice.choice((0.0, 0.3)))

    async def split(self) -> None:
        """One member loses sight of the others, and they of it; the minority refuses."""
        members = self.cluster.members
        if self.world.plan.members < 3 or len(members) < self.world.plan.members or not self.cluster.is_safe():
            return  # without split-brain protection, both sides would go on: acknowledged writes are lost then
        lone = self.dice.choice(members)
        self.cluster.split([[member for member in members if member != lone], [lone]])
        try:
            await trio.sleep(self.dice.uniform(0.5, 5.0))
        finally:
            self.cluster.heal()


Strike = Callable[[Chaos], Awaitable[None]]
SCRIPTS: list[Strike] = [
    scripts.weak_tail,
    scripts.lone_writes,
    scripts.stalled_reader,
    scripts.stalled_reader,
    scripts.stalled_opening,
    scripts.sleeping_owner,
    scripts.undelivered,
]
STRIKES: list[Strike] = [
    Chaos.kill_node,
    Chaos.freeze_node,
    Chaos.freeze_node,
    Chaos.drain_node,
    Chaos.add_node,
    Chaos.cut_node,
    Chaos.kill_client,
    Chaos.freeze_client,
    Chaos.jump_clock,
    Chaos.storm,
    Chaos.storm,
    Chaos.no_events,
    Chaos.kill_member,
    Chaos.replace_member,
    Chaos.pause_member,
    Chaos.migrate,
    Chaos.split,
    *SCRIPTS,
]
