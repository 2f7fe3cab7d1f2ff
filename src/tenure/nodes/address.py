"""Where a cluster is: `NAME@host:port,host:port`, the way it is written on a command line."""

import os
from dataclasses import dataclass

from tenure.scheduler.errors import Mistake

__all__ = ["CLUSTER_VARIABLE", "ClusterAddress"]

CLUSTER_VARIABLE = "TENURE_CLUSTER"
DEFAULT_NAME = "tenure"
DEFAULT_PORT = 5701


@dataclass(frozen=True)
class ClusterAddress:
    """A cluster's name and the members to knock at; one that answers names the others."""

    name: str = DEFAULT_NAME
    members: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)

    @classmethod
    def parse(cls, text: str) -> "ClusterAddress":
        """`NAME@host:port,…`; without a name it is `tenure`, without a port 5701. Raises `Mistake`."""
        name, at, rest = text.strip().rpartition("@")
        if at and not name:
            raise Mistake(f"{text!r} has no cluster name before the @: write NAME@host:port,host:port")
        members = tuple(_member(part.strip(), text) for part in rest.split(",") if part.strip())
        if not members:
            raise Mistake(f"{text!r} names no member: write NAME@host:port,host:port")
        return cls(name or DEFAULT_NAME, members)

    @classmethod
    def from_environment(cls) -> "ClusterAddress | None":
        """What `TENURE_CLUSTER` says, if it is set."""
        text = os.environ.get(CLUSTER_VARIABLE, "")
        return cls.parse(text) if text.strip() else None

    def __str__(self) -> str:
        return f"{self.name}@{','.join(self.members)}"


def _member(part: str, text: str) -> str:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):  # a bare host, or a bare IPv6 address in brackets
        host, port = part, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Mistake(f"{part!r} in {text!r} is no member's address: write host:port")
    return f"{host.strip('[]')}:{port}" if ":" not in host.strip("[]") else f"[{host.strip('[]')}]:{port}"
