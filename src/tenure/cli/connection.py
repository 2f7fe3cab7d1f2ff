"""A command's connection to its cluster, and what is said when nobody answers."""

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.cli.ends import Unreachable, first_error
from tenure.cli.options import Connection
from tenure.cli.show import say

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient
    from tenure.scheduler.grid.hazelcast import HazelcastGrid
    from tenure.scheduler.jobtype import Registry
    from tenure.scheduler.settings import ClientSettings

__all__ = ["client_settings", "cluster_of", "connected", "connected_grid", "hush", "known_types"]


def cluster_of(connection: Connection) -> str:
    """The cluster that is meant: the one given, else the one that clients find, too."""
    if connection.cluster:
        return connection.cluster
    from tenure.connect import find_cluster

    return find_cluster()


WAYS_BACK = (
    "Restore a snapshot (`tenure restore URL --replace`); or, if it is meant to be a new one, say so (`tenure doctor "
    "--accept`)."
)
CONNECT_S, SAY_AFTER_S = 10.0, 1.0


@asynccontextmanager
async def connected_grid(connection: Connection) -> AsyncIterator["HazelcastGrid"]:
    """A connection to the members. Raises `CannotConnect`."""
    from tenure.connect import check_listening, parse_cluster
    from tenure.scheduler.grid.hazelcast import HazelcastGrid

    hush(connection)
    settings = replace(parse_cluster(cluster_of(connection)), connect_timeout_s=connection.connect_timeout or CONNECT_S)
    if connection.connect_timeout is None:
        await check_listening(settings)
    with _saying_what_is_waited_for(f"waiting for {cluster_of(connection)} …") as come:
        async with HazelcastGrid.connect(settings) as grid:
            come()
            yield grid


@contextmanager
def _saying_what_is_waited_for(text: str) -> "Iterator[Callable[[], None]]":
    """After a second, unless what it yields is called before that."""
    timer = threading.Timer(SAY_AFTER_S, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


@asynccontextmanager
async def connected(connection: Connection, registry: "Registry | None" = None) -> AsyncIterator["GridClient"]:
    """A client. When it waited in vain, the error says whether nodes are missing. Without an application it knows the
    types of this registry; none, if none is given."""
    from tenure.connect import wall_clock_ms
    from tenure.scheduler.client import open_client
    from tenure.scheduler.errors import NotDone

    settings, registry = client_settings(connection), known_types(connection, registry)
    async with connected_grid(connection) as grid:
        await _formed(grid, connection)
        try:
            async with open_client(grid, settings=settings, registry=registry, now_ms=wall_clock_ms) as client:
                yield client
        except BaseException as error:
            if isinstance(first := first_error(error), NotDone):
                raise await _diagnosed(grid, first) from error
            raise


def client_settings(connection: Connection) -> "ClientSettings":
    """How long to wait for answers."""
    from tenure.scheduler.settings import ClientSettings

    return ClientSettings(publish_deadline_s=connection.timeout, ask_deadline_s=connection.timeout)


def known_types(connection: Connection, otherwise: "Registry | None" = None) -> "Registry":
    """The job types of the application, if one is named. Raises `BadApplication`."""
    from tenure.nodes import load
    from tenure.scheduler.jobtype import Registry

    if connection.app:
        return load(connection.app).registry
    return Registry() if otherwise is None else otherwise


def hush(connection: Connection) -> None:
    """The grid's own log tells in pages what our errors tell in a sentence."""
    if not connection.debug:
        for name in ("hazelcast", "tenure.scheduler.grid"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


async def _formed(grid: "HazelcastGrid", connection: Connection) -> None:
    from tenure.cli.seen import another_than_before
    from tenure.cli.show import say
    from tenure.cli.standing import Unformed, standing
    from tenure.scheduler.grid.port import GridError

    try:
        found = await standing(grid)
    except GridError as error:
        what = f"The members of {cluster_of(connection)} do not answer: {error}"
        raise Unreachable(f"{what.rstrip('.')}. See `tenure doctor`.") from error
    if isinstance(found, Unformed):
        raise Unreachable(f"The members of {cluster_of(connection)} are there, and {found.finding}. {found.next_step}")
    if grid.address and (what := another_than_before(cluster_of(connection), found)):
        say(f"tenure: {what}. {WAYS_BACK}")


async def _diagnosed(grid: "HazelcastGrid", error: Exception) -> Exception:
    from tenure.cli.standing import Unformed, standing
    from tenure.scheduler.grid.port import GridError
    from tenure.scheduler.nodes_seen import live_nodes

    try:
        found, nodes = await standing(grid), await live_nodes(grid)
    except GridError:
        return error
    what = str(error).rstrip(".")
    if isinstance(found, Unformed):
        return Unreachable(f"{what}: {found.finding}. {found.next_step}")
    if found.sealed:
        return Unreachable(f"{what}: the cluster is being shut down, with a snapshot. Wait for the end of that.")
    if not nodes:
        return Unreachable(f"{what}: no node is running. Start one with `tenure node APP`.")
    if lost := {partition for node in nodes for partition in node.lost}:
        return Unreachable(f"{what}: {len(lost)} partitions are lost. See `tenure partitions`.")
    return error
