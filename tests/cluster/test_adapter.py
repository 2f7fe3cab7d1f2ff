"""The adapter where it differs from any other: connecting, being cut off, and what members do to it."""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from tenure.members import Member, MemberSettings, Standard, check_members, free_port, settle, start_member
from tenure.scheduler.client import open_client
from tenure.scheduler.errors import ClientClosed
from tenure.scheduler.grid.hazelcast import CannotConnect, HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.hazelcast.client import TenureClient
from tenure.scheduler.grid.port import Closed, EntryEvent, Map, OwnershipEvent, Refused, Unknown

pytestmark = pytest.mark.cluster

SETTINGS = MemberSettings(cluster_name="adapter-tests", heap_initial_mib=64, heap_max_mib=256)
PATIENCE_S = 20.0


class Cluster:
    """Members of one cluster, oldest first; each can be started again at its port."""

    def __init__(self, settings: MemberSettings, size: int) -> None:
        self.settings = settings
        self.ports = [free_port() for _ in range(size)]
        self.members: dict[int, Member] = {}

    async def start(self, *ports: int) -> None:
        join = tuple(("127.0.0.1", port) for port in self.ports)
        for port in ports or self.ports:
            self.members.pop(port, None)  # one that was started again is the youngest
            self.members[port] = await start_member(replace(self.settings, port=port, join=join))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self.ports)

    @asynccontextmanager
    async def connect(
        self, *, op_deadline_s: float = 2.0, pair_with: int | None = None, heartbeat_s: float = 10.0
    ) -> AsyncIterator[HazelcastGrid]:
        settings = HazelcastSettings(
            cluster_name=self.settings.cluster_name,
            addresses=self.addresses,
            heartbeat_s=heartbeat_s,
            op_deadline_s=op_deadline_s,
            pair_with=None if pair_with is None else f"127.0.0.1:{pair_with}",
        )
        async with HazelcastGrid.connect(settings) as grid:
            yield grid

    def kill(self) -> None:
        for member in self.members.values():
            member.kill()


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two members; a test that harms them starts them again."""
    cluster = Cluster(SETTINGS, 2)
    trio.run(cluster.start)
    yield cluster
    cluster.kill()


async def until(holds: "object", within_s: float = PATIENCE_S) -> None:
    assert callable(holds)
    with trio.move_on_after(within_s):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.02)
    assert holds(), "did not come true in time"


async def test_it_says_that_nothing_listens() -> None:
    address = f"127.0.0.1:{free_port()}"
    began = trio.current_time()
    with pytest.raises(CannotConnect, match=f"{address}: nothing listens there.*Start a member"):
        async with HazelcastGrid.connect(HazelcastSettings(addresses=(address,), connect_timeout_s=1)):
            pytest.fail("there is no member")
    assert trio.current_time() - began < 2.5


async def test_it_says_that_the_cluster_has_another_name(pair: Cluster) -> None:
    settings = HazelcastSettings(addresses=pair.addresses, cluster_name="no-such-cluster")
    began = trio.current_time()
    with pytest.raises(CannotConnect, match="not one of a cluster of the name 'no-such-cluster'"):
        async with HazelcastGrid.connect(settings):
            pytest.fail("it let us in")
    assert trio.current_time() - began < 5, "nobody will let it in later"


async def test_it_says_that_what_listens_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CannotConnect, match="does not answer"):
            async with HazelcastGrid.connect(HazelcastSettings(addresses=(address,), connect_timeout_s=3)):
                pytest.fail("nobody answered")


async def test_a_frozen_member_at_the_first_address_does_not_keep_it_from_connecting(pair: Cluster) -> None:
    async with pair.connect():
        pass  # while all are well, partitions are dealt out
    frozen, _ = pair.members.values()
    frozen.pause()
    try:
        with trio.fail_after(8):
            async with pair.connect() as grid:
                assert grid.ownership().paired != frozen.id
    finally:
        frozen.unpause()


async def test_errors_in_its_body_come_out_as_they_are(pair: Cluster) -> None:
    with pytest.raises(ZeroDivisionError):
        async with pair.connect():
            raise ZeroDivisionError
    with trio.move_on_after(0.2) as scope:
        async with pair.connect():
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_who_knew_the_members_from_the_start_is_told_when_more_are_heard(
    pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Knowing(TenureClient):
        """All that members push at first has come before anybody listens to it."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            deadline_s = time.monotonic() + PATIENCE_S
            while len(self.connections) < 2 or not self.partition_table:
                assert time.monotonic() < deadline_s
                time.sleep(0.01)

    async with pair.connect():
        pass  # partitions are dealt out
    monkeypatch.setattr("tenure.scheduler.grid.hazelcast.grid.TenureClient", Knowing)
    events: list[OwnershipEvent] = []
    async with pair.connect() as grid, grid.watch_ownership(events.append), grid.listen(Map.INBOX, lambda _: None):
        others = {member.id for member in grid.ownership().members} - {grid.ownership().paired}
        grid.hear(frozenset(others))
        await until(lambda: OwnershipEvent.RECONNECTED in events)


