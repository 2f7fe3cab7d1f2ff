"""`docker compose up`: three members, three nodes; what dies comes back, what is stopped hands over first."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import docker
import pytest
import trio

import tenure
from tests.cluster import ledger
from tests.docker.compose import Compose, composer
from tests.docker.engine import Images, NoEngine

pytestmark = pytest.mark.docker

T = TypeVar("T")
WITHIN_S = 90.0


async def _there(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


@asynccontextmanager
async def _up(images: Images, folder: Path) -> AsyncIterator[Compose]:
    try:
        command = await _there(composer)
    except NoEngine as reason:
        pytest.skip(str(reason))
    compose = Compose(command, images, folder, Path(ledger.__file__))
    try:
        await _there(partial(compose, "up", "-d"))
        yield compose
    finally:
        with trio.CancelScope(shield=True):
            await _there(partial(compose, "down", "--timeout", "5"))


class Services:
    """The containers of a compose file, by the names of their services."""

    def __init__(self) -> None:
        self._docker = docker.from_env()
        found = self._docker.containers.list(all=True, filters={"label": "com.docker.compose.project=tenure-test"})
        self._by_name = {one.labels["com.docker.compose.service"]: one for one in found}

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def die(self, name: str) -> None:
        """Its process is gone, and nobody has asked for that."""
        container = self._by_name[name]
        container.reload()
        os.kill(container.attrs["State"]["Pid"], signal.SIGKILL)

    def restarts(self, name: str) -> int:
        container = self._by_name[name]
        container.reload()
        return int(container.attrs["RestartCount"])

    def exit_codes(self) -> dict[str, int]:
        for container in self._by_name.values():
            container.reload()
        return {name: container.attrs["State"]["ExitCode"] for name, container in self._by_name.items()}

    def close(self) -> None:
        self._docker.close()


async def _until(client: tenure.Client, members: int, nodes: int) -> None:
    with trio.fail_after(WITHIN_S):
        while True:
            scale = await client.scale()
            if (scale["members"], sum(node["partitions"] > 0 for node in scale["nodes"])) == (members, nodes):
                return
            await trio.sleep(0.2)


async def test_what_dies_comes_back_and_what_is_stopped_hands_over(images: Images, tmp_path: Path) -> None:
    async with _up(images, tmp_path) as compose:
        services = Services()
        assert services.names() == ["member-1", "member-2", "member-3", "node-1", "node-2", "node-3"]
        async with tenure.Client(compose.cluster) as client, trio.open_nursery() as nursery:
            await _until(client, members=3, nodes=3)
            books = ledger.Ledger(client, per_second=500)
            await books.open(nursery)
            await trio.sleep(1)

            services.die("node-2")
            await trio.sleep(2)
            services.die("member-2")
            await trio.sleep(5)
            await _until(client, members=3, nodes=3)
            assert (services.restarts("node-2"), services.restarts("member-2")) == (1, 1)
            assert {node.name for node in await client.nodes()} == {"node-1", "node-2", "node-3"}

            await _there(partial(compose, "stop", "node-1"))
            await _until(client, members=3, nodes=2)
            await books.check()
            nursery.cancel_scope.cancel()
        await _there(partial(compose, "stop"))
        assert services.exit_codes() == dict.fromkeys(services.names(), 0)
        services.close()
