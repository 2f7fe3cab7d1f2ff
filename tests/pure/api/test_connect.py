"""Where a client's cluster comes from."""

import os
import time
from pathlib import Path
from typing import NoReturn

import pytest

import tenure
from tenure.cli.connection import cluster_of
from tenure.cli.options import Connection
from tenure.connect import CLUSTER_VARIABLE, exported, find_cluster, parse_cluster
from tenure.nodes.whereabouts import announced
from tenure.scheduler.grid.hazelcast import CannotConnect, HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.memory import MemoryCluster


@pytest.mark.parametrize(
    ("text", "name", "addresses"),
    [
        ("a:1", "tenure", ("a:1",)),
        ("a:1,b:2", "tenure", ("a:1", "b:2")),
        ("shop@a:1, b", "shop", ("a:1", "b:5701")),
        (" shop@10.0.0.1 ", "shop", ("10.0.0.1:5701",)),
    ],
)
def test_addresses(text: str, name: str, addresses: tuple[str, ...]) -> None:
    settings = parse_cluster(text)
    assert (settings.cluster_name, settings.addresses) == (name, addresses)


@pytest.mark.parametrize("text", ["", "@", "@a:1", "shop@", "a:b", "a:", ",", "a:1,:2"])
def test_what_names_no_cluster(text: str) -> None:
    with pytest.raises(tenure.Mistake, match="names no cluster"):
        parse_cluster(text)
    if text:
        with pytest.raises(tenure.Mistake, match="names no cluster"):
            tenure.Client(text)


def test_the_environment_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_VARIABLE, "not an address:")
    with pytest.raises(tenure.Mistake, match="not an address"):
        tenure.SyncClient()
    tenure.SyncClient("a:1")


async def test_a_cluster_or_a_grid() -> None:
    grid = MemoryCluster().connect()
    with pytest.raises(tenure.Mistake, match="a cluster or a grid, not both"):
        tenure.Client("a:1", grid=grid)
    async with tenure.Client(grid=grid) as client:
        assert await client.nodes() == []
    grid.close()


@pytest.mark.parametrize("addresses", ["127.0.0.1:9", "127.0.0.1:9,localhost:9"])
async def test_that_nothing_listens_on_this_machine_is_said_at_once(addresses: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(CannotConnect, match=r"at 127\.0\.0\.1:9.*: nothing listens there\. Start a member"):
        await tenure.Client(f"nowhere@{addresses}").__aenter__()
    assert time.monotonic() - began_s < 1


def test_a_client_for_threads_says_so_too() -> None:
    began_s = time.monotonic()
    with pytest.raises(CannotConnect, match=r"nothing listens there\. Start a member"):
        tenure.SyncClient("nowhere@127.0.0.1:9").__enter__()
    assert time.monotonic() - began_s < 2


# -- where none is named --------------------------------------------------------------------------


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[HazelcastSettings]:
    """What was connected to, in vain; in a state folder where no cluster is noted."""
    seen: list[HazelcastSettings] = []

    def connect(settings: HazelcastSettings) -> NoReturn:
        seen.append(settings)
        raise CannotConnect("Nothing listens there.")

    monkeypatch.setattr(HazelcastGrid, "connect", connect)
    monkeypatch.setattr("tenure.connect._may_be_listening", lambda addresses: True)
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    return seen


async def test_a_client_finds_the_cluster_that_commands_find(tried: list[HazelcastSettings]) -> None:
    with announced("mine@127.0.0.1:77"):
        assert cluster_of(Connection()) == find_cluster() == "mine@127.0.0.1:77"
        with pytest.raises(CannotConnect):
            await tenure.Client().__aenter__()
        with pytest.raises(CannotConnect):
            tenure.SyncClient().__enter__()
    assert [settings.addresses for settings in tried] == [("127.0.0.1:77",)] * 2


async def test_no_client_starts_a_cluster_unasked(tried: list[HazelcastSettings]) -> None:
    client = tenure.Client()
    with pytest.raises(CannotConnect, match=r"TENURE_CLUSTER.*tenure dev APP.*Client\.embedded\(\)"):
        await client.__aenter__()
    assert [settings.addresses for settings in tried] == [("127.0.0.1:5701",)]


async def test_among_several_clusters_somebody_must_choose(
    tried: list[HazelcastSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.nodes.whereabouts.embedded_clusters", lambda: ["a@127.0.0.1:1", "b@127.0.0.1:2"])
    with pytest.raises(tenure.Mistake, match=r"choose with --cluster, or TENURE_CLUSTER, one of a@.*, b@"):
        await tenure.Client().__aenter__()
    assert not tried


def test_a_node_exports_its_cluster_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    with exported("a@127.0.0.1:1"):
        with exported("b@127.0.0.1:2"):
            assert os.environ[CLUSTER_VARIABLE] == "b@127.0.0.1:2"
        assert os.environ[CLUSTER_VARIABLE] == "a@127.0.0.1:1"
    assert CLUSTER_VARIABLE not in os.environ