async def test_members_tell_how_they_are_set_up(pair: Cluster) -> None:
    async with pair.connect() as grid:
        await until(lambda: len(grid.members_seen()) == 2)
        assert {seen.version for seen in grid.members_seen()} == {"5.7.0"}
        verdicts = {verdict.about: verdict for verdict in check_members(grid)}
    assert {about: verdict.standard for about, verdict in verdicts.items()} == {
        "version": Standard.GOOD,
        "acknowledgements": Standard.GOOD,
        "split-brain protection": Standard.WARNING,  # two members
        "backups": Standard.GOOD,
        "partitions": Standard.GOOD,
    }


async def test_a_burst_of_calls_and_events_loses_nothing(pair: Cluster) -> None:
    heard: list[EntryEvent] = []
    repeated = 0

    async def put(key: bytes, partition: int, value: bytes) -> None:
        nonlocal repeated
        while True:
            try:
                await grid.set(Map.INBOX, partition, key, value)
                return
            except Unknown:  # on a machine without time to spare a backup's word comes too late
                repeated += 1

    async with pair.connect() as grid:
        mine = {p for p, primary in enumerate(grid.ownership().primaries) if primary == grid.ownership().paired}
        run = os.urandom(4)
        async with grid.listen(Map.INBOX, heard.extend):
            async with trio.open_nursery() as nursery:
                for number in range(3_000):
                    nursery.start_soon(put, run + b"%d" % number, number % 271, b"%d" % number)
            expected = {run + b"%d" % number for number in range(3_000) if number % 271 in mine}
            await until(lambda: expected <= {event.key for event in heard})
            assert len(expected) <= len(heard) <= len(expected) + repeated
        grid.discard(Map.INBOX, 5, [run + b"%d" % number for number in range(5, 3_000, 271)])
        await until(lambda: grid._discards.is_quiet)
        left = [entry async for page in grid.scan(Map.INBOX, 5) for entry in page if entry.key.startswith(run)]
        assert left == []


async def test_a_handler_that_does_not_return_costs_no_connection(pair: Cluster) -> None:
    told: list[OwnershipEvent] = []
    async with pair.connect(heartbeat_s=2.5) as grid, grid.watch_ownership(told.append):
        await grid.set(Map.JOBS, 3, b"before", b"1")
        connections = dict(grid._client.connections)
        time.sleep(6)  # noqa: ASYNC251  # two heartbeats that nobody in this thread hears
        assert await grid.get(Map.JOBS, 3, b"before") == b"1"
        assert grid._client.connections == connections
        assert OwnershipEvent.DISCONNECTED not in told


async def test_late_answers_are_ignored_and_harm_nobody(pair: Cluster) -> None:
    key = os.urandom(8)
    async with pair.connect() as grid:
        slow = pair.members[pair.ports[0]]
        partition = grid.ownership().primaries.index(slow.id)
        slow.pause()
        try:
            with pytest.raises(Unknown, match=r"no answer within 0\.3 s"):
                await grid.put_if_absent(Map.JOURNAL, partition, key, b"mine", timeout_s=0.3)
            with trio.move_on_after(0.1):
                await grid.put_if_absent(Map.JOURNAL, partition, key, b"mine", timeout_s=60)
        finally:
            slow.unpause()
        there = None
        while there is None:
            try:
                there = await grid.put_if_absent(Map.JOURNAL, partition, key, b"mine")
            except Unknown:
                continue
        assert there == b"mine"
        assert not grid._caller.waiting


