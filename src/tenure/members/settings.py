"""How a member is set up: one frozen object, each default with its reason."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "CLUSTER_NAME",
    "HAZELCAST_VERSION",
    "PARTITION_COUNT",
    "PORT",
    "Address",
    "MemberSettings",
    "half_of_the_processors",
]

HAZELCAST_VERSION = "5.7.0"
CLUSTER_NAME = "tenure"
PORT = 5701
PORT_MAX = 65535
PARTITION_COUNT = 271
"""A prime, so that partitions spread evenly over any number of members."""

HEAP_MIN_MIB = 16
BACKUPS_MAX = 6
"""Hazelcast keeps no more."""

Address = tuple[str, int]

_LIMITS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container finds how much memory it may take; by the older way a very large number means: any."""


@dataclass(frozen=True, kw_only=True)
class MemberSettings:
    """Everything that differs between one member and another."""

    cluster_name: str = CLUSTER_NAME
    """What its clients must know. Hazelcast's open-source edition has no other authentication."""

    host: str = "127.0.0.1"
    """The one interface it binds to. Hazelcast's open-source edition has no authentication: whoever reaches
    the port and knows the cluster's name may write."""

    port: int = PORT
    """Exactly this one: a member that quietly takes the next port is not where its clients look for it."""

    join: tuple[Address, ...] = ()
    """Where other members listen, or will. Nothing is ever discovered by multicast."""

    member_count: int = 1
    """How many members the cluster is meant to have. From three on, maps refuse calls while fewer than a majority
    of that number see each other. One or two members can't tell a split from a death and run without that."""

    backups: int = 1
    """Synchronous copies besides the primary: how many members may die at once without a loss."""

    partition_count: int = PARTITION_COUNT
    """Fixed for the life of the cluster, and the same on every member."""

    heap_initial_mib: int = 96
    """What its heap takes at first."""
    heap_max_mib: int = 512
    """Small enough for a laptop that runs three members; what holds a cluster's data needs more."""

    heartbeat_max_s: int = 10
    """How long a silent member is waited for. With 5 s two healthy members have lost each other when a third froze."""

    start_timeout_s: float = 60.0
    """How long its start may take."""
    stop_timeout_s: float = 60.0
    """How long a leaving member may take to hand over its partitions before it is killed."""

    log_file: Path | None = None
    """Where the member logs; by default into a file of the user's log folder."""

    java_home: Path | None = None
    """A Java to use instead of looking for one."""

    processors: frozenset[int] | None = None
    """The processors that it may use; None: all that this process may (see `half_of_the_processors`)."""

    jvm_options: tuple[str, ...] = ()
    """Further arguments of its Java."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """More attributes for clients to see, besides those that say how the member is set up."""

    def __post_init__(self) -> None:
        if not self.cluster_name.strip() or self.cluster_name != self.cluster_name.strip():
            raise ValueError(
                f"the name {self.cluster_name!r} is none that clients could say: write it without spaces around"
            )
        if "${" in self.cluster_name:
            raise ValueError(f"the name {self.cluster_name!r} has '${{' in it: members would replace what follows")
        if not 0 <= self.port <= PORT_MAX:
            raise ValueError(f"port is {self.port}: it must be between 0 (any free one) and {PORT_MAX}")
        for host, port in (self.address, *self.join):
            if ":" in host:
                raise ValueError(f"{host!r} looks like IPv6, which clients don't speak: name an IPv4 address or a host")
            if not 0 <= port <= PORT_MAX:
                raise ValueError(f"join has {host}:{port}: a port is between 0 and {PORT_MAX}")
        if not 0 <= self.backups <= BACKUPS_MAX:
            raise ValueError(f"backups is {self.backups}: Hazelcast keeps between 0 and {BACKUPS_MAX}")
        if self.member_count < 1:
            raise ValueError(f"member_count is {self.member_count}: a cluster has at least one member")
        if self.partition_count < 1:
            raise ValueError(f"partition_count is {self.partition_count}: it must be at least 1")
        if self.heap_max_mib < HEAP_MIN_MIB:
            raise ValueError(f"heap_max_mib is {self.heap_max_mib}: it must be at least {HEAP_MIN_MIB}")
        if not HEAP_MIN_MIB <= self.heap_initial_mib <= self.heap_max_mib:
            raise ValueError(
                f"heap_initial_mib is {self.heap_initial_mib}: "
                f"it must be between {HEAP_MIN_MIB} and heap_max_mib ({self.heap_max_mib})"
            )

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def quorum(self) -> int | None:
        """The least number of members that must see each other, or None where a split can't be told from a death."""
        return self.member_count // 2 + 1 if self.member_count >= 3 else None


def half_of_the_processors() -> frozenset[int] | None:
    """For members that share a machine with nodes: the upper half, and one at least. None where there is no choice.

    On their own half their threads wake each other without waking a processor that sleeps, which takes longer than
    what is to be done there; and nodes, which are one thread each, find the other half free.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None  # only Linux lets one choose
    ours = sorted(os.sched_getaffinity(0))
    return frozenset(ours[len(ours) // 2 :]) if len(ours) > 1 else None


def memory_total_mib() -> int | None:
    """This machine's memory, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, ValueError, OSError):
        return None


def memory_limit_mib() -> int | None:
    """How much of it this container may take, or None where it may take all."""
    for path in _LIMITS:
        try:
            return int(path.read_text()) // 2**20
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None
