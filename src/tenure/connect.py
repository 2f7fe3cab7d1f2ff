"""Where a client's cluster comes from: a connection that is given, an address, the environment, or what runs here.

One of its own is started only for those who ask for it by name. In a handler it is the handler's own cluster.
"""

import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
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

__all__ = [
    "CLUSTER_VARIABLE",
    "Within",
    "check_listening",
    "exported",
    "find_cluster",
    "open_remote",
    "opening",
    "opening_embedded",
    "parse_cluster",
    "reach",
    "within",
]

CLUSTER_VARIABLE = "TENURE_CLUSTER"
CLUSTER_NAME = "tenure"
PORT = 5701
PROBE_S = 0.5
DEFAULT_CLUSTER = f"{CLUSTER_NAME}@127.0.0.1:{PORT}"

Within = Callable[[Registry | None, ClientSettings | None], AbstractAsyncContextManager[GridClient]]
"""How those who run in a cluster's own process open a client of it."""
_within: ContextVar[Within | None] = ContextVar("tenure_within", default=None)


def opening(
    cluster: str | None, grid: Grid | None, registry: Registry | None, settings: ClientSettings | None
) -> Opening[GridClient]:
    """How to open a client's core. Nothing is connected yet; mistakes are raised here."""
    known = process_registry if registry is None else registry
    if grid is not None:
        if cluster is not None:
            raise Mistake("give a cluster or a grid, not both")
        return partial(open_client, grid, settings=settings, registry=known, now_ms=wall_clock_ms)
    if not cluster and (open_within := _within.get()) is not None:
        return partial(open_within, registry, settings)
    cluster = cluster or os.environ.get(CLUSTER_VARIABLE)
    if not cluster:
        return partial(_open_found, known, settings)
    parse_cluster(cluster)
    return partial(open_remote, cluster, known, settings)


def opening_embedded(registry: Registry | None, settings: ClientSettings | None) -> Opening[GridClient]:
    """How to open one with a cluster of its own."""
    return partial(_open_embedded, process_registry if registry is None else registry, settings)


def find_cluster() -> str:
    """The cluster that is meant where none is named: the one embedded cluster of this machine, else the default."""
    from tenure.nodes.whereabouts import embedded_clusters

    found = embedded_clusters()
    if len(found) > 1:
        raise Mistake(
            f"Several nodes run embedded clusters here: choose with --cluster, or {CLUSTER_VARIABLE}, one of "
            f"{', '.join(found)}"
        )
    return found[0] if found else DEFAULT_CLUSTER


@contextmanager
def within(open_within: Within) -> Iterator[None]:
    """Tasks that are started meanwhile, and theirs, are in this cluster: `Client()` is a client of it there."""
    token = _within.set(open_within)
    try:
        yield
    finally:
        _within.reset(token)


@contextmanager
def exported(cluster: str) -> Iterator[None]:
    """For what handlers of a node do in threads of their own, and for its child processes."""
    before = os.environ.get(CLUSTER_VARIABLE)
    os.environ[CLUSTER_VARIABLE] = cluster
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(CLUSTER_VARIABLE, None)
        else:
            os.environ[CLUSTER_VARIABLE] = before


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


async def check_listening(settings: "HazelcastSettings") -> None:
    """Raises `CannotConnect` where nobody need wait to know that nobody is there: all addresses are of this machine,
    and nothing listens there."""
    import trio

    from tenure.scheduler.grid.hazelcast import CannotConnect

    if await trio.to_thread.run_sync(_may_be_listening, settings.addresses):
        return
    raise CannotConnect(
        f"No connection to cluster {settings.cluster_name!r} at {', '.join(settings.addresses)}: nothing listens "
        "there. Start a member there, or name the address and the cluster of a running one."
    )


def _may_be_listening(addresses: Sequence[str]) -> bool:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not _is_loopback(host):
            return True
        with socket.socket() as probe:
            probe.settimeout(PROBE_S)
            if probe.connect_ex((host, int(port))) != errno.ECONNREFUSED:
                return True
    return False


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def wall_clock_ms() -> int:
    """This machine's time."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def open_remote(cluster: str, registry: Registry, settings: ClientSettings | None) -> AsyncIterator[GridClient]:
    """A client of the cluster at this address. Raises `CannotConnect`."""
    from tenure.scheduler.grid.hazelcast import HazelcastGrid

    settings_of_grid = parse_cluster(cluster)
    await check_listening(settings_of_grid)
    async with (
        HazelcastGrid.connect(settings_of_grid) as grid,
        open_client(grid, settings=settings, registry=registry, now_ms=wall_clock_ms) as client,
    ):
        yield client


@asynccontextmanager
async def _open_found(registry: Registry, settings: ClientSettings | None) -> AsyncIterator[GridClient]:
    from tenure.scheduler.grid.hazelcast import CannotConnect

    cluster, is_open = find_cluster(), False
    try:
        async with open_remote(cluster, registry, settings) as client:
            is_open = True
            yield client
    except CannotConnect as error:
        if is_open:
            raise
        raise CannotConnect(
            f'{error} No cluster was named, so this was tried: name one (Client("name@host:port"), or '
            f"{CLUSTER_VARIABLE} in the environment), run `tenure dev APP`, or, for one that ends with the client and "
            "all its data, open Client.embedded()."
        ) from error


@asynccontextmanager
async def _open_embedded(registry: Registry, settings: ClientSettings | None) -> AsyncIterator[GridClient]:
    from tenure.embedded import open_embedded

    async with (
        open_embedded(registry) as grid,
        open_client(grid, settings=settings, registry=registry, now_ms=wall_clock_ms) as client,
    ):
        yield client
