"""What the adapter is told, and what it tells the client in turn. No members."""

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import trio

from tenure.cli import main
from tenure.cli.ends import Exit
from tenure.connect import parse_cluster
from tenure.members import MemberSettings, member_attributes
from tenure.scheduler.errors import Mistake
from tenure.scheduler.grid.hazelcast import CannotConnect, HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.hazelcast.client import _config
from tenure.scheduler.grid.hazelcast.handover import Handover
from tenure.scheduler.grid.hazelcast.ownership import Candidate, choose_pair
from tenure.scheduler.grid.port import Member, OwnershipEvent


def test_the_client_waits_and_repeats_as_promised() -> None:
    config = _config(HazelcastSettings())
    assert config.heartbeat_timeout == 8, "shorter, and a busy member is taken for a dead one"
    found_out_s = config.heartbeat_timeout + config.heartbeat_interval
    assert found_out_s < MemberSettings().heartbeat_max_s, "no client stays with a member that others have left behind"
    assert config.heartbeat_interval < config.heartbeat_timeout / 2, "one that is late does no harm"
    assert not config.redo_operation, "what may have been applied is not repeated"
    assert config.fail_on_indeterminate_operation_state, "nor called done"
    assert not config.backup_ack_to_client_enabled
    assert config.async_start


def test_the_network_that_a_node_prefers_decides_on_its_member(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[HazelcastSettings] = []

    def connect(settings: HazelcastSettings) -> None:
        asked.append(settings)
        raise CannotConnect("no need to")

    monkeypatch.setattr(HazelcastGrid, "connect", connect)
    monkeypatch.setattr("tenure.nodes.logs.set_up_logs", lambda **_options: None)
    command = ["node", "tenure.demo.application", "--cluster", "tenure@10.0.0.1:5701"]
    for options in ([], ["--prefer-network", "10.1.2.3/16"]):
        assert main([*command, *options]) == Exit.UNREACHABLE
    near, preferred = Member("near", "10.0.0.1", 5701), Member("preferred", "10.1.9.9", 5701)
    candidates = [Candidate(near, "10.0.0.1"), Candidate(preferred, "10.0.0.1")]
    assert [choose_pair(candidates, settings, "any") for settings in asked] == ["near", "preferred"]


class Client:
    """Knows members, by what they tell of themselves; the rest of the client is not asked."""

    invocations = SimpleNamespace(invoke=None, _pending={})
    listeners = connection_of = None

    def __init__(self, *members: dict[str, str]) -> None:
        address, version = SimpleNamespace(host="127.0.0.1", port=5701), SimpleNamespace(major=5, minor=7, patch=0)
        infos = [
            SimpleNamespace(uuid=uuid4(), address=address, version=version, attributes=attributes)
            for attributes in members
        ]
        self.cluster_service = SimpleNamespace(get_members=lambda: infos)


def keeping(backups: int) -> dict[str, str]:
    return member_attributes(MemberSettings(backups=backups))


@pytest.mark.parametrize(
    ("members", "lost_backups", "told"),
    [
        ([keeping(0)], 0, True),
        ([keeping(1), keeping(1)], 0, False),
        ([keeping(1), keeping(1)], 1, True),
        ([keeping(2), keeping(2)], 1, False),
        ([keeping(1), keeping(0)], 0, True),
        ([{}, {"tenure.backups": "many"}], 2, False),
        ([{}, {"tenure.backups": "many"}], 3, True),
        ([], 3, True),
    ],
)
async def test_a_partition_is_lost_with_as_many_backups_as_members_keep(
    members: list[dict[str, str]], lost_backups: int, told: bool
) -> None:
    client: Any = Client(*members)
    grid = HazelcastGrid(client, Handover(), HazelcastSettings(backups=3))
    events: list[OwnershipEvent] = []
    async with grid.watch_ownership(events.append):
        grid._partition_lost(7, lost_backups)
        await trio.lowlevel.checkpoint()
    assert events == [OwnershipEvent.PARTITION_LOST] * told


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ("::1", "looks like IPv6"),
        ("::1:5701", "looks like IPv6"),
        ("tenure@[::1]:5701", "looks like IPv6"),
        ("tenure@fe80::1%eth0", "looks like IPv6"),
        ("127.0.0.1:0", "a port from 1 to 65535"),
        ("127.0.0.1:65536", "a port from 1 to 65535"),
        ("127.0.0.1:port", "write host:port"),
        (":5701", "write host:port"),
    ],
)
def test_what_is_no_address_is_refused_before_anybody_connects(cluster: str, says: str) -> None:
    with pytest.raises(Mistake, match=says):
        parse_cluster(cluster)


def test_addresses() -> None:
    assert parse_cluster("a@b@host.example").addresses == ("host.example:5701",)
    assert parse_cluster("10.0.0.1:1,10.0.0.2:65535").addresses == ("10.0.0.1:1", "10.0.0.2:65535")
