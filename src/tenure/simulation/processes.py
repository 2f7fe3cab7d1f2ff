"""Processes of a simulated world: nodes and clients that are started, killed, frozen, thawed and drained."""

from collections.abc import Awaitable, Callable
from random import Random

import trio

from tenure.listeners import listening
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find, find_or_form
from tenure.scheduler.errors import UnreadableFormat
from tenure.scheduler.formats import FIRST, Formats
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.host import Host
from tenure.scheduler.node import Node
from tenure.simulation.formats import NEWER
from tenure.simulation.stage import World
from tenure.simulation.watched import WatchedGrid

__all__ = ["ClientProcess", "NodeProcess", "Process", "run_client", "start_node"]

Drive = Callable[[GridClient], Awaitable[None]]


class Process:
    """What nodes and clients have in common: a name, a connection, a clock, and an end."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.connect()
        self.scope = trio.CancelScope()
        self.offset_ms = 0
        self.frozen = self.ended = False

    def connect(self) -> None:
        """A connection of its own."""
        grid = self.world.cluster.connect()
        assert isinstance(grid, WatchedGrid)
        self.grid = grid
        grid.owner = self.name

    def now_ms(self) -> int:
        """This process's wall clock."""
        return self.world.wall_ms(self.offset_ms)

    def kill(self) -> None:
        """As SIGKILL."""
        if not self.ended:
            self.ended = True
            self.world.trace.tell(self.name, "is killed")
            self.grid.kill()
            self.scope.cancel()

    def freeze(self) -> None:
        """As SIGSTOP: it learns nothing and says nothing until it is thawed."""
        if not self.ended and not self.frozen:
            self.frozen = True
            self.world.trace.tell(self.name, "is frozen")
            self.grid.freeze()

    def thaw(self) -> None:
        """As SIGCONT: it goes on, believing whatever it believed."""
        if not self.ended and self.frozen:
            self.frozen = False
            self.world.trace.tell(self.name, "is thawed")
            self.grid.thaw()


class NodeProcess(Process):
    """A process that runs jobs."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.node: Node | None = None
        self.drained = False

    async def run(self) -> None:
        """From start to kill, or to the end of a drain."""
        world = self.world
        if world.has_ended():
            self.ended = True  # it finds that there is no cluster for it
            self.grid.close()
            return
        world.clocks[self.name] = self.now_ms
        try:
            with self.scope:
                await self._find()
                self.node = Node(self._host(), listening, name=self.name)
                await self.node.run()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - `blame` judges it, and ends the run
            if self._is_outdated(error):
                self.ended = True
            else:
                world.blame(self.name, error)
        if not self.ended and not self.drained and not world.has_ended():
            world.violate(f"{self.name} has ended, and nobody asked it to")
        self.ended = True
        world.clocks.pop(self.name, None)
        self.grid.close()

    def _is_outdated(self, error: BaseException) -> bool:
        """Has it left because the cluster writes by now what its version can't read?"""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self._is_outdated, error.exceptions))
        older = self.world.reads[self.name] == (FIRST,)
        return older and self.world.is_newer_only and isinstance(error, UnreadableFormat)

    def _host(self) -> Host:
        world = self.world
        older = world.starts_older and not world.is_newer_only
        world.reads[self.name] = (FIRST,) if older else (FIRST, NEWER.number)
        return Host(
            self.grid,
            self.name,
            world.registry,
            self.now_ms,
            self.formation,
            self.incarnation,
            settings=world.plan.settings,
            random=Random(f"{world.seed} {self.name}"),
            report=lambda text: world.trace.tell(self.name, f"reports: {text}"),
            tell=lambda text: None,
            log_failure=lambda text, traceback: None,
            log_error=lambda text, error: world.blame(self.name, error),
            formats=Formats(world.reads[self.name]),
            launchers=world.machines[len(world.clocks) % len(world.machines)],
        )

    async def _find(self) -> None:
        """The cluster; where a snapshot may have been restored, as it is now."""
        self.formation, self.incarnation = self.world.formation, self.world.incarnation
        while self.world.restoring.is_set():
            # As a process does that is started: it waits for the cluster to be formed.
            try:
                found = await find(self.grid)
                if found is not None and found.formed:
                    self.formation, self.incarnation = found.formation, found.incarnation
                    return
            except GridError:
                pass
            await trio.sleep(0.2)

    async def drain(self) -> None:
        """Ask it to hand over everything and end."""
        if self.node is not None and not self.ended:
            self.drained = True
            self.world.trace.tell(self.name, "drains")
            await self.node.drain()


class ClientProcess(Process):
    """A process that publishes and asks."""

    async def run(self, drive: Drive) -> None:
        """Until `drive` has done its work, or the process is killed."""
        world = self.world
        sender = bytes((1 + world.random.randrange(255),)) + world.random.randbytes(7)
        with self.scope:
            async with open_client(
                self.grid,
                settings=world.plan.client_settings,
                registry=world.registry,
                now_ms=self.now_ms,
                sender=sender,
            ) as client:
                await drive(client)
        self.ended = True
        self.grid.close()


async def run_client(world: World, drive: Drive, *, register: Callable[[ClientProcess], None] | None = None) -> None:
    """Run `drive` in a client process; when that is killed, in a new one, which goes on."""
    while True:
        process = ClientProcess(world, world.name("client"))
        if register is not None:
            register(process)
        try:
            await process.run(drive)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - `blame` judges it, and ends the run
            world.blame(process.name, error)
            return
        if not process.scope.cancelled_caught:
            return
        await trio.sleep(world.random.uniform(0.05, 1.0))


def start_node(world: World) -> NodeProcess:
    """A new node, under a name that was never used."""
    process = NodeProcess(world, world.name("node"))
    world.trace.tell(process.name, f"starts, paired with {process.grid.paired}")
    world.nursery.start_soon(process.run)
    return process


async def form(world: World) -> None:
    """Create the heads, and learn what nodes need to know."""
    process = Process(world, "former")
    cluster = await find_or_form(process.grid, f"formation {world.seed}")
    world.formation, world.incarnation = cluster.formation, cluster.incarnation
    process.grid.close()
