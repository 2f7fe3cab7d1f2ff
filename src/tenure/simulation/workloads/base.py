"""What a workload is: it prepares jobs, drives them from clients, and judges what it finds in the end."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, TenureError
from tenure.scheduler.jobtype import JobType
from tenure.simulation.histories import Findings
from tenure.simulation.stage import World

__all__ = ["Workload", "states"]

Drive = Callable[[GridClient], Awaitable[None]]


class Workload(ABC):
    """Knows jobs through the public face of the engine only."""

    types: ClassVar[tuple[JobType, ...]] = ()
    """The job types that it needs on every node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.dice(type(self).__name__)

    @abstractmethod
    async def prepare(self, client: GridClient) -> None:
        """Make the jobs. Nothing fails yet."""

    @abstractmethod
    def drives(self) -> list[Drive]:
        """What clients do while things go wrong, each in a process of its own. One whose process is killed is
        called again with a new client, and goes on."""

    @abstractmethod
    async def examine(self, client: GridClient) -> Findings:
        """Look at what came of it. Called again and again until nothing is waiting."""

    async def pause(self, least_s: float, most_s: float) -> None:
        """Think for a while."""
        await trio.sleep(round(self.random.uniform(least_s, most_s), 1))


async def states(client: GridClient, ids: Iterable[str], found: Findings) -> dict[str, Any]:
    """The committed states of these jobs; those that don't answer are waiting, those that are gone are wrong."""
    read: dict[str, Any] = {}

    async def ask(id: str) -> None:
        try:
            read[id] = await client.state(id)
        except NotDone as error:
            found.waiting.append(str(error))
        except TenureError as error:
            found.wrong.append(f"state of {id}: {error!r}")

    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(ask, id)
    return read
