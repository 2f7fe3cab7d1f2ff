"""Deletions that nobody waits for are sent together, in time, and one by one where members know no better."""

from typing import Any

import pytest
import trio

from tenure.scheduler.grid.hazelcast.discards import Discards
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings
from tenure.scheduler.grid.hazelcast.wire import Requests
from tenure.scheduler.grid.port import GridError, Map, Unknown

SETTINGS = HazelcastSettings(
    discards_gather_s=1.0, discards_together=4, discards_waiting_max=20, discards_in_flight_max=3
)


class Sent:
    """Stands for the caller: keeps what is sent; answers when it is told to."""

    def __init__(self) -> None:
        self.notices: list[Any] = []

    def send(self, notice: Any) -> None:
        self.notices.append(notice)

    def answer(self, failure: GridError | None = None) -> None:
        notices, self.notices = self.notices, []
        for notice in notices:
            notice.finish(failure)

    def counts(self) -> list[int]:
        """How many keys each request has that was sent: one that goes to a connection has several."""
        return [1 if notice.connection is None else int(notice.about.what.split()[1]) for notice in self.notices]


def discards(sent: Sent, connection: Any = "connection") -> Discards:
    requests = {map: Requests(map.value, 271) for map in Map}
    return Discards(sent, requests, SETTINGS, lambda partition: connection)  # type: ignore[arg-type]


async def running(nursery: trio.Nursery, some: Discards) -> None:
    nursery.start_soon(some.run)
    await trio.testing.wait_all_tasks_blocked()


async def test_a_full_lot_goes_soon_and_a_small_one_when_it_is_old(autojump_clock: Any) -> None:
    sent = Sent()
    some = discards(sent)
    async with trio.open_nursery() as nursery:
        await running(nursery, some)
        some.add(Map.INBOX, 1, [b"a", b"b"])
        some.add(Map.INBOX, 2, [b"a", b"b", b"c"])
        some.add(Map.INBOX, 2, [b"d"])
        await trio.sleep(0.2)
        assert sent.counts() == [4]
        await trio.sleep(1.0)
        assert sent.counts() == [4, 2]
        assert not some.is_quiet
        sent.answer()
        assert some.is_quiet
        nursery.cancel_scope.cancel()


async def test_a_single_key_is_deleted_as_such(autojump_clock: Any) -> None:
    sent = Sent()
    some = discards(sent)
    async with trio.open_nursery() as nursery:
        await running(nursery, some)
        some.add(Map.INBOX, 7, [b"a"])
        await trio.sleep(2)
        assert [(notice.partition_id, notice.connection) for notice in sent.notices] == [(7, None)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("failure", "again"), [("HazelcastSerializationError: no such class", 4), ("timeout", 0)])
async def test_members_that_do_not_understand_get_them_one_by_one(
    autojump_clock: Any, failure: str, again: int
) -> None:
    sent = Sent()
    some = discards(sent)
    async with trio.open_nursery() as nursery:
        await running(nursery, some)
        some.add(Map.INBOX, 7, [b"a", b"b", b"c", b"d"])
        await trio.sleep(0.2)
        assert sent.counts() == [4]
        sent.answer(Unknown(failure))
        await trio.sleep(2)
        assert sent.counts() == [1] * again
        nursery.cancel_scope.cancel()


async def test_what_waits_and_what_flies_is_bounded(autojump_clock: Any) -> None:
    sent = Sent()
    some = discards(sent)
    async with trio.open_nursery() as nursery:
        await running(nursery, some)
        for partition in range(10):
            some.add(Map.INBOX, partition, [b"a", b"b", b"c", b"d"])
        await trio.sleep(5)
        assert sent.counts() == [4, 4, 4]
        sent.answer()
        await trio.sleep(1)
        assert sent.counts() == [4, 4]  # five lots fit into what may wait
        nursery.cancel_scope.cancel()


async def test_where_the_primary_is_not_known_each_finds_its_way(autojump_clock: Any) -> None:
    sent = Sent()
    some = discards(sent, connection=None)
    async with trio.open_nursery() as nursery:
        await running(nursery, some)
        some.add(Map.INBOX, 7, [b"a", b"b"])
        await trio.sleep(2)
        assert sent.counts() == [1, 1]
        nursery.cancel_scope.cancel()