async def test_it_pairs_with_its_member_again_when_that_comes_back(pair: Cluster) -> None:
    home = pair.ports[1]
    heard: list[EntryEvent] = []
    events: list[OwnershipEvent] = []
    async with pair.connect(pair_with=home) as grid, grid.watch_ownership(events.append):
        await until(lambda: grid.ownership().paired == pair.members[home].id)
        async with grid.listen(Map.INBOX, heard.extend):
            first = pair.members[home].id
            pair.members[home].kill()
            await until(lambda: grid.ownership().paired not in (first, None))
            await until(lambda: OwnershipEvent.RECONNECTED in events)
            assert OwnershipEvent.MERGED not in events
            assert OwnershipEvent.PARTITION_LOST not in events
            await pair.start(home)
            await until(lambda: grid.ownership().paired == pair.members[home].id)
            await until(lambda: pair.members[home].id in grid.ownership().primaries)
            await settle(list(pair.members.values()))
            heard.clear()
            for number in range(50):
                partition = grid.ownership().primaries.index(pair.members[home].id)
                await grid.set(Map.INBOX, partition, os.urandom(4), b"%d" % number)
                await trio.sleep(0.05)
                if heard:
                    break
            assert heard, "its subscription stands at the new member"


async def test_a_restart_of_the_whole_cluster_is_survived_and_told(pair: Cluster) -> None:
    events: list[OwnershipEvent] = []
    heard: list[EntryEvent] = []
    key = os.urandom(8)
    async with pair.connect(op_deadline_s=0.5) as grid, grid.watch_ownership(events.append):
        async with grid.listen(Map.INBOX, heard.extend):
            await grid.set(Map.INBOX, 3, key, b"before")
            pair.kill()
            await until(lambda: OwnershipEvent.DISCONNECTED in events)
            assert grid.ownership().paired is None
            for call in (
                grid.set(Map.INBOX, 3, key, b"cut off"),
                grid.get(Map.INBOX, 3, key),
                grid.replace_if_same(Map.INBOX, 3, key, b"before", b"cut off"),
            ):
                began = time.monotonic()
                with pytest.raises(Unknown):
                    await call
                assert time.monotonic() - began < 0.8
            await pair.start()
            await until(lambda: OwnershipEvent.RECONNECTED in events)
            assert OwnershipEvent.MERGED in events, "nothing of what a tenure knows is true any more"
            assert events.index(OwnershipEvent.MERGED) < events.index(OwnershipEvent.RECONNECTED)
            heard.clear()
            for number in range(100):
                try:
                    for partition in range(0, 271, 20):
                        await grid.set(Map.INBOX, partition, key, b"after %d" % number)
                except Unknown:
                    await trio.sleep(0.1)
                if heard:
                    break
            assert heard
            assert await grid.get(Map.INBOX, 3, key + b"never") is None
            await until(lambda: not grid._client.invocations._pending)


async def test_a_cluster_that_comes_back_with_other_partitions_ends_its_clients_at_once_and_for_good() -> None:
    cluster = Cluster(replace(SETTINGS, cluster_name="other-partitions", partition_count=13), 1)
    await cluster.start()
    events: list[OwnershipEvent] = []
    try:
        async with (
            cluster.connect() as grid,
            grid.watch_ownership(events.append),
            open_client(grid, now_ms=lambda: time.time_ns() // 1_000_000) as client,
        ):
            await client.publish("nobody-reads-it", 1)
            cluster.kill()
            cluster.settings = replace(cluster.settings, partition_count=17)
            await cluster.start()
            await until(lambda: OwnershipEvent.CLOSED in events)
            began = time.monotonic()
            for call in (client.publish("a", 1), client.ask("a", 1), client.defining.created("a")):
                with pytest.raises(ClientClosed, match="Open another client"):
                    await call
            with pytest.raises(Closed, match="closed for good; open another"):
                await grid.get(Map.INBOX, 3, b"key")
            assert time.monotonic() - began < 1
        async with cluster.connect() as grid:
            assert grid.partition_count == 17
    finally:
        cluster.kill()


async def test_a_member_that_leaves_tells_of_nothing_and_is_known_by_what_it_gives_away() -> None:
    cluster = Cluster(replace(SETTINGS, cluster_name="leaving"), 3)
    heard: set[bytes] = set()
    written: list[bytes] = []
    seen: set[str] = set()
    try:
        await cluster.start()
        home = cluster.ports[2]
        leaver = cluster.members[home].id
        async with cluster.connect(pair_with=home) as grid:
            await settle(list(cluster.members.values()))
            await until(lambda: grid.ownership().paired == leaver)
            assert not grid.ownership().leaving
            async with grid.listen(Map.INBOX, lambda events: heard.update(event.key for event in events)):
                last = 270 - grid.ownership().primaries[::-1].index(leaver)  # it is given away last
                await grid.set(Map.INBOX, last, b"before", b"")
                await until(lambda: heard == {b"before"})
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cluster.members[home].stop)
                    while leaver in {member.id for member in grid.ownership().members}:
                        seen |= grid.ownership().leaving
                        key = os.urandom(8)
                        with suppress(Unknown):  # it was on its way when the member went
                            await grid.set(Map.INBOX, last, key, b"")
                            # The table may be older than the loss of the connection: then another member took it.
                            if grid.ownership().primaries[last] == grid.ownership().paired == leaver:
                                written.append(key)
                await until(lambda: not grid.ownership().leaving)
    finally:
        cluster.kill()
    assert seen == {leaver}
    # Until it has noticed that it is to go, it goes on as before.
    told = next((n for n, key in enumerate(written) if key not in heard), len(written))
    assert told < len(written), "it takes writes"
    assert not heard & set(written[told:]), "and tells of none"


