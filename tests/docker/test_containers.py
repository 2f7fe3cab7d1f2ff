"""Real containers: three members and three nodes under load, killed and stopped; the books must balance."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

import tenure
from tenure.members import free_port
from tests.cluster import ledger
from tests.docker.containers import Container
from tests.docker.engine import Images

pytestmark = pytest.mark.docker

APPLICATION = Path(ledger.__file__)
PORTS = [free_port("127.0.0.1") for _ in range(3)]
JOIN = ",".join(f"127.0.0.1:{port}" for port in PORTS)
CLUSTER = f"tenure@{JOIN}"
T = TypeVar("T")


class Site:
    """What runs."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.members: list[Container] = []
        self.nodes: list[Container] = []
        self._nodes_ever = 0

    async def start_member(self, port: int) -> Container:
        arguments = ["--port", str(port), "--join", JOIN, "--members-count", "3", "--memory", "256"]
        member = await _there(lambda: Container(self.images.member, arguments))
        self.members.append(member)
        await _there(member.ready)
        return member

    async def start_node(self) -> Container:
        self._nodes_ever += 1
        name = f"node-{self._nodes_ever}"
        arguments = ["--name", name, "/app/app.py"]
        node = await _there(lambda: Container(self.images.node, arguments, cluster=CLUSTER, app=APPLICATION))
        self.nodes.append(node)
        return node


async def _there(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


@asynccontextmanager
async def _site(images: Images) -> AsyncIterator[Site]:
    site = Site(images)
    try:
        for port in PORTS:
            await site.start_member(port)
        for node in [await site.start_node() for _ in range(3)]:
            await _there(node.ready)
        yield site
    finally:
        with trio.CancelScope(shield=True):
            for container in (*site.nodes, *site.members):
                await _there(container.remove)


async def test_containers_come_and_go_and_the_books_balance(images: Images) -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(_site(images))
        client = await stack.enter_async_context(tenure.Client(CLUSTER))
        nursery = await stack.enter_async_context(trio.open_nursery())
        books = ledger.Ledger(client, per_second=500)
        await books.open(nursery)

        for container in (site.members[0], site.nodes[0]):
            await _there(container.healthy)
            assert await _there(partial(container.run, "id", "-u")) == "10001\n"

        await _there(site.nodes[0].kill)
        await trio.sleep(3)
        await _there((await site.start_node()).ready)

        assert await _there(site.nodes[1].stop) == 0
        assert '"drained"' in site.nodes[1].said()

        assert await _there(site.members[0].stop) == 0
        await trio.sleep(1)
        await site.start_member(PORTS[0])
        await trio.sleep(3)  # backups are made anew
        await _there(site.members[1].kill)
        await trio.sleep(3)

        await books.check()
        scale = await client.scale()
        assert (scale["members"], len(scale["nodes"])) == (2, 2)
        nursery.cancel_scope.cancel()
