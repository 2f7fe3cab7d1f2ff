"""What a member's log says about it: that it is up, how many members it sees, and why it did not start, or ended."""

import enum
import errno
import re
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenure.members.errors import (
    MemberDidNotStart,
    MemberError,
    PortTaken,
    SettingsMismatch,
    TooLittleMemory,
    WrongVersion,
)
from tenure.members.settings import HAZELCAST_VERSION, MemberSettings

__all__ = [
    "Migrations",
    "Standing",
    "diagnose",
    "diagnose_end",
    "host_not_here",
    "not_to_be_had",
    "port_taken",
    "read_standing",
]

_STARTED = re.compile(rb"\]:\d+ is STARTED")
_MEMBERS = re.compile(rb"Members \{size:(\d+), ver:\d+\}")
_MIGRATIONS = re.compile(
    rb"(?P<moving>Repartitioning cluster data|Rebalance process was aborted)|(?P<members>Members \{size:)"
    rb"|All migration tasks have been completed|Partition balance is ok|Initializing cluster partition table"
)
_THIS = re.compile(rb"Member \[\S+\]:\d+ - (\S+) this")
_LAST_LINES = 15


class Migrations(enum.Enum):
    """Whether partitions are where they belong, with their backups."""

    UNKNOWN = "nobody has asked for a partition yet"
    MOVING = "on the move"
    CHANGED = "members have changed since they last were in place: they may be about to move, or not have to"
    DONE = "in place"


@dataclass(frozen=True)
class Standing:
    """How far a member has come."""

    started: bool
    members_seen: int
    id: str | None
    """What the cluster and its clients call it, from when it has joined."""
    migrations: "Migrations"
    """Only the oldest member knows and logs this."""


def read_standing(log: bytes) -> Standing:
    """Hazelcast logs the member list at each change, and one line when it is up."""
    sizes = _MEMBERS.findall(log)
    ids = _THIS.findall(log)
    return Standing(
        started=_STARTED.search(log) is not None,
        members_seen=int(sizes[-1]) if sizes else 0,
        id=ids[-1].decode() if ids else None,
        migrations=_migrations(log),
    )


def _migrations(log: bytes) -> Migrations:
    state = Migrations.UNKNOWN
    for line in _MIGRATIONS.finditer(log):
        if line["moving"]:
            state = Migrations.MOVING
        elif not line["members"]:
            state = Migrations.DONE
        elif state is Migrations.DONE:
            state = Migrations.CHANGED
    return state


def diagnose(log: str, settings: MemberSettings, log_file: Path, what: str) -> MemberError:
    """The error that the log of a failed member shows, most telling first; else what it calls severe, or its end."""
    for pattern, explain in _KNOWN:
        if pattern.search(log):
            return explain(settings)
    if mismatch := _MISMATCH.search(log):
        return SettingsMismatch(
            f"The cluster did not take the member in: {mismatch['why'].strip()}",
            "Give it the settings of the members that run, or another cluster name.",
        )
    lines = log.splitlines()
    telling = [line for line in lines if line.startswith("SEVERE")] or lines
    return MemberDidNotStart(what, _in_its_words(telling, log_file))


def diagnose_end(log: str, settings: MemberSettings, log_file: Path, code: int) -> MemberError:
    """The error that stands for the end of a member that had been running, with this exit code.

    What keeps members from starting may stand in its log, too (of others that tried to join, for one).
    """
    for pattern, explain in _SHORT_OF_MEMORY:
        if pattern.search(log):
            return explain(settings)
    ended = f"ended by itself (exit code {code})"
    if code < 0:
        ended = f"was killed ({signal.Signals(-code).name})"
    if code == -signal.SIGKILL:
        ended += ": by somebody, or by the system for want of memory (`dmesg` tells)"
    what = f"The member at {settings.host}:{settings.port} {ended}."
    return MemberError(what, _in_its_words(log.splitlines(), log_file))


def _in_its_words(lines: list[str], log_file: Path) -> str:
    return f"Its log ({log_file}) says:\n" + "\n".join(lines[-_LAST_LINES:])


def port_taken(settings: MemberSettings) -> MemberError:
    return PortTaken(
        f"Port {settings.port} of {settings.host} is taken by another process.",
        "Stop it, or give the member another port (--port).",
    )


def _heap_full(settings: MemberSettings) -> MemberError:
    return TooLittleMemory(
        f"The heap of the member at {settings.host}:{settings.port} is full ({settings.heap_max_mib} MiB).",
        "Start it with more (`tenure member --memory`), or spread the data over more members.",
    )


def _too_little_memory(settings: MemberSettings) -> MemberError:
    return TooLittleMemory(
        f"There is too little memory here for a member with a heap of {settings.heap_max_mib} MiB.",
        "Free memory, or give the member a smaller heap (--memory).",
    )


def _wrong_version(settings: MemberSettings) -> MemberError:
    others = ", ".join(f"{host}:{port}" for host, port in settings.join) or "the members there"
    return WrongVersion(
        f"This is a Hazelcast {HAZELCAST_VERSION} member, and the cluster of {others} runs another version.",
        "Members of different minor versions can't form a cluster: take a snapshot and restore it into a new one.",
    )


def host_not_here(settings: MemberSettings) -> MemberError:
    return MemberDidNotStart(
        f"This machine has no interface with the address {settings.host}.",
        "Give the member one that it has (--host); `ip address` lists them.",
    )


def not_to_be_had(settings: MemberSettings, error: OSError) -> MemberError:
    """Why the address can't be bound to."""
    if isinstance(error, socket.gaierror):
        what = f"{settings.host!r} is no address, and no host of this name is known here ({error.strerror})."
        return MemberDidNotStart(what, "Give the member an address that this machine has (--host).")
    if error.errno == errno.EADDRNOTAVAIL:
        return host_not_here(settings)
    if error.errno == errno.EADDRINUSE:
        return port_taken(settings)
    what = f"Port {settings.port} of {settings.host} can't be had: {error.strerror or error}."
    return MemberDidNotStart(what, "Give the member another port (--port).")


_MISMATCH = re.compile(r"A Configuration mismatch was detected: (?P<why>.+?)(?:Node is going to shutdown|\n)")

_Known = tuple[re.Pattern[str], Callable[[MemberSettings], MemberError]]

_SHORT_OF_MEMORY: tuple[_Known, ...] = (
    (re.compile("OutOfMemoryError: (?:Java heap space|GC overhead)"), _heap_full),
    (
        re.compile("Could not reserve enough space|Cannot allocate memory|OutOfMemoryError|insufficient memory"),
        _too_little_memory,
    ),
)
_KNOWN: tuple[_Known, ...] = (
    (re.compile("already in use", re.IGNORECASE), port_taken),
    *_SHORT_OF_MEMORY,
    (re.compile("is not compatible with cluster version|VersionMismatchException"), _wrong_version),
    (re.compile("No matching network interface|Cannot assign requested address"), host_not_here),
)
