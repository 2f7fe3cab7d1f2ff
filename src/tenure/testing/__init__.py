"""Clusters for tests: yours, and ours.

    async with tenure.testing.Cluster(nodes=2, members=2) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="clicks")
        await cluster.kill(0)
        assert await client.ask("clicks", {"n": 1}) == 1

On the memory grid (the default) everything runs in this process, and in virtual time under trio's `MockClock`;
with `grid="hazelcast"` nodes and members are processes. The pytest plugin gives the same as fixtures.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.testing.cluster import Cluster
    from tenure.testing.sync_cluster import SyncCluster

__all__ = ["Cluster", "SyncCluster"]

_MODULE_OF = {"Cluster": "tenure.testing.cluster", "SyncCluster": "tenure.testing.sync_cluster"}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:  # imported when used: the pytest plugin is loaded in every test run
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'tenure.testing' has no attribute {name!r}")