async def test_a_lost_partition_is_told() -> None:
    cluster = Cluster(replace(SETTINGS, cluster_name="lost-partitions", backups=0), 2)
    events: list[OwnershipEvent] = []
    try:
        await cluster.start()
        keep, lose = cluster.members.values()
        async with cluster.connect() as grid, grid.watch_ownership(events.append):
            lose.kill()
            await until(lambda: OwnershipEvent.PARTITION_LOST in events)
            assert keep.running
    finally:
        cluster.kill()


async def test_who_hears_from_a_member_that_is_cut_off_from_the_others_goes_over_to_them() -> None:
    """From the members alone: clients reach all. What it then says of them is put into its mouth here."""
    cluster = Cluster(replace(SETTINGS, cluster_name="sides", member_count=3), 3)
    heard: list[EntryEvent] = []
    events: list[OwnershipEvent] = []
    try:
        await cluster.start()
        cluster.ports = cluster.ports[:1]  # the one that a client was given is the one that tells it of the others
        async with (
            cluster.connect() as grid,
            grid.watch_ownership(events.append),
            grid.listen(Map.INBOX, heard.extend),
        ):
            await until(lambda: len(grid.ownership().members) == 3 and len(grid._client.connections) == 3)
            await trio.sleep(2.5)  # it has seen where they are
            view: Any = grid._client._cluster_view_listener
            teller = view._listener_added_connection
            alone = [
                member for member in grid._client.cluster_service.get_members() if member.uuid == teller.remote_uuid
            ]
            view._cluster_service.handle_members_view_event(10**6, alone)
            await until(lambda: len(grid.ownership().members) == 1)
            await until(lambda: len(grid.ownership().members) == 3)
            await until(lambda: OwnershipEvent.RECONNECTED in events)
            assert view._listener_added_connection.remote_uuid != teller.remote_uuid
            heard.clear()
            for partition in range(0, 271, 10):
                await _known(partial(grid.set, Map.INBOX, partition, b"key", b"value"))
            await until(lambda: heard)
    finally:
        cluster.kill()


async def test_fewer_than_a_majority_refuse_at_once() -> None:
    cluster = Cluster(replace(SETTINGS, cluster_name="majority", member_count=3), 3)
    key = os.urandom(8)
    try:
        await cluster.start()
        async with cluster.connect() as grid:
            await grid.set(Map.JOURNAL, 7, key, b"there")
            await settle(list(cluster.members.values()))
            verdicts = {verdict.about: verdict.standard for verdict in check_members(grid)}
            assert verdicts["split-brain protection"] is Standard.GOOD
            _, second, third = cluster.members.values()
            os.kill(second.pid, signal.SIGKILL)
            await until(lambda: len(grid.ownership().members) == 2)
            assert await _known(lambda: grid.replace_if_same(Map.JOURNAL, 7, key, b"there", b"there"))
            third.kill()
            await until(lambda: len(grid.ownership().members) == 1)

            async def refused() -> bool:
                try:
                    await grid.set(Map.JOURNAL, 7, key, b"alone")
                except Refused:
                    return True
                except Unknown:
                    return False
                pytest.fail("one of three members called it done")

            with trio.fail_after(PATIENCE_S):
                while not await refused():  # noqa: ASYNC110
                    await trio.sleep(0.05)
            for call in (
                grid.get(Map.JOURNAL, 7, key),
                grid.put_if_absent(Map.JOURNAL, 7, key + b"new", b"alone"),
                grid.replace_if_same(Map.JOURNAL, 7, key, b"there", b"alone"),
                grid.get_all(Map.JOURNAL, 7, [key]),
                anext(aiter(grid.scan(Map.JOURNAL, 7))),
            ):
                began = trio.current_time()
                with pytest.raises(Refused):
                    await call
                assert trio.current_time() - began < 0.5
    finally:
        cluster.kill()


async def _known(call: "object") -> object:
    assert callable(call)
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return await call()
            except Unknown:
                await trio.sleep(0.05)
