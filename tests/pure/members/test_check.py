"""Verdicts on members, from what they tell."""

from dataclasses import replace

from tenure.members import MemberSettings, Standard, member_attributes
from tenure.members.check import judge_members
from tenure.scheduler.grid.hazelcast import MemberSeen


def seen(settings: MemberSettings, count: int, *, hosts: int = 1, version: str = "5.7.0") -> list[MemberSeen]:
    attributes = member_attributes(settings)
    return [MemberSeen(f"id-{n}", f"10.0.0.{n % hosts}:{5701 + n}", version, attributes) for n in range(count)]


def standards(members: list[MemberSeen]) -> dict[str, Standard]:
    return {verdict.about: verdict.standard for verdict in judge_members(members)}


def test_three_that_are_set_up_by_us_are_good() -> None:
    verdicts = judge_members(seen(MemberSettings(member_count=3), 3, hosts=3))
    assert {verdict.standard for verdict in verdicts} == {Standard.GOOD}
    assert all(verdict.finding and not verdict.next_step for verdict in verdicts)


def test_members_that_tell_nothing_are_not_trusted() -> None:
    silent = [member._replace(attributes={}) for member in seen(MemberSettings(member_count=3), 3)]
    verdicts = judge_members(silent)
    bad = {verdict.about for verdict in verdicts if verdict.standard is Standard.BAD}
    assert bad == {"acknowledgements", "split-brain protection", "backups"}
    assert all(verdict.next_step for verdict in verdicts if verdict.standard is Standard.BAD)


def test_one_that_differs_spoils_it() -> None:
    members = seen(MemberSettings(member_count=3), 3)
    members[1] = members[1]._replace(attributes=member_attributes(MemberSettings(member_count=5, backups=2)))
    assert standards(members)["split-brain protection"] is Standard.BAD
    assert standards(members)["backups"] is Standard.BAD
    assert standards(members)["acknowledgements"] is Standard.GOOD


def test_a_majority_of_too_few_protects_nothing() -> None:
    assert standards(seen(MemberSettings(member_count=3), 5))["split-brain protection"] is Standard.BAD
    assert standards(seen(MemberSettings(member_count=4), 6))["split-brain protection"] is Standard.BAD
    assert standards(seen(MemberSettings(member_count=4), 5))["split-brain protection"] is Standard.GOOD
    assert standards(seen(MemberSettings(member_count=5), 4))["split-brain protection"] is Standard.GOOD


def test_one_more_than_meant_is_a_warning_that_names_what_to_do() -> None:
    """A member is to be replaced, and the new one has come before the old one goes: nodes must be able to start."""
    for hosts in (1, 4):
        verdicts = judge_members(seen(MemberSettings(member_count=3), 4, hosts=hosts))
        (found,) = [verdict for verdict in verdicts if verdict.about == "split-brain protection"]
        assert found.standard is Standard.WARNING
        assert "4 members, one more than the 3 that are meant" in found.finding
        assert "End the one that is to be replaced" in found.next_step


def test_how_many_are_meant_is_told_by_the_majority_where_nothing_else_tells() -> None:
    members = seen(MemberSettings(member_count=3), 4)
    silent = [member._replace(attributes={**member.attributes, "tenure.members": ""}) for member in members]
    assert standards(silent)["split-brain protection"] is Standard.WARNING
    assert standards([*silent, silent[0]])["split-brain protection"] is Standard.BAD


def test_two_without_protection_are_fine_on_one_host_only() -> None:
    settings = MemberSettings(member_count=2)
    assert standards(seen(settings, 2))["split-brain protection"] is Standard.WARNING
    assert standards(seen(settings, 2, hosts=2))["split-brain protection"] is Standard.BAD
    assert standards(seen(settings, 3))["split-brain protection"] is Standard.WARNING, "no worse than two"
    assert standards(seen(settings, 3, hosts=3))["split-brain protection"] is Standard.BAD


def test_a_lone_member_keeps_no_backups() -> None:
    assert standards(seen(MemberSettings(), 1))["backups"] is Standard.WARNING
    assert standards(seen(replace(MemberSettings(), backups=0), 2))["backups"] is Standard.WARNING


def test_another_version_is_a_warning() -> None:
    assert standards(seen(MemberSettings(), 1, version="5.7.3"))["version"] is Standard.GOOD
    assert standards(seen(MemberSettings(), 1, version="5.5.0"))["version"] is Standard.WARNING
    assert judge_members(seen(MemberSettings(), 1), partitions_without_member=True)[-1].standard is Standard.BAD
