"""What a member's configuration says, and which settings are refused."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tenure.members import MemberSettings, member_attributes, member_config
from tenure.scheduler.grid.hazelcast import map_name
from tenure.scheduler.grid.port import Map


def lines_of(config: str) -> dict[str, str]:
    """`a.b.c: value` for each scalar; enough YAML for what we write."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in config.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "-")):
            continue
        indent = len(line) - len(line.lstrip())
        key, _, value = line.strip().partition(": ")
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, key.rstrip(":").strip('"')))
        if value:
            found["/".join(name for _, name in path)] = value.strip('"')
    return found


def test_it_says_what_the_protocol_needs() -> None:
    says = lines_of(member_config(MemberSettings()))
    properties = {key.removeprefix("hazelcast/properties/"): value for key, value in says.items()}
    assert properties["hazelcast.operation.fail.on.indeterminate.state"] == "true"
    assert properties["hazelcast.shutdownhook.policy"] == "GRACEFUL"
    assert properties["hazelcast.phone.home.enabled"] == "false"
    assert properties["hazelcast.partition.count"] == "271"
    assert says["hazelcast/network/port/auto-increment"] == "false"
    assert says["hazelcast/network/join/multicast/enabled"] == "false"
    assert says["hazelcast/network/join/auto-detection/enabled"] == "false"
    assert says["hazelcast/serialization/java-serialization-filter/defaults-disabled"] == "false"
    assert says["hazelcast/map/tenure.*/backup-count"] == "1"
    assert says["hazelcast/map/tenure.*/eviction/eviction-policy"] == "NONE"
    assert says["hazelcast/map/tenure.*/in-memory-format"] == "BINARY"
    assert '        - "127.0.0.1"\n' in member_config(MemberSettings())


@pytest.mark.parametrize(("members", "quorum"), [(1, None), (2, None), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_protection_is_sized_to_a_majority_from_three_members_on(members: int, quorum: int | None) -> None:
    settings = MemberSettings(member_count=members)
    says = lines_of(member_config(settings))
    assert settings.quorum == quorum
    assert says.get("hazelcast/split-brain-protection/tenure-majority/minimum-cluster-size") == (
        None if quorum is None else str(quorum)
    )
    assert says.get("hazelcast/map/tenure.*/split-brain-protection-ref") == (quorum and "tenure-majority")
    assert says["hazelcast/member-attributes/tenure.quorum/value"] == str(quorum or 0)


def test_every_map_of_ours_is_covered() -> None:
    assert all(map_name(map).startswith("tenure.") for map in Map)


def test_members_to_join_are_listed_once_and_itself_with_them() -> None:
    config = member_config(MemberSettings(port=6000, join=(("127.0.0.1", 6000), ("10.0.0.7", 6001))))
    listed = re.findall(r'^ +- "(\S+:\d+)"$', config, re.MULTILINE)
    assert listed == ["127.0.0.1:6000", "10.0.0.7:6001"]


def test_what_users_name_is_quoted() -> None:
    config = member_config(MemberSettings(cluster_name='a "b": {c}\n- d', attributes={"x: y": "{z}"}))
    assert '  cluster-name: "a \\"b\\": {c}\\n- d"\n' in config
    assert '    "x: y":\n      type: string\n      value: "{z}"\n' in config


def test_attributes_say_how_it_is_set_up() -> None:
    attributes = member_attributes(MemberSettings(member_count=3, backups=2, attributes={"rack": "7"}))
    assert attributes == {
        "rack": "7",
        "tenure.backups": "2",
        "tenure.indeterminate": "fail",
        "tenure.members": "3",
        "tenure.quorum": "2",
    }


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cluster_name": ""}, "none that clients could say"),
        ({"cluster_name": " shop"}, "none that clients could say"),
        ({"backups": 7}, "between 0 and 6"),
        ({"port": 70000}, "between 0"),
        ({"cluster_name": "team-${user.name}"}, "members would replace what follows"),
        ({"host": "::1"}, "looks like IPv6"),
        ({"join": (("::1", 5701),)}, "looks like IPv6"),
        ({"join": (("10.0.0.1", 70000),)}, "between 0"),
        ({"member_count": 0}, "at least one member"),
        ({"partition_count": 0}, "at least 1"),
        ({"heap_initial_mib": 512, "heap_max_mib": 256}, "heap_max_mib"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MemberSettings(**wrong)
