"""What can go wrong with a member, each with what to do next."""

from tenure.scheduler.errors import TenureError

__all__ = [
    "ChecksumMismatch",
    "JarUnavailable",
    "MemberDidNotStart",
    "MemberError",
    "NoJava",
    "PortTaken",
    "SettingsMismatch",
    "StoodAlone",
    "TooLittleMemory",
    "WrongVersion",
]


class MemberError(TenureError):
    """A member could not be started or kept: `what` happened, and the `next_step` to take."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"{what} {next_step}")
        self.what = what
        self.next_step = next_step


class JarUnavailable(MemberError):
    """Hazelcast's jar is not in the cache and could not be fetched (no network, for one)."""


class ChecksumMismatch(MemberError):
    """What was fetched, or found, as Hazelcast's jar is not the one that this version was built for."""


class NoJava(MemberError):
    """There is no Java runtime that is new enough."""


class PortTaken(MemberError):
    """Another process listens at the member's address."""


class TooLittleMemory(MemberError):
    """The member's heap does not fit into this machine."""


class WrongVersion(MemberError):
    """The cluster's other members run another version of Hazelcast, and don't let this one in."""


class SettingsMismatch(MemberError):
    """The cluster's members have settings that this one would have to share (the partition count, for one)."""


class StoodAlone(MemberError):
    """The member started, but formed a cluster of its own although others listen at the addresses it was given."""


class MemberDidNotStart(MemberError):
    """The member's process ended, or did not come up in time; the text has its last log lines."""
