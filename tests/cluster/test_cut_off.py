"""A client or a node that is cut off while all members live: they hold what they held, and it comes back to them."""

import itertools
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio

import tenure
from tenure.connect import wall_clock_ms
from tenure.listeners import listening
from tenure.members import Member, free_port, start_member
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.port import EntryEvent, Map, OwnershipEvent, Refused, Unknown
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import registry
from tenure.scheduler.node import Node
from tests.cluster.test_adapter import SETTINGS, Cluster, pair, until

__all__ = ["pair"]

pytestmark = pytest.mark.cluster

DEADLINE_S, SLACK_S = 0.5, 0.5
CUT_S = 3.0
Handler = Callable[[trio.SocketStream], Awaitable[None]]


class Way:
    """The only way to a member for those that it tells where it is. While it is blocked, what went over it has broken
    off, and nothing gets through: connections are refused, or taken and never answered."""

    def __init__(self, nursery: trio.Nursery, port: int, member_port: int) -> None:
        self._nursery, self._port, self._member_port = nursery, port, member_port
        self._scope = trio.CancelScope()

    async def open(self) -> None:
        await self._begin(self._carry)

    async def block(self, *, answers_nothing: bool = False) -> None:
        self._scope.cancel()
        if answers_nothing:
            await self._begin(self._hold)

    async def _begin(self, handler: Handler) -> None:
        self._scope.cancel()
        self._scope = trio.CancelScope()
        await self._nursery.start(self._serve, handler, self._scope)

    async def _serve(self, handler: Handler, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Any]) -> None:
        with scope:
            await trio.serve_tcp(handler, self._port, host="127.0.0.1", task_status=task_status)

    async def _hold(self, _: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def _carry(self, stream: trio.SocketStream) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self._member_port) as member, trio.open_nursery() as both:
            both.start_soon(self._pump, stream, member, both.cancel_scope)
            both.start_soon(self._pump, member, stream, both.cancel_scope)

    async def _pump(self, one: trio.SocketStream, other: trio.SocketStream, end: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in one:
                await other.send_all(data)
        end.cancel()


@dataclass
class Behind:
    """A member whose clients come to it by a way that can be blocked, but for their first connection."""

    member: Member
    port: int
    """Where the way begins."""

    @asynccontextmanager
    async def way(self) -> AsyncIterator[Way]:
        async with trio.open_nursery() as nursery:
            way = Way(nursery, self.port, self.member.address[1])
            await way.open()
            yield way
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def connect(self, *, directly: bool = False) -> AsyncIterator[HazelcastGrid]:
        port = self.member.address[1] if directly else self.port
        settings = HazelcastSettings(
            cluster_name=self.member.settings.cluster_name,
            addresses=(f"127.0.0.1:{port}",),
            op_deadline_s=DEADLINE_S,
            backups=0,
        )
        async with HazelcastGrid.connect(settings) as grid:
            yield grid


@pytest.fixture(scope="module")
def behind() -> Iterator[Behind]:
    port = free_port()
    options = (f"-Dhazelcast.local.publicAddress=127.0.0.1:{port}",)
    settings = replace(SETTINGS, cluster_name="cut-off", port=free_port(), jvm_options=options)
    member = trio.run(start_member, settings)
    yield Behind(member, port)
    member.kill()


class Calls:
    """Calls that are made all the while. Any end but the three that the port knows would end the test."""

    def __init__(self, grid: HazelcastGrid) -> None:
        self.grid = grid
        self.stored: list[tuple[int, bytes]] = []
        self.undone = 0
        self.longest_s = 0.0

    async def run(self) -> None:
        for turn in itertools.count():
            key, partition = os.urandom(8), turn % self.grid.partition_count
            for reads in (False, True):
                began_s = time.monotonic()
                try:
                    if reads:
                        await self.grid.get(Map.JOURNAL, partition, key)
                    elif await self.grid.put_if_absent(Map.JOURNAL, partition, key, key) in (None, key):
                        self.stored.append((partition, key))
                    else:
                        pytest.fail("somebody else's value")
                except (Refused, Unknown):
                    self.undone += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                await trio.sleep(0.005)

    async def check(self) -> None:
        """Each ended in time, and what was acknowledged is there."""
        assert self.longest_s < DEADLINE_S + SLACK_S
        for partition, key in self.stored:
            assert await self.grid.get(Map.JOURNAL, partition, key, timeout_s=5) == key


@asynccontextmanager
async def calling(grid: HazelcastGrid) -> AsyncIterator[Calls]:
    calls = Calls(grid)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(calls.run)
        yield calls
        nursery.cancel_scope.cancel()


def stands(grid: HazelcastGrid) -> bool:
    """Have members confirmed all that is to be heard?"""
    return all(map(grid._subscriptions._stands, grid._subscriptions._open))


def of_the_paired(grid: HazelcastGrid) -> list[int]:
    ownership = grid.ownership()
    return [partition for partition, primary in enumerate(ownership.primaries) if primary == ownership.paired]


async def test_all_connections_lost_at_once_are_made_anew(pair: Cluster) -> None:
    events: list[OwnershipEvent] = []
    heard: list[EntryEvent] = []
    heard_of_one: list[EntryEvent] = []
    run = os.urandom(8)
    async with (
        pair.connect(op_deadline_s=DEADLINE_S) as grid,
        pair.connect() as other,
        grid.watch_ownership(events.append),
        grid.listen(Map.INBOX, heard.extend),
        grid.listen(Map.REPLIES, heard_of_one.extend, key=(3, run)),
    ):
        await until(lambda: len(grid._client.connections) == 2 and stands(grid))
        before = grid.ownership()
        async with calling(grid) as calls:
            await until(lambda: len(calls.stored) > 20)
            events.clear()
            lost = grid._client.connections
            for connection in lost.values():
                connection.socket.shutdown(socket.SHUT_RDWR)
            await until(lambda: OwnershipEvent.DISCONNECTED in events)
            cut = events.index(OwnershipEvent.DISCONNECTED)
            await until(lambda: OwnershipEvent.RECONNECTED in events[cut:])
            stored = len(calls.stored)
            await until(lambda: len(calls.stored) > stored + 20)
        assert not {OwnershipEvent.MERGED, OwnershipEvent.PARTITION_LOST} & set(events)
        await until(lambda: len(grid._client.connections) == 2 and stands(grid))
        assert not set(lost.values()) & set(grid._client.connections.values())
        assert (grid.ownership().members, grid.ownership().paired) == (before.members, before.paired)
        await calls.check()
        heard.clear()
        keys = {run + b"%d" % partition for partition in of_the_paired(grid)}
        for partition in of_the_paired(grid):
            await other.set(Map.INBOX, partition, run + b"%d" % partition, b"", timeout_s=5)
        await other.set(Map.REPLIES, 3, run, b"", timeout_s=5)
        await until(lambda: keys <= {event.key for event in heard} and bool(heard_of_one))
        assert (len(heard), len(heard_of_one)) == (len(keys), 1), "what it is told, it is told once"


@pytest.mark.parametrize("answers_nothing", [False, True])
async def test_as_long_as_nothing_gets_through_calls_end_in_time(behind: Behind, answers_nothing: bool) -> None:
    events: list[OwnershipEvent] = []
    heard: list[EntryEvent] = []
    run = os.urandom(8)
    async with (
        behind.way() as way,
        behind.connect() as grid,
        behind.connect(directly=True) as other,
        grid.watch_ownership(events.append),
        grid.listen(Map.INBOX, heard.extend),
    ):
        assert grid.address == f"cut-off@127.0.0.1:{behind.port}"
        async with calling(grid) as calls:
            await until(lambda: len(calls.stored) > 20)
            events.clear()
            await way.block(answers_nothing=answers_nothing)
            await until(lambda: OwnershipEvent.DISCONNECTED in events)
            assert grid.ownership().paired is None
            stored, undone = len(calls.stored), calls.undone
            await trio.sleep(CUT_S)
            assert len(calls.stored) == stored
            assert calls.undone > undone
            assert OwnershipEvent.RECONNECTED not in events
            await other.set(Map.INBOX, 5, run + b"untold", b"", timeout_s=5)
            await way.open()
            await until(lambda: OwnershipEvent.RECONNECTED in events)
            await until(lambda: len(calls.stored) > stored + 20)
        assert not {OwnershipEvent.MERGED, OwnershipEvent.PARTITION_LOST} & set(events)
        await until(lambda: stands(grid))
        await calls.check()
        await other.set(Map.INBOX, 5, run + b"told", b"", timeout_s=5)
        await until(lambda: bool(heard))
        assert [event.key for event in heard] == [run + b"told"]


taken: list[int] = []


@tenure.job("cut-off-taker")
class Taker(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: int) -> None:
        taken.append(message)


async def test_a_node_that_is_back_looks_for_what_no_event_told_of(behind: Behind) -> None:
    taken.clear()
    events: list[OwnershipEvent] = []
    # By itself it would not look within the time of this test.
    settings = tenure.NodeSettings(sweep_s=600, definitions_sweep_s=600)
    async with (
        behind.way() as way,
        behind.connect() as grid,
        behind.connect(directly=True) as other,
        grid.watch_ownership(events.append),
        tenure.Client(grid=other) as client,
        trio.open_nursery() as nursery,
    ):
        formed = await find_or_form(grid, "cut-off")
        host = Host(grid, "cut-off", registry, wall_clock_ms, formed.formation, formed.incarnation, settings)
        node = Node(host, listening, name="cut-off")
        await nursery.start(node.run)
        await client.schedule(Taker, id="taker")
        await client.publish("taker", 1)
        await until(lambda: taken == [1])
        tenures = dict(node.tenures)
        events.clear()
        await way.block()
        await until(lambda: OwnershipEvent.DISCONNECTED in events)
        await client.publish("taker", 2)
        await trio.sleep(CUT_S)
        assert taken == [1]
        await way.open()
        await until(lambda: taken == [1, 2])
        assert OwnershipEvent.RECONNECTED in events
        assert dict(node.tenures) == tenures, "it has stayed their owner"
        await client.publish("taker", 3)
        await until(lambda: taken == [1, 2, 3])
        nursery.cancel_scope.cancel()
