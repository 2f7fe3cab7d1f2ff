"""What this client was told about members and partitions, and which member it is paired with.

A client hears of a merge after a split only by its effect: the members of the smaller side come back
under new ids. So `MERGED` is told when no member of the last known list is in the new one. That is also
so when the whole cluster was started anew; tenures must be dropped then, too.
"""

import hashlib
import ipaddress
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import trio

from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings
from tenure.scheduler.grid.leaving import leaving
from tenure.scheduler.grid.port import Member, Ownership, OwnershipEvent

__all__ = ["Candidate", "OwnershipKeeper", "changes", "choose_pair", "is_within"]


LEAVING_S = 10.0
"""Who has not given anything away for so long is not leaving: it has its share, by rules that we don't know."""


class Candidate(NamedTuple):
    """A member that this client has a connection to; `local_host` is this side's address of it."""

    member: Member
    local_host: str


def choose_pair(candidates: Iterable[Candidate], settings: HazelcastSettings, client_id: str) -> str | None:
    """The best member to be paired with: the one asked for, in the network asked for, on the same host.

    Among equals the choice depends on their addresses and this client's id: it is spread over clients, and
    a member that comes back to its address gets its clients back.
    """

    def rank(candidate: Candidate) -> tuple[bool, bool, bool, bytes]:
        member = candidate.member
        address = f"{member.host}:{member.port}"
        spread = hashlib.blake2b(f"{client_id} {address}".encode(), digest_size=8).digest()
        return (
            address != settings.pair_with,
            settings.network is not None and not is_within(member.host, settings),
            member.host != candidate.local_host,
            spread,
        )

    best = min(candidates, key=rank, default=None)
    return best.member.id if best else None


def is_within(host: str, settings: HazelcastSettings) -> bool:
    """Is this an address in the network that is preferred?"""
    try:
        return settings.network is not None and ipaddress.ip_address(host) in settings.network
    except ValueError:
        return False  # a name


def changes(before: Ownership, after: Ownership, last_members: frozenset[str]) -> list[OwnershipEvent]:
    """The events that lead from one to the other. `last_members` are the last ones known, if any."""
    events = []
    now = frozenset(member.id for member in after.members)
    if now and last_members and not now & last_members:
        events.append(OwnershipEvent.MERGED)
    if before.members != after.members or before.paired != after.paired:
        events.append(OwnershipEvent.MEMBERS)
    if before.primaries != after.primaries:
        events.append(OwnershipEvent.PARTITIONS)
    return events


class OwnershipKeeper:
    """Keeps `now` up to date, and tells its watchers. All in the trio thread."""

    def __init__(self, client: Any, settings: HazelcastSettings, client_id: str) -> None:
        self.now = Ownership(version=0, members=(), primaries=(), paired=None)
        self._client, self._settings, self._client_id = client, settings, client_id
        self._last_members: frozenset[str] = frozenset()
        self._moved_s = -math.inf

    def refresh(self, partition_count: int) -> list[OwnershipEvent]:
        """Look at what the client knows now; the events say what is new."""
        infos = self._client.cluster_service.get_members()
        names = {info.uuid: str(info.uuid) for info in infos}
        members = tuple(Member(names[info.uuid], info.address.host, info.address.port) for info in infos)
        connections = {str(uuid): connection for uuid, connection in self._client.connections.items()}
        candidates = [
            Candidate(member, connections[member.id].local_address.host)
            for member in members
            if member.id in connections
        ]
        table = self._client.partition_table
        # A primary that has left is nobody; the table follows the members a moment later.
        primaries = tuple(names.get(table.get(partition)) for partition in range(partition_count))
        paired = choose_pair(candidates, self._settings, self._client_id)
        after = Ownership(self.now.version, members, primaries, paired)
        if primaries != self.now.primaries:
            self._moved_s = trio.current_time()
        if trio.current_time() < self._moved_s + LEAVING_S:
            after = after._replace(leaving=leaving(self.now, after))
        if after == self.now:
            return []
        events = changes(self.now, after, self._last_members)
        self.now = after._replace(version=after.version + 1)
        if members:
            self._last_members = frozenset(names.values())
        return events


Watcher = Callable[[OwnershipEvent], None]
