"""The pytest plugin: fixtures `cluster` (async, with pytest-trio) and `sync_cluster` (plain tests, asyncio).

    @pytest.mark.tenure(nodes=3, app="app.py")
    async def test_it(cluster):
        async with cluster.client() as client: ...

The marker takes what `tenure.testing.Cluster` does. pytest loads this in every run: it imports nothing of
Tenure before a fixture is used.
"""

import sys
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.testing import Cluster, SyncCluster

__all__ = ["cluster", "sync_cluster"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tenure(nodes=2, members=2, app=None, …): what the fixtures cluster and sync_cluster are made with"
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """pytest-trio runs each test in a nursery, whose errors come in a group: of a test with a cluster, a lone one comes
    out as itself."""
    __tracebackhide__ = True
    before = _clusters_made()
    try:
        return (yield)
    except BaseExceptionGroup as group:
        lone: BaseException = group
        while isinstance(lone, BaseExceptionGroup) and len(lone.exceptions) == 1:
            lone = lone.exceptions[0]
        if isinstance(lone, BaseExceptionGroup) or _clusters_made() == before:
            raise
    raise lone  # out here: its cause and context are those that it had


def _clusters_made() -> int:
    module = sys.modules.get("tenure.testing.cluster")
    return 0 if module is None else module.Cluster._made


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
