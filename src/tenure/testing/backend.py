"""What a testing cluster does on some kind of grid; and how one is set up."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Literal

from tenure.application import Source
from tenure.clients.trio_thread import Opening
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.jobtype import registry as process_registry
from tenure.scheduler.settings import ClientSettings, NodeSettings
from tenure.testing.fake_runs import FakeRun

__all__ = ["ActivitiesName", "Backend", "GridName", "Plan", "calling_file", "known_to_clients", "pick"]

GridName = Literal["memory", "hazelcast"]
ActivitiesName = Literal["fake", "real"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a testing cluster is to be."""

    nodes: int
    members: int
    grid: GridName
    app: Source
    partitions: int | None
    backups: int
    settings: NodeSettings
    seed: int
    start: datetime | None
    faults: Any
    activities: ActivitiesName | None = None
    heap_mib: int | None = None
    """Of each member; by default that of `tenure member`."""

    def __post_init__(self) -> None:
        if self.grid not in ("memory", "hazelcast"):
            raise Mistake(f"grid is 'memory' or 'hazelcast', not {self.grid!r}")
        if self.activities not in (None, "fake", "real"):
            raise Mistake(f"activities are 'fake' or 'real', not {self.activities!r}")
        if self.activities == "fake" and self.grid != "memory":
            raise Mistake('fake activities are for grid="memory": nodes that are processes launch processes')
        if self.nodes < 0 or self.members < 1 or self.backups < 0:
            raise Mistake("a cluster has no negative number of nodes or backups, and at least one member")
        if self.partitions is not None and self.partitions < 1:
            raise Mistake(f"a cluster has at least one partition, not {self.partitions}")
        if self.start is not None and self.start.tzinfo is None:
            raise Mistake(f"start {self.start!r} has no time zone; say datetime(…, tzinfo=UTC)")

    def opening(self) -> "Opening[Backend]":
        """How to open it."""
        if self.grid == "hazelcast":
            from tenure.testing.hazelcast_cluster import open_hazelcast

            return lambda: open_hazelcast(self)
        from tenure.testing.memory_cluster import open_memory

        return lambda: open_memory(self)


class Backend(ABC):
    """A running cluster. Nodes and members have numbers from 0 that are never used again."""

    now_ms: Callable[[], int]
    """What the clocks of its nodes show."""

    @property
    def address(self) -> str:
        """As `--cluster` takes it."""
        raise Mistake('a cluster with grid="memory" lives in this process: nobody else can reach it')

    async def tell_address(self) -> str:
        """The same, for those who are in another thread."""
        return self.address

    @abstractmethod
    def open_client(
        self, registry: Registry | None, settings: ClientSettings | None
    ) -> AbstractAsyncContextManager[GridClient]:
        """A client with a connection of its own."""

    async def advance(self, seconds: float) -> None:
        """Let the clocks of its nodes go on."""
        raise Mistake('clocks can be advanced only with grid="memory": real ones are what they are')

    async def now(self) -> datetime:
        """What the clocks of its nodes show."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    @abstractmethod
    async def nodes(self) -> list[int]:
        """The nodes that live, paused ones too."""

    @abstractmethod
    async def members(self) -> list[int]:
        """The members that live."""

    @abstractmethod
    async def add_node(self, app: Source = None, python: str | PathLike[str] | None = None) -> int:
        """A node more; returns when it serves its share."""

    @abstractmethod
    async def kill(self, node: int) -> None:
        """As kill -9."""

    @abstractmethod
    async def pause(self, node: int) -> None:
        """As SIGSTOP."""

    @abstractmethod
    async def unpause(self, node: int) -> None:
        """As SIGCONT."""

    @abstractmethod
    async def drain(self, node: int) -> None:
        """Let it hand over and go; returns when it has ended."""

    async def launched(self) -> FakeRun:
        """The next activity that is at work."""
        raise Mistake('only fake activities are told by tests what to do: grid="memory", activities="fake"')

    @abstractmethod
    async def add_member(self) -> int:
        """A member more; returns when it has joined."""

    @abstractmethod
    async def kill_member(self, member: int) -> None:
        """As kill -9."""

    @abstractmethod
    async def remove_member(self, member: int) -> None:
        """Let it hand over its data and go; returns when it has ended."""


def pick(things: dict[int, Any], number: int, what: str) -> Any:
    """The living thing of this number."""
    if number not in things:
        living = ", ".join(map(str, sorted(things))) or "none"
        raise Mistake(f"no {what} {number!r} lives; there are: {living}")
    return things[number]


def known_to_clients(app: Source, nodes: Registry) -> Registry:
    """The job types of the nodes' application, for use here: this process's own class of a name comes first."""
    if isinstance(app, Registry):
        return app
    return Registry(*({type.name: type for type in nodes} | {type.name: type for type in process_registry}).values())


def calling_file() -> str:
    """The file of the first caller that is not Tenure's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("tenure."):
        frame = frame.f_back
    return frame.f_code.co_filename
