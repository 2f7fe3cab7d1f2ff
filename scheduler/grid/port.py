"""The port to the grid: a partitioned map with listeners, and what every adapter owes the core.

Nothing above this module knows which grid it runs on. Keys are *pinned*: an entry is addressed by
(map, partition, key bytes), and the adapter puts it into that very partition.

Every call is async under trio and ends in one of three ways:

* it returns: **done**. For a write: applied, and held by as many backups as the grid was told to keep;
* `Refused`: the grid said no. The write was not applied and never will be;
* `Unknown`: nobody can say. The write may have been applied, may be applied later, or never, and if it
  was, perhaps no backup holds it. A read that failed is `Unknown` too, and harmless.

What every adapter must guarantee:

* single operations are atomic per entry and take effect somewhere between call and return (later, if
  the outcome was `Unknown`);
* a call ends by its deadline (`timeout_s`, or the adapter's own default), with `Unknown` if need be;
* cancelling a call leaves its outcome unknown, and never tears anything down;
* `on_entries` and `on_ownership` are called in the trio thread, synchronously, and must not block.

What no adapter has to guarantee, and the core must not rely on:

* that `get`, `get_all` or `scan` see what is there while members fail: absence proves nothing, only a
  successful `put_if_absent` does;
* that events come once, in order, or at all: they are hints;
* that `ownership()` is fresh, or equal on two nodes at the same time.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

__all__ = [
    "LIFETIMES_S",
    "Closed",
    "Entry",
    "EntryEvent",
    "Grid",
    "GridError",
    "Map",
    "Member",
    "Ownership",
    "OwnershipEvent",
    "Refused",
    "Unknown",
]


class Map(enum.Enum):
    """The maps that Tenure keeps in a grid."""

    JOBS = "jobs"
    INBOX = "inbox"
    JOURNAL = "journal"
    IMAGES = "images"
    HEADS = "heads"
    NODES = "nodes"
    REPLIES = "replies"

    __hash__ = object.__hash__  # members are singletons; the enum's own hash is Python code, on the path of every call


LIFETIMES_S = {Map.REPLIES: 120}
"""How long entries of a map live if nothing else is said; those of other maps live until they are deleted."""


class GridError(Exception):
    """A grid call did not return 'done'."""


class Refused(GridError):
    """The grid refused the call: it was not applied and never will be (split-brain protection, for one)."""


class Unknown(GridError):
    """Nobody can say whether the call was applied; it may also be applied later."""


class Closed(Unknown):
    """This connection is closed for good, so nobody can say, here; no call on it will succeed any more."""


class Entry(NamedTuple):
    """One entry of one partition of a map."""

    key: bytes
    value: bytes


class EntryEvent(NamedTuple):
    """A hint: an entry was added or updated (`value` as it then was) or removed (`value` is None)."""

    map: Map
    partition: int
    key: bytes
    value: bytes | None


class Member(NamedTuple):
    """A member of the grid. `host` tells which members share a machine with a node."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Where it listens, as `host:port`."""
        return f"{self.host}:{self.port}"


class Ownership(NamedTuple):
    """Which member is primary for each partition, as far as this client was told.

    `primaries[p]` is a member's id, or None while nobody is known. `version` grows with each change seen
    by this client; it can't be compared between clients. `paired` is the member that this client is
    paired with (None: it is cut off, or not paired). `leaving` are members that hand over what they have,
    as far as that can be told: no event comes from them any more.
    """

    version: int
    members: tuple[Member, ...]
    primaries: tuple[str | None, ...]
    paired: str | None
    leaving: frozenset[str] = frozenset()

    def is_unheard(self, partition: int) -> bool:
        """Is its primary a member that tells of nothing? Then what comes must be looked for."""
        return bool(self.leaving) and self.primaries[partition] in self.leaving


