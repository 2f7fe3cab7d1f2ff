"""Partitions go from node to node a few at a time; what is gone is seen, and what comes back is welcome."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from tenure.listeners import listening
from tenure.scheduler.assignment import NODE_PREFIX, Assignment, NodeInfo
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.handoffs import Bell, Handoffs
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.lookout import Lookout
from tenure.scheduler.node import Node
from tenure.scheduler.presence import Presence
from tenure.scheduler.serving import Serving
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.state import PartitionState
from tenure.scheduler.wire import encode

PARTITIONS = 40


class Sleeper(Job):
    pass


class Nodes:
    """Nodes of one memory grid, in this trio run."""

    def __init__(self, nursery: trio.Nursery, members: int = 1, **settings: object) -> None:
        self.cluster = MemoryCluster(partitions=PARTITIONS, members=members, backups=0)
        self.nursery = nursery
        self.settings = NodeSettings(**settings)  # type: ignore[arg-type]
        self.grids: dict[str, MemoryGrid] = {}
        self.scopes: dict[str, trio.CancelScope] = {}

    async def add(self, name: str, neighbours: "Obituaries | None" = None, member: str | None = None) -> Node:
        grid = self.grids[name] = self.cluster.connect(member=member)
        formed = await find_or_form(grid, "f")
        registry = Registry()
        registry.add(JobType("sleeper", Sleeper))
        host = Host(grid, name, registry, lambda: round(trio.current_time() * 1000), formed.formation, 1, self.settings)
        node = Node(host, listening, name=name, neighbours=neighbours)
        scope = self.scopes[name] = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await node.run(task_status=task_status)

        await self.nursery.start(run)
        return node

    def kill(self, name: str) -> None:
        self.grids[name].close()
        self.scopes[name].cancel()

    async def listed(self) -> set[str]:
        grid = self.cluster.connect()
        found: set[str] = set()
        async for page in grid.scan(Map.NODES, 0):
            found |= {entry.key.decode() for entry in page if entry.key.startswith(NODE_PREFIX)}
        return {key.removeprefix(NODE_PREFIX.decode()) for key in found}


class Obituaries:
    """Stands for what the system tells of processes."""

    host, born = "here", 1

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def is_gone(self, node: NodeInfo) -> bool:
        return node.id in self.gone


@asynccontextmanager
async def nodes(members: int = 1, **settings: object) -> AsyncIterator[Nodes]:
    async with trio.open_nursery() as nursery:
        yield Nodes(nursery, members, **settings)
        nursery.cancel_scope.cancel()


async def until(true: object, timeout_s: float = 30) -> float:
    began_s = trio.current_time()
    with trio.fail_after(timeout_s):
        while not true():  # type: ignore[operator]  # noqa: ASYNC110
            await trio.sleep(0.005)
    return trio.current_time() - began_s


async def test_partitions_are_given_a_few_at_a_time_and_the_others_are_served_meanwhile(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    served: list[int] = []
    real = Serving.close

    def close(self: Serving, successor: str) -> None:
        if self.partition not in closed:
            closed.append(self.partition)
            unserved = PARTITIONS - len(self.node.tenures) - sum(len(node.tenures) for node in others)
            served.append(unserved)
        real(self, successor)

    monkeypatch.setattr(Serving, "close", close)
    async with nodes(handoffs_at_once=4) as crew:
        first = await crew.add("a")
        await until(lambda: len(first.tenures) == PARTITIONS)
        second = await crew.add("b")
        others = [second]
        await until(lambda: len(second.tenures) == PARTITIONS // 2 == len(first.tenures))
        in_order = sorted(closed)
        assert all(abs(in_order.index(it) - at) < 4 for at, it in enumerate(closed)), "lowest numbers first"
        assert len(closed) == PARTITIONS // 2
        assert max(served) <= 4, "no more than four stand still at any time"


async def test_a_partition_is_closed_only_when_its_successor_knows(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    knew: list[bool] = []
    real = Serving.close

    def close(self: Serving, successor: str) -> None:
        info = self.node.nodes.get(successor)
        knew.append(info is not None and info.follows >= self.node.assignment.version)
        real(self, successor)

    async with nodes() as crew:
        first = await crew.add("a")
        await until(lambda: len(first.tenures) == PARTITIONS)
        monkeypatch.setattr(Serving, "close", close)
        second = await crew.add("b")
        await until(lambda: len(second.tenures) == PARTITIONS // 2)
    assert knew
    assert all(knew)


@pytest.mark.parametrize("are_events_heard", [True, False])
async def test_closings_and_openings_are_heard_of_and_found_by_looking_if_not(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, are_events_heard: bool
) -> None:
    if not are_events_heard:
        monkeypatch.setattr(Handoffs, "ring", lambda self, partition, head: None)
    poll_s = 0.8
    async with nodes(handoffs_at_once=4, handoff_poll_s=poll_s) as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        began_s = trio.current_time()
        await first.drain()
        await until(lambda: len(second.tenures) == PARTITIONS)
        took_s = trio.current_time() - began_s
    rounds = PARTITIONS // 2 // 4
    assert (took_s < rounds * poll_s / 2) == are_events_heard


async def test_what_is_not_handed_over_yet_is_still_heard_of(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are paired with one member: of the other's partitions they hear because they ask to."""
    deaf: list[int] = []
    real = Node._apply

    def apply(self: Node) -> None:
        real(self)
        primaries, paired = self.grid.ownership().primaries, self.grid.ownership().paired
        deaf.extend(p for p in self._serving if primaries[p] != paired and primaries[p] not in self._heard)

    async with nodes(members=2, handoffs_at_once=2) as crew:
        member = crew.cluster.members[0]
        first, second = await crew.add("a", member=member), await crew.add("b", member=member)
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        monkeypatch.setattr(Node, "_apply", apply)
        await first.drain()
        await until(lambda: len(second.tenures) == PARTITIONS)
    assert not deaf


