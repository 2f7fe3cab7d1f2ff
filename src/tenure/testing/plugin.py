"""The pytest plugin: fixtures `cluster` (async, with pytest-trio) and `sync_cluster` (plain tests, asyncio).

    @pytest.mark.tenure(nodes=3, app="app.py")
    async def test_it(cluster):
        async with cluster.client() as client: ...

The marker takes what `tenure.testing.Cluster` does. pytest loads this in every run: it imports nothing of
Tenure before a fixture is used.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.testing import Cluster, SyncCluster

__all__ = ["cluster", "sync_cluster"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tenure(nodes=2, members=2, app=None, …): what the fixtures cluster and sync_cluster are made with"
    )


def _arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of all markers, the nearest one's word counts for each argument."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers("tenure"):
        if marker.args:
            raise pytest.UsageError("the marker `tenure` takes keyword arguments only: @pytest.mark.tenure(nodes=3)")
        found = dict(marker.kwargs) | found
    if found.get("grid") == "hazelcast" and found.get("app") is None:
        found["app"] = str(request.path)
    return found


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> "AsyncIterator[Cluster]":
    """A `tenure.testing.Cluster` that is up for as long as the test."""
    from tenure.testing import Cluster

    async with Cluster(**_arguments(request)) as cluster:
        yield cluster


@pytest.fixture
def sync_cluster(request: pytest.FixtureRequest) -> "Iterator[SyncCluster]":
    """A `tenure.testing.SyncCluster` that is up for as long as the test."""
    from tenure.testing import SyncCluster

    with SyncCluster(**_arguments(request)) as cluster:
        yield cluster
