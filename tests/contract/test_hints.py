"""Listeners: in calm they hear what they are for, and nothing else; whatever they do, the grid goes on."""

import threading

import trio

from tenure.scheduler.grid.port import EntryEvent, Map, OwnershipEvent
from tests.contract.adapters import Adapter
from tests.contract.helpers import Heard, eventually, primary_partitions, surely


async def test_a_listener_hears_what_comes_changes_and_goes(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid, rig.connect() as other:
        key = rig.fresh()
        heard = Heard(key)
        async with grid.listen(Map.JOBS, heard):
            await other.set(Map.JOBS, 20, key, b"one")
            await eventually(lambda: heard.values == [b"one"], rig.hint_s)
            assert heard.events == [EntryEvent(Map.JOBS, 20, key, b"one")]
            await other.set(Map.JOBS, 20, key, b"two")
            await eventually(lambda: heard.values == [b"one", b"two"], rig.hint_s)
            assert await other.replace_if_same(Map.JOBS, 20, key, b"two", b"three")
            await eventually(lambda: heard.values == [b"one", b"two", b"three"], rig.hint_s)
            await other.delete(Map.JOBS, 20, key)
            await eventually(lambda: heard.values == [b"one", b"two", b"three", None], rig.hint_s)
            assert await other.put_if_absent(Map.JOBS, 20, key, b"") is None
            await eventually(lambda: heard.values[4:] == [b""], rig.hint_s)
            assert {(event.map, event.partition, event.key) for event in heard.events} == {(Map.JOBS, 20, key)}


async def test_what_did_not_change_is_no_news(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        await grid.set(Map.JOBS, 20, key, b"there")
        heard = Heard(key)
        async with grid.listen(Map.JOBS, heard):
            assert await grid.put_if_absent(Map.JOBS, 20, key, b"late") == b"there"
            assert not await grid.replace_if_same(Map.JOBS, 20, key, b"x", b"y")
            await grid.delete(Map.JOBS, 20, key + b"never there")
            await grid.get(Map.JOBS, 20, key)
            await grid.set(Map.JOBS, 20, key, b"end")
            await eventually(lambda: heard.values == [b"end"], rig.hint_s)


async def test_an_entry_that_expires_may_be_told_as_gone_and_nothing_else(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        heard = Heard(key)
        async with grid.listen(Map.NODES, heard):
            await grid.set(Map.NODES, 20, key, b"alive", ttl_s=1)
            await trio.sleep(2.5)
            assert await grid.get(Map.NODES, 20, key) is None
            assert heard.values in ([b"alive"], [b"alive", None])


async def test_each_listener_hears_the_primaries_of_its_member(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig:
        one, two = await rig.members()
        async with rig.connect(one) as at_one, rig.connect(two) as at_two:
            assert (at_one.ownership().paired, at_two.ownership().paired) == (one, two)
            prefix = rig.fresh()
            hears = {one: Heard(prefix), two: Heard(prefix)}
            partitions = range(0, at_one.partition_count, 7)
            async with at_one.listen(Map.INBOX, hears[one]), at_two.listen(Map.INBOX, hears[two]):
                for partition in partitions:
                    await (at_one, at_two)[partition % 2].set(Map.INBOX, partition, prefix, b"slot")
                await eventually(
                    lambda: sum(len(heard.events) for heard in hears.values()) >= len(partitions), rig.hint_s
                )
                for member, heard in hears.items():
                    mine = set(primary_partitions(at_one, member)) & set(partitions)
                    assert {event.partition for event in heard.events} == mine
                    assert mine


async def test_a_listener_hears_the_primaries_of_other_members_that_it_was_told_to_hear(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig:
        one, two = await rig.members()
        async with rig.connect(one) as grid, rig.connect(two) as other:
            prefix = rig.fresh()
            heard, told = Heard(prefix), list[OwnershipEvent]()
            partitions = range(0, grid.partition_count, 7)
            async with grid.listen(Map.INBOX, heard), grid.watch_ownership(told.append):
                grid.hear(frozenset({two}))
                await eventually(lambda: OwnershipEvent.RECONNECTED in told, rig.hint_s)
                for partition in partitions:
                    await other.set(Map.INBOX, partition, prefix, b"slot")
                await eventually(lambda: {event.partition for event in heard.events} == set(partitions), rig.hint_s)
                assert len(heard.events) == len(partitions)
                grid.hear(frozenset())
                near = set(primary_partitions(grid, one))
                await trio.sleep(0.5)
                for partition in partitions:
                    await other.set(Map.INBOX, partition, prefix, b"next")
                await eventually(lambda: len(heard.events) >= len(partitions) + len(near & set(partitions)), rig.hint_s)
                assert {event.partition for event in heard.events[len(partitions) :]} <= near


async def test_a_key_listener_hears_that_entry_wherever_it_lives(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig:
        one, two = await rig.members()
        async with rig.connect(one) as grid:
            key = rig.fresh()
            here, there = primary_partitions(grid, one)[0], primary_partitions(grid, two)[0]
            for partition in (here, there):
                heard = Heard(key)
                async with grid.listen(Map.REPLIES, heard, key=(partition, key)):
                    await grid.set(Map.REPLIES, partition, key + b"another key", b"x")
                    await grid.set(Map.REPLIES, here + there - partition, key, b"another partition")
                    await grid.set(Map.INBOX, partition, key, b"another map")
                    await grid.set(Map.REPLIES, partition, key, b"reply")
                    await eventually(lambda heard=heard: heard.values, rig.hint_s)  # type: ignore[misc]
                    await grid.delete(Map.REPLIES, partition, key)
                    await eventually(lambda heard=heard: len(heard.values) == 2, rig.hint_s)  # type: ignore[misc]
                assert heard.events == [
                    EntryEvent(Map.REPLIES, partition, key, b"reply"),
                    EntryEvent(Map.REPLIES, partition, key, None),
                ]


async def test_other_maps_are_not_heard(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        heard = Heard(key)
        async with grid.listen(Map.JOBS, heard):
            await grid.set(Map.INBOX, 21, key, b"inbox")
            await grid.set(Map.JOBS, 21, key, b"jobs")
            await eventually(lambda: heard.values == [b"jobs"], rig.hint_s)


async def test_hints_come_in_the_trio_thread(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        threads: set[int] = set()

        def on_entries(events: list[EntryEvent]) -> None:
            trio.current_time()
            threads.add(threading.get_ident())

        async with grid.listen(Map.JOBS, on_entries):
            await grid.set(Map.JOBS, 22, key, b"x")
            await eventually(lambda: threads, rig.hint_s)
        assert threads == {threading.get_ident()}


async def test_a_listener_that_raises_still_hears_the_next(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        heard = Heard(key)

        def on_entries(events: list[EntryEvent]) -> None:
            heard(events)
            raise RuntimeError("a listener of a test that raises, on purpose")

        async with grid.listen(Map.JOBS, on_entries):
            for number in range(1, 4):
                await grid.set(Map.JOBS, 23, key, b"%d" % number)
                await eventually(lambda number=number: len(heard.values) == number, rig.hint_s)  # type: ignore[misc]
        assert await grid.get(Map.JOBS, 23, key) == b"3"


async def test_a_watcher_that_raises_harms_nobody(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        called: list[object] = []

        def raises(event: object) -> None:
            called.append(event)
            raise RuntimeError("a watcher of a test that raises, on purpose")

        async with grid.watch_ownership(raises), grid.watch_ownership(called.append):
            await rig.add_member()
            await eventually(lambda: len(called) >= 2, rig.fault_s)


async def test_a_closed_listener_hears_nothing(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        closed, open_ = Heard(key), Heard(key)
        async with grid.listen(Map.JOBS, open_):
            async with grid.listen(Map.JOBS, closed):
                await grid.set(Map.JOBS, 24, key, b"1")
                await eventually(lambda: closed.values and open_.values, rig.hint_s)
            await grid.set(Map.JOBS, 24, key, b"2")
            await eventually(lambda: open_.values == [b"1", b"2"], rig.hint_s)
            assert closed.values == [b"1"]


async def test_cancelling_a_listener_ends_it_and_no_more(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        cancelled = Heard(key)
        with trio.move_on_after(0.3):
            async with grid.listen(Map.JOBS, cancelled):
                await trio.sleep_forever()
        await grid.set(Map.JOBS, 25, key, b"x")
        heard = Heard(key)
        async with grid.listen(Map.JOBS, heard):
            await grid.set(Map.JOBS, 25, key, b"y")
            await eventually(lambda: heard.values == [b"y"], rig.hint_s)
        assert cancelled.values == []


async def test_a_listener_outlives_its_member(adapter: Adapter) -> None:
    async with adapter.open(members=3) as rig:
        first = (await rig.members())[-1]
        async with rig.connect(first) as grid:
            prefix = rig.fresh()
            heard = Heard(prefix)
            async with grid.listen(Map.INBOX, heard):
                await rig.kill_member(first)
                await eventually(lambda: grid.ownership().paired not in (first, None), rig.fault_s)
                await eventually(lambda: None not in grid.ownership().primaries, rig.fault_s)
                number = 0
                with trio.fail_after(rig.fault_s):
                    while not heard.values:
                        paired = grid.ownership().paired
                        assert paired is not None
                        for partition in primary_partitions(grid, paired)[:1]:
                            key = prefix + b"%d" % number
                            await surely(lambda: grid.set(Map.INBOX, partition, key, b"x"), rig.fault_s)  # noqa: B023
                        number += 1
                        await trio.sleep(0.1)
