"""What goes wrong in one run, and when: storms with calm between them, and in the end everything heals."""

from collections.abc import Callable

import trio

from tenure.scheduler.grid.memory import Fault
from tenure.simulation.processes import ClientProcess, NodeProcess, start_node
from tenure.simulation.stage import World
from tenure.simulation.watched import Ambush

__all__ = ["Chaos"]


class Chaos:
    """Holds the processes of a run, and strikes them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice("chaos")
        self.nodes: list[NodeProcess] = []
        self.clients: list[ClientProcess] = []

    def start_node(self) -> None:
        """One more node."""
        self.nodes.append(start_node(self.world))

    def living(self) -> list[NodeProcess]:
        """Nodes that were neither killed nor drained."""
        return [node for node in self.nodes if not node.ended]

    async def run(self) -> None:
        """Break things until the work is over."""
        world, dice = self.world, self.dice
        end_s = trio.current_time() + world.plan.work_s
        await trio.sleep(dice.uniform(1.0, 3.0))
        while trio.current_time() < end_s:
            node = dice.choice(self.living())
            world.struck("node-killed", node.name)
            node.kill()
            await trio.sleep(dice.uniform(0.5, 4.0))
            self.start_node()
            await trio.sleep(dice.uniform(3.0, 8.0))

    async def heal(self) -> None:
        """The end of all faults."""
        world = self.world
        world.cluster.calm()
        for process in (*self.nodes, *self.clients):
            process.lie_in_wait(None)
            process.thaw()
        if not self.living():
            self.start_node()
        await trio.lowlevel.checkpoint()

    def replace_all(self) -> None:
        """All nodes die at once; new ones know only what the grid holds."""
        for node in self.living():
            node.kill()
        self.start_node()
