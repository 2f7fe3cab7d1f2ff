"""Where a client's cluster comes from."""

import pytest

import tenure
from tenure.connect import CLUSTER_VARIABLE, parse_cluster
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
