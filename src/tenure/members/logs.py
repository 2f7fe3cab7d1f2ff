"""What a member's log says about it: that it is up, how many members it sees, and why it did not start."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenure.members.errors import MemberDidNotStart, MemberError, PortTaken, TooLittleMemory, WrongVersion
from tenure.members.settings import HAZELCAST_VERSION, MemberSettings

__all__ = ["Standing", "diagnose", "port_taken", "read_standing", "tail"]

_STARTED = re.compile(rb"\]:\d+ is STARTED")
_MEMBERS = re.compile(rb"Members \{size:(\d+), ver:\d+\}")
_LAST_LINES = 15


@dataclass(frozen=True)
class Standing:
    """How far a member has come."""

    started: bool
    members_seen: int


def read_standing(log: bytes) -> Standing:
    """Hazelcast logs the member list at each change, and one line when it is up."""
    sizes = _MEMBERS.findall(log)
    return Standing(started=_STARTED.search(log) is not None, members_seen=int(sizes[-1]) if sizes else 0)


def tail(log_file: Path, lines: int = _LAST_LINES) -> str:
    try:
        return "\n".join(log_file.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(the log can't be read: {error})"


def diagnose(log: str, settings: MemberSettings, log_file: Path, what: str) -> MemberError:
    """The error that the log of a failed member shows, most telling first; else its last lines."""
    for pattern, explain in _KNOWN:
        if pattern.search(log):
            return explain(settings)
    last = "\n".join(log.splitlines()[-_LAST_LINES:])
    return MemberDidNotStart(what, f"Its last log lines (all of them: {log_file}):\n{last}")


def port_taken(settings: MemberSettings) -> MemberError:
    return PortTaken(
        f"Port {settings.port} of {settings.host} is taken by another process.",
        "Stop it, or give the member another port.",
    )


def _too_little_memory(settings: MemberSettings) -> MemberError:
    return TooLittleMemory(
        f"A heap of {settings.heap_max_mib} MiB can't be had on this machine.",
        "Free memory, or give the member a smaller heap (heap_max_mib).",
    )


def _wrong_version(settings: MemberSettings) -> MemberError:
    others = ", ".join(f"{host}:{port}" for host, port in settings.join) or "the members there"
    return WrongVersion(
        f"This is a Hazelcast {HAZELCAST_VERSION} member, and the cluster of {others} runs another version.",
        "Members of different minor versions can't form a cluster: take a snapshot and restore it into a new one.",
    )


def _host_not_here(settings: MemberSettings) -> MemberError:
    return MemberDidNotStart(
        f"This machine has no interface with the address {settings.host}.",
        "Give the member one that it has (host); `ip address` lists them.",
    )


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[MemberSettings], MemberError]], ...] = (
    (re.compile(r"Address already in use|Port \[\d+\] is already in use|ports? .{0,80}already in use", re.I), port_taken),
    (
        re.compile(r"Could not reserve enough space|Cannot allocate memory|OutOfMemoryError|insufficient memory", re.I),
        _too_little_memory,
    ),
    (
        re.compile(r"VersionMismatchException|not compatible with this cluster's version|is not compatible with cluster version"
                   r"|Joining node's version .{0,80}not compatible|major/minor version", re.I),
        _wrong_version,
    ),
    (re.compile(r"Hazelcast CANNOT start on this node\. No matching network interface|Cannot assign requested address"),
     _host_not_here),
)  # fmt: skip
