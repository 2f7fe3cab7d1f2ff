"""Where to look for members: a name stands for all the addresses that it has.

The client would connect to the first of them alone, each time. Behind the name of a Kubernetes service without an
address of its own, or of several containers, stand several members, and the first may be the one that is gone.
"""

import socket
from collections.abc import Sequence

from hazelcast.core import Address

__all__ = ["Addresses"]


class Addresses:
    """What the client asks for addresses, anew for each round of tries, in a thread of its own."""

    def __init__(self, given: Sequence[str]) -> None:
        """As `host:port`."""
        self._given = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in given)]
        self.count = len(self._given)
        """So many there were to try, when they were last asked for."""

    def load_addresses(self) -> tuple[list[Address], list[Address]]:
        """Those to try first, and those to try if these don't do."""
        found = dict.fromkeys(place for host, port in self._given for place in _places(host, port))
        self.count = len(found)
        return [Address(host, port) for host, port in found], []

    def translate(self, address: Address) -> Address:
        """Members are reached where they say that they are."""
        return address


def _places(host: str, port: int) -> list[tuple[str, int]]:
    """A name with one address, or with none, stays a name: then it can be told which."""
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return [(host, port)]
    hosts = list(dict.fromkeys(str(where[0]) for *_, where in found))
    return [(each, port) for each in hosts] if len(hosts) > 1 else [(host, port)]
