"""Where a client's cluster comes from: a connection that is given, an address, the environment, or one of its own."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.clients.trio_thread import Opening
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import Mistake
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.jobtype import registry as process_registry
from tenure.scheduler.settings import ClientSettings

if TYPE_CHECKING:
    from tenure.scheduler.grid.hazelcast import HazelcastSettings

__all__ = ["CLUSTER_VARIABLE", "opening", "parse_cluster", "reach"]

CLUSTER_VARIABLE = "TENURE_CLUSTER"
CLUSTER_NAME = "tenure"
PORT = 5701


def opening(
    cluster: str | None, grid: Grid | None, registry: Registry | None, settings: ClientSettings | None
) -> Opening[GridClient]:
    """How to open a client's core. Nothing is connected yet; mistakes are raised here."""
    registry = process_registry if registry is None else registry
    if grid is not None:
        if cluster is not None:
            raise Mistake("give a cluster or a grid, not both")
        return partial(open_client, grid, settings=settings, registry=registry, now_ms=wall_clock_ms)
    cluster = cluster or os.environ.get(CLUSTER_VARIABLE)
    if not cluster:
        return partial(_open_embedded, registry, settings)
    parse_cluster(cluster)
    return partial(_open_remote, cluster, registry, settings)


def parse_cluster(text: str) -> "HazelcastSettings":
    """`name@host:port,host:port`: the name may be left out (tenure), a port too (5701)."""
    from tenure.scheduler.grid.hazelcast import HazelcastSettings

    name, at, rest = text.strip().rpartition("@")
    addresses = tuple(_address(part.strip()) for part in rest.split(",") if part.strip())
    if not addresses or (at and not name):
        raise Mistake(f"{text!r} names no cluster: write host:port,host:port or name@host:port")
    try:
        return HazelcastSettings(cluster_name=name or CLUSTER_NAME, addresses=addresses)
    except ValueError as error:
        raise Mistake(f"{text!r} names no cluster: {error}") from None


def reach(text: str) -> dict[str, Any]:
    """What a process elsewhere needs to reach the cluster that `text` names, made of what JSON can hold."""
    settings = parse_cluster(text)
    return {"cluster_name": settings.cluster_name, "addresses": list(settings.addresses)}


def _address(text: str) -> str:
    return text if ":" in text else f"{text}:{PORT}"  # what looks like IPv6 is refused with the rest


def wall_clock_ms() -> int:
    """This machine's time."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def _open_remote(cluster: str, registry: Registry, settings: ClientSettings | None) -> AsyncIterator[GridClient]:
    from tenure.scheduler.grid.hazelcast import HazelcastGrid

    async with (
        HazelcastGrid.connect(parse_cluster(cluster)) as grid,
        open_client(grid, settings=settings, registry=registry, now_ms=wall_clock_ms) as client,
    ):
        yield client


@asynccontextmanager
async def _open_embedded(registry: Registry, settings: ClientSettings | None) -> AsyncIterator[GridClient]:
    from tenure.embedded import open_embedded

    async with (
        open_embedded(registry) as grid,
        open_client(grid, settings=settings, registry=registry, now_ms=wall_clock_ms) as client,
    ):
        yield client
