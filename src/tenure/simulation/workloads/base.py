"""What a workload is: it prepares jobs, drives them from clients, and judges what it finds in the end."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, TenureError
from tenure.scheduler.jobtype import JobType
from tenure.simulation.histories import Findings
from tenure.simulation.plan import Calls
from tenure.simulation.stage import World

if TYPE_CHECKING:
    from tenure.simulation.chaos import Chaos

__all__ = ["Workload", "states"]

Drive = Callable[[GridClient], Awaitable[None]]
Strike = Callable[["Chaos"], Awaitable[None]]


class Workload(ABC):
    """Knows jobs through the public face of the engine only."""

    types: ClassVar[tuple[JobType, ...]] = ()
    """The job types that it needs on every node."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of nodes and clients without which it would say nothing."""
    calls: ClassVar[Calls | None] = None
    """How long the calls of its world take; None: as the seed has drawn."""
    alone: ClassVar[bool] = False
    """No other workload can be judged beside it."""
    strikes: ClassVar[tuple[Strike, ...]] = ()
    """What goes wrong beside all else, as it makes this workload's next step matter."""

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