async def test_a_drained_node_hands_over_everything_also_to_one_that_never_says_what_it_knows(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Presence.info
    monkeypatch.setattr(Presence, "info", lambda self: msgspec.structs.replace(real(self), follows=0))
    async with nodes() as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(first.tenures) + len(second.tenures) == PARTITIONS)
        await first.drain()
        assert not first.tenures
        await until(lambda: len(second.tenures) == PARTITIONS)


async def test_a_dead_neighbour_is_followed_within_two_beats_others_when_their_hearts_stood_still(
    autojump_clock: trio.testing.MockClock,
) -> None:
    took_s = {}
    for known in (True, False):
        obituaries = Obituaries()
        async with nodes() as crew:
            first = await crew.add("a", obituaries)
            second = await crew.add("b", obituaries)
            await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)  # noqa: B023
            await trio.sleep(2)
            crew.kill("b")
            if known:
                obituaries.gone.add("b")
            took_s[known] = await until(lambda: len(first.tenures) == PARTITIONS)  # noqa: B023
    assert took_s[True] < 3 * NodeSettings().heartbeat_s
    assert NodeSettings().gone_after_s - NodeSettings().heartbeat_s < took_s[False] < 3.0


async def test_the_dead_are_listed_for_a_minute(autojump_clock: trio.testing.MockClock) -> None:
    async with nodes() as crew:
        await crew.add("a")
        await crew.add("b")
        crew.kill("b")
        await trio.sleep(55)
        assert await crew.listed() == {"a", "b"}
        await trio.sleep(10)
        assert await crew.listed() == {"a"}


async def test_who_was_only_silent_is_listed_again(autojump_clock: trio.testing.MockClock) -> None:
    async with nodes() as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(second.tenures) == PARTITIONS // 2)
        await first.grid.delete(Map.NODES, 0, NODE_PREFIX + b"b")
        await trio.sleep(2)
        assert await crew.listed() == {"a", "b"}
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)


@asynccontextmanager
async def late_beats(node: Node) -> AsyncIterator[list[float]]:
    """The node's heartbeats reach the grid late, by what the list says: the last for all that come after the others."""
    real, late_s = node.grid.set, [0.0]

    async def set_late(map: Map, *args: Any, **kwargs: Any) -> None:
        if map is Map.NODES:
            await trio.sleep(late_s.pop(0) if len(late_s) > 1 else late_s[0])
        await real(map, *args, **kwargs)

    node.grid.set = set_late  # type: ignore[method-assign]
    try:
        yield late_s
    finally:
        node.grid.set = real  # type: ignore[method-assign]