class OwnershipEvent(enum.Enum):
    """What changed about members and partitions; read `Grid.ownership()` for how things stand."""

    MEMBERS = "members came or went"
    PARTITIONS = "partitions moved"
    PARTITION_LOST = "a partition lost all its copies"
    MERGED = "this part of a split cluster was merged into another: tenures must be dropped"
    DISCONNECTED = "this client is cut off"
    RECONNECTED = "this client is connected again: events in between were lost"
    CLOSED = "this connection is closed for good, though nobody here has closed it: each call raises `Closed`"


class Grid(ABC):
    """A client's (or node's) connection to the grid."""

    partition_count: int
    """Fixed for the life of the cluster."""

    @property
    def address(self) -> str:
        """The cluster as commands take it (`name@host:port,…`), with the members that there are now. Empty: it can be
        reached from this process alone."""
        return ""

    # -- single entries ---------------------------------------------------------------------------

    @abstractmethod
    async def get(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> bytes | None:
        """The value, or None where it reads absent (which proves nothing)."""

    @abstractmethod
    async def get_all(
        self, map: Map, partition: int, keys: Sequence[bytes], *, timeout_s: float | None = None
    ) -> dict[bytes, bytes]:
        """The values of those `keys` that do not read absent. Not a snapshot: each read stands alone."""

    @abstractmethod
    async def set(
        self,
        map: Map,
        partition: int,
        key: bytes,
        value: bytes,
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Write without condition. With `ttl_s` the entry goes by itself, some time after that."""

    @abstractmethod
    async def set_together(
        self, map: Map, partition: int, entries: Mapping[bytes, bytes], *, timeout_s: float | None = None
    ) -> None:
        """Write several entries without condition, at the cost of one. They live as long as the map lets them (see
        `LIFETIMES_S`). If the outcome is unknown, some may have been written and others not."""

    @abstractmethod
    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        """None if there was nothing and `value` is now there; else what was there, unchanged."""

    @abstractmethod
    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        """True if `old` was there and `new` now is. With old = new: proof that it is there, on backups too."""

    @abstractmethod
    async def remove_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, *, timeout_s: float | None = None
    ) -> bool:
        """True if `old` was there and nothing is now."""

    @abstractmethod
    async def delete(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> None:
        """Remove the entry; nothing happens where there is none."""

    @abstractmethod
    def discard(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        """Delete when convenient, without waiting and without saying whether it worked (sweeps come by later)."""

    # -- one partition ----------------------------------------------------------------------------

    @abstractmethod
    def scan(
        self, map: Map, partition: int, *, page: int = 100, timeout_s: float | None = None
    ) -> AsyncIterator[list[Entry]]:
        """The entries of one partition of a map, page by page.

        An entry that is there from beginning to end is seen at least once; one that comes or goes
        meanwhile may be seen or not. A scan that fails midway raises; it never ends short in silence.
        `timeout_s` is for each page.
        """

    # -- hints ------------------------------------------------------------------------------------

    @abstractmethod
    def listen(
        self,
        map: Map,
        on_entries: Callable[[list[EntryEvent]], None],
        *,
        key: tuple[int, bytes] | None = None,
        removals: bool = True,
    ) -> AbstractAsyncContextManager[None]:
        """While open, `on_entries` gets hints of entries that came, changed or (with `removals`) went.

        Without `key`: the entries whose primary is the paired member (or one named to `hear`). With `key`:
        that one entry, wherever it lives. Survives reconnects (events in between are lost). An exception from
        `on_entries` is reported, and does not end the subscription.
        """

    @abstractmethod
    def hear(self, members: frozenset[str]) -> None:
        """Let listeners without a key hear of the entries of these members too, besides the paired one's.

        For a node that owns partitions of members that have no node of their own. Replaces what was said
        before. When members are heard that were not, `RECONNECTED` is told once it works: events before
        that were lost.
        """

    @abstractmethod
    def ownership(self) -> Ownership:
        """The members and the partition table, as far as this client was told. Never blocks."""

    @abstractmethod
    def watch_ownership(self, on_ownership: Callable[[OwnershipEvent], None]) -> AbstractAsyncContextManager[None]:
        """While open, `on_ownership` is called after `ownership()` has changed (a hint, like all events)."""
