"""The adapters that the contract suite runs on. A new one is a class and a line in ADAPTERS, and no test changes.

The suite never assumes an empty grid: an adapter may keep its members from test to test.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from enum import Enum
from itertools import count
from os import urandom

import pytest

from tenure.scheduler.grid.memory import Faults, FaultyCluster, MemoryCluster
from tenure.scheduler.grid.port import Grid

_serials = count()
_run = urandom(4).hex()


class Can(Enum):
    """What not every adapter's cluster can be made to do."""

    SPLIT = "split the network between members"


class Rig(ABC):
    """A running cluster, and what a test may do to it. Members are named by the ids that `Ownership` shows."""

    hint_s: float = 1.0
    """How long a test waits for a hint or a change of ownership that must come while nothing fails."""

    fault_s: float = 5.0
    """How long a test waits for the grid to get over the loss of a member."""

    slack_s: float = 0.1
    """How much later than its deadline a call may end."""

    @abstractmethod
    def connect(self, member: str | None = None) -> AbstractAsyncContextManager[Grid]:
        """A connection, paired with `member` (None: any)."""

    @abstractmethod
    async def members(self) -> list[str]:
        """The ids of the members that live, oldest first."""

    @abstractmethod
    async def add_member(self) -> str:
        """A member more; returns when it has joined."""

    @abstractmethod
    async def kill_member(self, id: str) -> None:
        """As kill -9."""

    @abstractmethod
    async def leave_member(self, id: str) -> None:
        """A graceful leave; returns when it is gone."""

    @abstractmethod
    async def pause_member(self, id: str) -> None:
        """As SIGSTOP."""

    @abstractmethod
    async def unpause_member(self, id: str) -> None:
        """As SIGCONT."""

    async def split(self, groups: Sequence[Sequence[str]]) -> None:
        """Only with `Can.SPLIT`."""
        raise NotImplementedError

    async def heal(self) -> None:
        """Only with `Can.SPLIT`."""
        raise NotImplementedError

    def fresh(self, name: str = "") -> bytes:
        """The beginning of keys that no other test uses."""
        return f"{_run}-{next(_serials)}-{name}".encode()


class Adapter(ABC):
    """Starts clusters of one kind."""

    name: str
    can: frozenset[Can] = frozenset()
    virtual_time = False
    """Whether its clusters live in trio's clock, so that tests need not wait for anything."""

    @abstractmethod
    def open(
        self, *, members: int = 1, backups: int = 1, split_protection: bool = False
    ) -> AbstractAsyncContextManager[Rig]:
        """A cluster whose partitions all have their backups; whatever it holds belongs to other tests."""


class MemoryRig(Rig):
    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster

    @asynccontextmanager
    async def connect(self, member: str | None = None) -> AsyncIterator[Grid]:
        async with aclosing(self.cluster.connect(member=member)) as grid:
            yield grid

    async def members(self) -> list[str]:
        return self.cluster.members

    async def add_member(self) -> str:
        return self.cluster.add_member()

    async def kill_member(self, id: str) -> None:
        self.cluster.kill_member(id)

    async def leave_member(self, id: str) -> None:
        self.cluster.leave_member(id)

    async def pause_member(self, id: str) -> None:
        self.cluster.pause_member(id)

    async def unpause_member(self, id: str) -> None:
        self.cluster.unpause_member(id)

    async def split(self, groups: Sequence[Sequence[str]]) -> None:
        self.cluster.split(groups)

    async def heal(self) -> None:
        self.cluster.heal()


class Memory(Adapter):
    name = "memory"
    can = frozenset({Can.SPLIT})
    virtual_time = True

    @asynccontextmanager
    async def open(self, *, members: int = 1, backups: int = 1, split_protection: bool = False) -> AsyncIterator[Rig]:
        yield MemoryRig(MemoryCluster(members=members, backups=backups, split_protection=split_protection))


class FaultyMemory(Adapter):
    """The grid of the simulations with no call struck: calls take time, deaths are noticed late, data moves later."""

    name = "faulty-memory"
    can = frozenset({Can.SPLIT})
    virtual_time = True

    @asynccontextmanager
    async def open(self, *, members: int = 1, backups: int = 1, split_protection: bool = False) -> AsyncIterator[Rig]:
        faults = Faults()
        faults.detection_s = (0.5, 1.5)
        faults.migration_s = (0.0, 1.0)
        faults.migration_pause_s = (0.0, 0.1)
        faults.ownership_lag_s = (0.0, 0.2)
        cluster = FaultyCluster(faults=faults, members=members, backups=backups, split_protection=split_protection)
        yield MemoryRig(cluster)


ADAPTERS: dict[str, tuple[str, tuple[pytest.MarkDecorator, ...]]] = {
    "memory": ("tests.contract.adapters:Memory", ()),
    "faulty-memory": ("tests.contract.adapters:FaultyMemory", ()),
    "hazelcast": ("tests.contract.hazelcast_adapter:Hazelcast", (pytest.mark.cluster,)),
}
"""Name: where its class is (imported when first used), and the marks of its tests."""


def load(name: str) -> Adapter:
    """The adapter of that name."""
    module, _, cls = ADAPTERS[name][0].partition(":")
    adapter = getattr(importlib.import_module(module), cls)()
    assert isinstance(adapter, Adapter)
    return adapter
