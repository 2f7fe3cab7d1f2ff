"""How the adapter connects and how long it waits: one frozen object, each default with its reason."""

import ipaddress
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CannotConnect", "HazelcastSettings", "map_name"]

from tenure.scheduler.errors import TryAgain
from tenure.scheduler.grid.port import Map

PORT_MAX = 65535


class CannotConnect(TryAgain):
    """No member of the cluster could be reached, or none let this client in; the text says what was tried."""


def map_name(map: Map) -> str:
    """The map's name in the cluster: the members' configuration covers `tenure.*`."""
    return f"tenure.{map.value}"


@dataclass(frozen=True, kw_only=True)
class HazelcastSettings:
    """Everything that differs between one connection and another."""

    cluster_name: str = "tenure"

    addresses: tuple[str, ...] = ("127.0.0.1:5701",)
    """Where members listen, as `host:port`. One that answers is enough: it names the others."""

    pair_with: str | None = None
    """The member to be paired with while it is there, as `host:port`."""

    prefer_network: str | None = None
    """A network (CIDR): members with an address in it are preferred for pairing, before those on the same host."""

    connect_timeout_s: float = 10.0
    """How long the first connection may take. Later ones are tried for ever."""

    op_deadline_s: float = 2.0
    """How long a call may take where the caller does not say; then its outcome is unknown. A member's death costs
    about one second."""

    heartbeat_s: float = 8.0
    """How long a silent member is waited for. Shorter, and a busy member is taken for a dead one. Longer than members
    wait for each other, and a client that has its news from a frozen one is alone with it once that goes on, until it
    has found another (see `sides`)."""

    retry_pause_s: float = 0.05
    """Between the client's own tries of a call that was certainly not run (a partition on the move, for one)."""

    reconnect_pause_max_s: float = 1.0

    authenticate_timeout_s: float = 2.0
    """How long a member may take to let a connection in: a frozen one accepts it, and never answers."""

    discards_gather_s: float = 1.0
    """Deletions that nobody waits for wait so long for others of their partition,"""

    discards_together: int = 16
    """or until there are so many. Less than half a lane's window, which they hold back."""

    discards_in_flight_max: int = 1_000
    discards_waiting_max: int = 100_000
    """Beyond this, discards are dropped: a sweep comes by later."""

    backups: int = 1
    """Copies besides the primary, where members don't tell: with that many and the primary gone a partition is lost."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("addresses is empty: name at least one member, as host:port")
        for address in (*self.addresses, *((self.pair_with,) if self.pair_with else ())):
            host, _, port = address.rpartition(":")
            if ":" in host:
                raise ValueError(
                    f"{address!r} looks like IPv6, which clients don't speak: name the IPv4 address, or a host name "
                    "that has one"
                )
            if not host or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
                raise ValueError(f"{address!r} is not an address: write host:port, with a port from 1 to {PORT_MAX}")
        _ = self.network

    @cached_property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
        return ipaddress.ip_network(self.prefer_network, strict=False) if self.prefer_network else None
