"""A node that is told to go before it is ready: what it serves by then is handed over. On the memory grid."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import tenure
from tenure.cli.ends import first_error
from tenure.connect import wall_clock_ms
from tenure.nodes import process
from tenure.nodes.application import Application
from tenure.nodes.errors import NotDrained
from tenure.nodes.process import NodeOptions, Ready, run_node
from tenure.scheduler.client import open_client
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.jobtype import registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings
from tests.api.jobs import Script, step

PARTITIONS = 4
OPTIONS = NodeOptions(cluster="memory@127.0.0.1:1", drain_deadline_s=20, settings=NodeSettings(drain_deadline_s=600))


async def _for_ever(job: Script, ctx: tenure.Context) -> None:
    await trio.sleep_forever()


FOR_EVER = step(_for_ever)


class Starting:
    """A node that serves, and is never ready; all that `run_node` said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = MemoryCluster(partitions=PARTITIONS, members=1, backups=0)
        self.nodes: list[Node] = []
        self.ready: list[Ready] = []
        self.said: list[str] = []
        node = process._node

        def made(*arguments: Any) -> Node:
            self.nodes.append(node(*arguments))
            return self.nodes[0]

        monkeypatch.setattr(process, "_node", made)
        monkeypatch.setattr(process, "_connect", self._connect)
        monkeypatch.setattr(process, "check_members", lambda _grid: [])
        monkeypatch.setattr(process, "_serves_its_share", lambda _node: False)

    @asynccontextmanager
    async def _connect(self, _options: NodeOptions, _address: str) -> AsyncIterator[Any]:
        grid: Any = self.cluster.connect()
        grid.members_seen = tuple
        yield grid

    def run(self, meanwhile: Callable[[], Awaitable[None]]) -> float:
        """How long it took, in virtual time."""

        async def both() -> float:
            began_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(meanwhile)
                await run_node(OPTIONS, Application("tests", registry), self.ready.append)
            return trio.current_time() - began_s

        with capture_logs() as lines:
            try:
                return trio.run(both, clock=MockClock(autojump_threshold=0))
            finally:
                self.said = [line["event"] for line in lines]

    async def serves(self) -> Node:
        while not self.nodes or len(self.nodes[0].tenures) < PARTITIONS:  # noqa: ASYNC110
            await trio.sleep(0.01)
        return self.nodes[0]


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Starting:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))  # nodes remember there which cluster was theirs
    return Starting(monkeypatch)


def by_signal(_node: Node) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def by_order(node: Node) -> None:
    node.told_to_leave.set()


@pytest.mark.parametrize("tell", [by_signal, by_order])
def test_what_it_serves_is_handed_over_at_once(starting: Starting, tell: Callable[[Node], None]) -> None:
    async def told() -> None:
        tell(await starting.serves())

    assert starting.run(told) < process.READY_AFTER_S_MAX / 2
    assert starting.said[-2:] == ["draining", "drained"]
    assert starting.ready == [], "it never was"


def test_the_deadline_for_handing_over_counts_too(starting: Starting) -> None:
    async def told_amid_a_turn() -> None:
        await starting.serves()
        async with open_client(starting.cluster.connect(), registry=registry, now_ms=wall_clock_ms) as client:
            await client.defining.schedule("api-script", "long", {})
            await client.publish("long", FOR_EVER)
            while not (await client.directory.describe("long"))["running"]:  # noqa: ASYNC110
                await trio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(ExceptionGroup) as raised:
        starting.run(told_amid_a_turn)
    assert isinstance(first_error(raised.value), NotDrained)
    assert starting.ready == []


def test_before_it_serves_anything_it_gives_up(starting: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def nobody_answers(_options: NodeOptions, _address: str) -> AsyncIterator[Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep_forever()
        yield

    monkeypatch.setattr(process, "_connect", nobody_answers)
    starting.run(trio.lowlevel.checkpoint)
    assert starting.said == ["stopped before it was ready"]