@pytest.mark.parametrize("was_late", [True, False])
async def test_who_was_late_of_late_is_given_more_time(was_late: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with nodes() as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        await trio.sleep(2)
        async with late_beats(second) as late_s:
            late_s[:] = [0.8 if was_late else 0.1, 0.1, 0.1, 0.1, 2.0, 0.0]
            most = 0
            for _ in range(50):
                await trio.sleep(0.1)
                most = max(most, len(first.tenures))
    assert (most > PARTITIONS // 2) is not was_late


async def test_who_was_very_late_and_dies_is_missed_before_long(autojump_clock: trio.testing.MockClock) -> None:
    async with nodes() as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        async with late_beats(second) as late_s:
            late_s[:] = [60.0, 0.0]
            await until(lambda: len(first.tenures) == PARTITIONS)
            await until(lambda: len(second.tenures) == PARTITIONS // 2, timeout_s=90)
        crew.kill("b")
        took_s = await until(lambda: len(first.tenures) == PARTITIONS)
    assert took_s < 7.0


async def test_who_is_late_itself_has_more_patience_with_others(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trio.Event.wait

    async def wait_late(self: trio.Event) -> None:
        """As on a machine where everything comes half a second late."""
        try:
            await real(self)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            raise

    async with nodes() as crew:
        first, second = await crew.add("a"), await crew.add("b")
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        monkeypatch.setattr(trio.Event, "wait", wait_late)
        await trio.sleep(3)
        crew.kill("b")
        await trio.sleep(2.5)
        assert len(first.tenures) == PARTITIONS // 2
        await until(lambda: len(first.tenures) == PARTITIONS)


@pytest.mark.parametrize("outage_s", [0.0, 1.0, 4.0])
async def test_what_kept_one_from_looking_kept_the_others_from_beating(
    outage_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """The map's member is away for a time; the first look that gets through is before any beat that does."""
    async with nodes() as crew:
        grid = crew.cluster.connect()
        settings = NodeSettings()
        host = Host(grid, "a", Registry(), lambda: 0, "f", 1, settings)
        lookout, began_s = Lookout(host, None), trio.current_time()

        async def beat(number: int) -> None:
            await grid.set(Map.NODES, 0, NODE_PREFIX + b"b", encode(NodeInfo("b", number)))

        for number in range(10):
            await beat(number)
            assert set((await lookout.look()).live) == {"b"}
            await trio.sleep(settings.heartbeat_s)
        await trio.sleep(outage_s)
        assert set((await lookout.look()).live) == {"b"}
        for number in range(10, 20):
            await beat(number)
            await trio.sleep(settings.heartbeat_s)
            assert set((await lookout.look()).live) == {"b"}
        died_s = trio.current_time()
        while (await lookout.look()).live:  # noqa: ASYNC110  # only looking shows it
            await trio.sleep(settings.heartbeat_s)
        assert settings.gone_after_s - 0.5 < trio.current_time() - died_s < settings.gone_after_s + 0.5
        assert trio.current_time() - began_s > outage_s


class Never:
    """Stands in for what keeps a node from opening what it was given."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: set[int] = set()
        real = Handoffs.come_near

        async def come_near(handoffs: Handoffs, partition: int, bell: Bell) -> None:
            if handoffs.node is node:
                self.given.add(partition)
                await trio.sleep_forever()
            await real(handoffs, partition, bell)

        monkeypatch.setattr(Handoffs, "come_near", come_near)


@pytest.mark.parametrize("dies", [True, False])
async def test_what_was_closed_for_one_that_will_not_come_is_served_again_at_once(
    dies: bool, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies, or it drains and the partitions are given to others."""
    async with nodes(handoff_deadline_s=60.0) as crew:
        first = await crew.add("a")
        await until(lambda: len(first.tenures) == PARTITIONS)
        second = await crew.add("b")
        never = Never(second, monkeypatch)
        await until(lambda: len(first.tenures) == PARTITIONS // 2, timeout_s=60)
        assert len(never.given) == PARTITIONS // 2
        assert not second.tenures
        third = await crew.add("c")  # another than who had closed them takes some
        if dies:
            crew.kill("b")
        else:
            second.draining = True
        assert await until(lambda: len(first.tenures) + len(third.tenures) == PARTITIONS, timeout_s=60) < 3
        assert third.tenures


@pytest.mark.parametrize(
    ("owner", "closed_for", "follows", "is_free"),
    [
        ("a", None, 2, False),  # its last owner is alive
        ("a", "", 2, True),
        ("a", "a", 2, True),
        ("b", "a", 2, False),  # closed for us, before it was given to another
        ("b", "", 2, False),
        ("a", "b", 1, False),  # closed for another, who does not know yet that it is ours
        ("a", "b", 2, True),
        ("a", "gone", 0, True),
    ],
)
def test_whose_turn_it_is(owner: str, closed_for: str | None, follows: int, is_free: bool) -> None:
    nodes = {"a": NodeInfo("a", 1), "b": NodeInfo("b", 1, follows=follows), "c": NodeInfo("c", 1)}
    node: Any = SimpleNamespace(
        host=SimpleNamespace(node="a"), assignment=Assignment(2, (owner,)), nodes=nodes, is_alive=nodes.__contains__
    )
    state = PartitionState()
    state.epoch, state.owner, state.closed_for = 1, "c", closed_for
    assert Serving(node, 0)._is_free(state) is is_free


async def test_partitions_follow_their_data_when_it_has_come_to_rest_and_a_dead_nodes_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with nodes(members=2, still_s=5.0) as crew:
        here, there = crew.cluster.members
        first, second = await crew.add("a", member=here), await crew.add("b", member=there)
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        mine = [partition for partition, primary in enumerate(first.grid.ownership().primaries) if primary == here]
        await trio.sleep(10)
        for partition in mine[:4]:  # one after the other, for longer than they would be waited for alone
            crew.cluster.migrate(partition, there)
            crew.cluster.migrate(mine[0], here)
            await trio.sleep(2)
        moved = set(mine[1:4])
        assert set(first.tenures) == set(mine), "data still moves"
        took_s = await until(lambda: set(first.tenures) == set(mine) - moved)
        assert 2.5 < took_s < 4
        crew.cluster.migrate(mine[1], here)
        crew.kill("b")
        assert await until(lambda: len(first.tenures) == PARTITIONS) < 3, "nobody has them: that can't wait"


async def test_data_that_moved_long_ago_keeps_nobody_waiting(autojump_clock: trio.testing.MockClock) -> None:
    async with nodes(members=2, still_s=5.0) as crew:
        here, there = crew.cluster.members
        first, second = await crew.add("a", member=here), await crew.add("b", member=here)
        await until(lambda: len(first.tenures) == len(second.tenures) == PARTITIONS // 2)
        crew.cluster.migrate(0, there)  # they have half of them each, wherever these are
        await trio.sleep(10)
        third = await crew.add("c", member=there)
        took_s = await until(lambda: third.tenures)
    assert took_s < first.settings.heartbeat_s * 4, "nobody else has to say what the first of them would not"


async def test_what_has_ended_while_it_waited_is_not_given_away(autojump_clock: trio.testing.MockClock) -> None:
    """Else what has been opened since would be closed in its place, in favour of who is no successor any more."""
    closed: list[int] = []
    async with trio.open_nursery() as nursery:
        node: Any = SimpleNamespace(
            settings=NodeSettings(handoffs_at_once=1),
            assignment=Assignment(1, ("b", "b")),
            nodes={},
            start=nursery.start_soon,
        )
        handoffs = Handoffs(node)
        waiting: list[Any] = [
            SimpleNamespace(
                partition=n, ended=trio.Event(), journal=None, close=lambda successor, n=n: closed.append(n)
            )
            for n in range(3)
        ]
        for serving in waiting:
            handoffs.give(serving, "b")
        await trio.testing.wait_all_tasks_blocked()
        waiting[1].ended.set()
        waiting[0].ended.set()
    assert closed == [0, 2]
