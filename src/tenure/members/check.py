"""What a client can find out about the members it uses: a verdict for each thing that the protocol needs of them.

Members that Tenure configured say how, in their attributes. What they don't say can't be found out from
outside: such members are not trusted unless told otherwise.
"""

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenure.members.settings import HAZELCAST_VERSION

if TYPE_CHECKING:  # running a member does not take the client
    from tenure.scheduler.grid.hazelcast import HazelcastGrid, MemberSeen

__all__ = ["Standard", "Verdict", "check_members", "judge_count", "judge_members"]


class Standard(enum.Enum):
    """How a thing stands."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Verdict(NamedTuple):
    """One thing that was looked at. `next_step` is empty where it is good."""

    about: str
    standard: Standard
    finding: str
    next_step: str = ""


_REGENERATE = "Write the configuration with `tenure member --print-config`, and restart the members with it one by one."


def check_members(grid: "HazelcastGrid") -> list[Verdict]:
    """The verdicts on the members that `grid` sees."""
    return judge_members(grid.members_seen(), None in grid.ownership().primaries)


def judge_members(members: "Sequence[MemberSeen]", partitions_without_member: bool = False) -> list[Verdict]:
    """As `check_members`; but told what to judge."""
    return [
        _versions(members),
        _indeterminate(members),
        _protection(members),
        _backups(members),
        Verdict("partitions", Standard.BAD, "some have no member", "Wait, or look at the members' logs.")
        if partitions_without_member
        else Verdict("partitions", Standard.GOOD, "each has a member"),
    ]


def judge_count(members: "Sequence[MemberSeen]") -> list[Verdict]:
    """Are as many there as are meant to be? Nodes start where one is missing, so they don't ask this."""
    meant = _told(members, "members")
    told = meant.pop() if len(meant) == 1 else None
    if told is None or not told.isdigit():
        return []
    about, size, wanted = "member count", len(members), int(told)
    if size >= wanted:
        return [Verdict(about, Standard.GOOD, f"{size}; {wanted} are meant to be")]
    missing = wanted - size
    return [
        Verdict(
            about,
            Standard.BAD,
            f"{missing} of {wanted} {'is' if missing == 1 else 'are'} missing; there are {', '.join(_where(members))}",
            "Start what is missing again, at its address: the loss of another one may stop the cluster, or lose data.",
        )
    ]


def _where(members: "Sequence[MemberSeen]") -> list[str]:
    return sorted(member.address for member in members)


def _told(members: "Sequence[MemberSeen]", name: str) -> set[str | None]:
    return {member.attributes.get(f"tenure.{name}") for member in members}


def _versions(members: "Sequence[MemberSeen]") -> Verdict:
    versions = sorted({member.version for member in members})
    minor = HAZELCAST_VERSION.rpartition(".")[0]
    if versions and all(version.rpartition(".")[0] == minor for version in versions):
        return Verdict("version", Standard.GOOD, f"all members run {', '.join(versions)}")
    return Verdict(
        "version",
        Standard.WARNING,
        f"members run {', '.join(versions) or 'nothing'}",
        f"Tenure is tested with Hazelcast {minor}; move to it by a snapshot and a new cluster.",
    )


def _indeterminate(members: "Sequence[MemberSeen]") -> Verdict:
    if _told(members, "indeterminate") == {"fail"}:
        return Verdict("acknowledgements", Standard.GOOD, "a write without its backup is not called done")
    return Verdict(
        "acknowledgements",
        Standard.BAD,
        "members may call a write done that no backup holds; such writes are lost with their member",
        f"{_REGENERATE} (hazelcast.operation.fail.on.indeterminate.state)",
    )


def _protection(members: "Sequence[MemberSeen]") -> Verdict:
    about = "split-brain protection"
    quorums = _told(members, "quorum")
    quorum = quorums.pop() if len(quorums) == 1 else None
    if quorum is None or not quorum.isdigit():
        return Verdict(about, Standard.BAD, "members don't tell, or don't agree, whether they have it", _REGENERATE)
    return _majority(members, int(quorum)) if int(quorum) else _no_protection(members)


def _majority(members: "Sequence[MemberSeen]", needed: int) -> Verdict:
    """Of members that refuse calls where fewer than `needed` see each other: can two sides of a split be so many?"""
    about, size = "split-brain protection", len(members)
    if size < 2 * needed:
        return Verdict(about, Standard.GOOD, f"fewer than {needed} members refuse calls; there are {size}")
    meant = _meant(members, needed)
    if size > meant + 1:
        return Verdict(
            about,
            Standard.BAD,
            f"{needed} members are enough, and there are {size}: both sides of a split would go on",
            f"End the members that are more than {meant}, one by one. To have more for good, raise member_count: "
            "that takes a snapshot and a new cluster.",
        )
    # A member is replaced by one that comes before the old one goes; meanwhile nodes must be able to start.
    return Verdict(
        about,
        Standard.WARNING,
        f"there are {size} members, one more than the {meant} that are meant to be: "
        f"{needed} are enough, so both halves of a split would go on",
        "End the one that is to be replaced (SIGTERM), as soon as the new one has its share of the data.",
    )


def _meant(members: "Sequence[MemberSeen]", needed: int) -> int:
    """How many there are meant to be: as they say, or the most that so large a majority protects."""
    meant = _told(members, "members")
    told = meant.pop() if len(meant) == 1 else None
    return int(told) if told is not None and told.isdigit() else 2 * needed - 1


def _no_protection(members: "Sequence[MemberSeen]") -> Verdict:
    about, size = "split-brain protection", len(members)
    if len({member.address.rpartition(":")[0] for member in members}) > 1:
        return Verdict(
            about,
            Standard.BAD,
            f"{size} members can be cut off from each other, and run without it",
            f"Run at least three, with member_count set. {_REGENERATE}",
        )
    return Verdict(
        about,
        Standard.WARNING,
        f"none, with {size} member{'s' * (size != 1)} on one host, which can't be cut off from each other",
        "For more than development, run three members on three hosts.",
    )


def _backups(members: "Sequence[MemberSeen]") -> Verdict:
    backups = _told(members, "backups")
    told = backups.pop() if len(backups) == 1 else None
    if told is None or not told.isdigit():
        return Verdict("backups", Standard.BAD, "members don't tell, or don't agree, how many they keep", _REGENERATE)
    kept = min(int(told), len(members) - 1)
    if kept < 1:
        return Verdict(
            "backups",
            Standard.WARNING,
            "none is kept: what a member holds is lost with it",
            "Run a second member." if int(told) else "Set backups to at least 1.",
        )
    return Verdict("backups", Standard.GOOD, f"{kept}: so many members may die at once")
