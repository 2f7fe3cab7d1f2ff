"""What the doctor says of members: how many there are, their copies, their clocks, their shares."""

import pytest

from tenure.cli.examination_members import judge_clocks, judge_copies, judge_spread
from tenure.members import Standard, judge_count
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.grid.hazelcast import MemberSeen, MemberTold
from tenure.scheduler.grid.port import Member, Ownership

GOOD, WARNING, BAD = Standard.GOOD, Standard.WARNING, Standard.BAD
A, B, C = (f"10.0.0.{n}:5701" for n in (1, 2, 3))
HOUR_MS = 3_600_000


def seen(*addresses: str, meant: str = "3") -> list[MemberSeen]:
    return [MemberSeen(address, address, "5.5.0", {"tenure.members": meant}) for address in addresses]


def test_members_that_are_missing_are_bad() -> None:
    assert [verdict.standard for verdict in judge_count(seen(A, B, C))] == [GOOD]
    [missing] = judge_count(seen(A, B))
    assert (missing.standard, missing.finding) == (BAD, f"1 of 3 is missing; there are {A}, {B}")
    assert "Start what is missing again" in missing.next_step
    assert judge_count(seen(A, meant="")) == [], "a cluster of one's own need not say how many there are to be"


def test_partitions_that_are_short_of_copies_are_a_warning() -> None:
    assert judge_copies(2, [MemberTold(A, 0, True), MemberTold(B, 0, True)]).standard is GOOD
    short = judge_copies(2, [MemberTold(A, 0, True), MemberTold(B, 0, False)])
    assert (short.standard, short.finding) == (WARNING, f"copies of partitions are missing or on their way, say {B}")
    assert "end or replace no member meanwhile" in short.next_step
    assert judge_copies(2, [MemberTold(A, 0, True)]).standard is WARNING, "nobody knows of the other one"


@pytest.mark.parametrize(
    ("by_ms", "standard", "says"),
    [
        (500, GOOD, "4 agree"),
        (5000, WARNING, f"member {B} is 5 s ahead"),
        (2 * HOUR_MS, BAD, f"member {B} is 2 h ahead"),
        (-2 * HOUR_MS, BAD, f"member {B} is 2 h behind"),
    ],
)
def test_clocks_that_are_apart_are_named(by_ms: int, standard: Standard, says: str) -> None:
    told = [MemberTold(A, HOUR_MS, True), MemberTold(B, HOUR_MS + by_ms, True)]
    nodes = [NodeInfo("n", 1, clock_ms=HOUR_MS), NodeInfo("of an older version", 1)]
    found = judge_clocks(nodes, HOUR_MS, [(HOUR_MS, told)])
    assert found.standard is standard
    assert found.finding.startswith(says), found.finding


def test_uneven_shares_of_the_data_are_told() -> None:
    members = tuple(Member(address, *address.split(":")[:1], 5701) for address in (A, B, C))
    even = judge_spread(Ownership(1, members, (A, B, C) * 90, None))
    assert even.finding == "each has a member"
    uneven = judge_spread(Ownership(1, members, (A,) * 130 + (B,) * 90 + (C,) * 50, None))
    assert (uneven.standard, f"{A} has 130, {B} has 90, {C} has 50" in uneven.finding) == (GOOD, True)
    assert judge_spread(Ownership(1, members, (A, None), None)).standard is BAD
