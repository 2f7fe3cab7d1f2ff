"""Single entries: what each call promises about one key."""

import pytest
import trio

from tenure.scheduler.grid.port import EntryEvent, Map
from tests.contract.adapters import Adapter
from tests.contract.helpers import eventually, scanned

AWKWARD = [b"", b"\x00", b"\x00\x00", b"\xff\xfe\x00", b"caf\xc3\xa9", b"'; drop", bytes(range(256)), b"long" * 500]


async def test_what_was_set_is_read_by_all_until_it_is_set_again(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid, rig.connect() as other:
        key = rig.fresh()
        assert await grid.get(Map.JOBS, 3, key) is None
        await grid.set(Map.JOBS, 3, key, b"one")
        assert await other.get(Map.JOBS, 3, key) == b"one"
        await other.set(Map.JOBS, 3, key, b"two")
        assert await grid.get(Map.JOBS, 3, key) == b"two"


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\xff" * 3, bytes(range(256)) * 4096], ids=["empty", "0", "f", "1MiB"]
)
async def test_values_come_back_byte_for_byte(adapter: Adapter, value: bytes) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        await grid.set(Map.IMAGES, 1, key, value)
        assert await grid.get(Map.IMAGES, 1, key) == value
        assert await grid.put_if_absent(Map.IMAGES, 1, key, b"other") == value
        assert await grid.get_all(Map.IMAGES, 1, [key]) == {key: value}
        assert await grid.replace_if_same(Map.IMAGES, 1, key, value, value)
        assert [entry.value for entry in await scanned(grid, Map.IMAGES, 1, key)] == [value]


async def test_keys_are_any_bytes(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        prefix = rig.fresh()
        for number, key in enumerate(AWKWARD):
            await grid.set(Map.INBOX, 5, prefix + key, b"%d" % number)
        values = await grid.get_all(Map.INBOX, 5, [prefix + key for key in AWKWARD])
        assert values == {prefix + key: b"%d" % number for number, key in enumerate(AWKWARD)}
        assert dict(await scanned(grid, Map.INBOX, 5, prefix)) == values


async def test_the_empty_key_is_a_key(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        await grid.set(Map.HEADS, 6, b"", b"head")
        assert await grid.get(Map.HEADS, 6, b"") == b"head"
        assert (b"", b"head") in await scanned(grid, Map.HEADS, 6, b"")
        await grid.delete(Map.HEADS, 6, b"")
        assert await grid.get(Map.HEADS, 6, b"") is None


async def test_the_same_key_in_another_partition_or_map_is_another_entry(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid, rig.connect() as other:
        key = rig.fresh()
        places = [(map, partition) for map in (Map.JOBS, Map.INBOX, Map.JOURNAL) for partition in (0, 1, 2, 270)]
        for map, partition in places:
            assert await grid.put_if_absent(map, partition, key, f"{map.value} {partition}".encode()) is None
        for map, partition in places:
            assert await other.get(map, partition, key) == f"{map.value} {partition}".encode()
        await grid.delete(Map.JOBS, 1, key)
        assert [place for place in places if await other.get(*place, key) is None] == [(Map.JOBS, 1)]


async def test_an_entry_is_in_the_partition_it_was_pinned_to(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        prefix = rig.fresh()
        partitions = range(0, grid.partition_count, 10)
        for partition in partitions:
            await grid.set(Map.JOURNAL, partition, prefix + b"%d" % partition, b"record")
        for partition in partitions:
            assert [entry.key for entry in await scanned(grid, Map.JOURNAL, partition, prefix)] == [
                prefix + b"%d" % partition
            ]


async def test_put_if_absent_writes_once(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        assert await grid.put_if_absent(Map.JOURNAL, 0, key, b"first") is None
        assert await grid.put_if_absent(Map.JOURNAL, 0, key, b"second") == b"first"
        assert await grid.put_if_absent(Map.JOURNAL, 0, key, b"first") == b"first"
        assert await grid.get(Map.JOURNAL, 0, key) == b"first"


async def test_put_if_absent_tells_an_empty_value_from_none(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        assert await grid.put_if_absent(Map.JOURNAL, 0, key, b"") is None
        assert await grid.put_if_absent(Map.JOURNAL, 0, key, b"late") == b""


async def test_of_many_that_put_at_once_one_wins_and_all_learn_which(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as one, rig.connect() as two:
        for round in range(5):
            key = rig.fresh(f"round{round}")
            answers: dict[bytes, bytes | None] = {}

            async def put(number: int, key: bytes = key, answers: dict[bytes, bytes | None] = answers) -> None:
                mine = b"%d" % number
                answers[mine] = await (one, two)[number % 2].put_if_absent(Map.JOURNAL, 7, key, mine)

            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(put, number)
            winners = [mine for mine, there in answers.items() if there is None]
            assert len(winners) == 1
            assert {there for there in answers.values() if there is not None} == set(winners)
            assert await one.get(Map.JOURNAL, 7, key) == winners[0]


async def test_replace_if_same_needs_the_very_bytes(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        assert not await grid.replace_if_same(Map.HEADS, 0, key, b"", b"new")
        assert await grid.get(Map.HEADS, 0, key) is None
        await grid.set(Map.HEADS, 0, key, b"old")
        assert not await grid.replace_if_same(Map.HEADS, 0, key, b"older", b"new")
        assert not await grid.replace_if_same(Map.HEADS, 0, key, b"", b"new")
        assert await grid.get(Map.HEADS, 0, key) == b"old"
        assert await grid.replace_if_same(Map.HEADS, 0, key, b"old", b"new")
        assert await grid.get(Map.HEADS, 0, key) == b"new"


async def test_remove_if_same_needs_the_very_bytes(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid, rig.connect() as other:
        key = rig.fresh()
        assert not await grid.remove_if_same(Map.JOBS, 3, key, b"")
        await grid.set(Map.JOBS, 3, key, b"old")
        assert not await other.remove_if_same(Map.JOBS, 3, key, b"older")
        assert not await other.remove_if_same(Map.JOBS, 3, key, b"")
        assert await other.get(Map.JOBS, 3, key) == b"old"
        assert await other.remove_if_same(Map.JOBS, 3, key, b"old")
        assert await grid.get(Map.JOBS, 3, key) is None
        assert not await grid.remove_if_same(Map.JOBS, 3, key, b"old")
        assert await grid.put_if_absent(Map.JOBS, 3, key, b"new") is None


async def test_replace_by_the_same_says_whether_it_is_there(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        key = rig.fresh()
        assert not await grid.replace_if_same(Map.JOURNAL, 0, key, b"record", b"record")
        await grid.set(Map.JOURNAL, 0, key, b"record")
        assert await grid.replace_if_same(Map.JOURNAL, 0, key, b"record", b"record")
        assert not await grid.replace_if_same(Map.JOURNAL, 0, key, b"other", b"other")
        assert await grid.get(Map.JOURNAL, 0, key) == b"record"


async def test_no_increment_by_compare_and_set_is_lost(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as one, rig.connect() as two:
        key = rig.fresh()
        await one.set(Map.HEADS, 4, key, b"0")

        async def increment(number: int) -> None:
            grid = (one, two)[number % 2]
            for _ in range(5):
                while True:
                    old = await grid.get(Map.HEADS, 4, key)
                    assert old is not None
                    if await grid.replace_if_same(Map.HEADS, 4, key, old, b"%d" % (int(old) + 1)):
                        break

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(increment, number)
        assert await one.get(Map.HEADS, 4, key) == b"30"


async def test_delete_leaves_room_for_the_next(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        await grid.delete(Map.JOBS, 0, key)
        await grid.set(Map.JOBS, 0, key, b"x")
        await grid.delete(Map.JOBS, 0, key)
        assert await grid.get(Map.JOBS, 0, key) is None
        assert await grid.put_if_absent(Map.JOBS, 0, key, b"y") is None


async def test_get_all_leaves_out_what_is_absent(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        prefix = rig.fresh()
        keys = [prefix + b"%d" % number for number in range(50)]
        for key in keys[::2]:
            await grid.set(Map.INBOX, 9, key, b"v" + key)
        assert await grid.get_all(Map.INBOX, 9, keys) == {key: b"v" + key for key in keys[::2]}
        assert await grid.get_all(Map.INBOX, 9, [keys[0], keys[0]]) == {keys[0]: b"v" + keys[0]}
        assert await grid.get_all(Map.INBOX, 9, []) == {}


async def test_discard_deletes_in_its_own_time(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        prefix = rig.fresh()
        keys = [prefix + b"%d" % number for number in range(30)]
        for key in keys:
            await grid.set(Map.INBOX, 9, key, b"slot")
        grid.discard(Map.INBOX, 9, keys[10:])
        grid.discard(Map.INBOX, 9, [])
        grid.discard(Map.INBOX, 9, [prefix + b"never there"])
        with trio.fail_after(rig.hint_s):
            while len(await grid.get_all(Map.INBOX, 9, keys)) > 10:  # noqa: ASYNC110 (a discard tells nobody)
                await trio.sleep(0.02)
        assert sorted(await grid.get_all(Map.INBOX, 9, keys)) == sorted(keys[:10])


async def test_entries_are_set_together(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid, rig.connect() as other:
        prefix = rig.fresh()
        bell = prefix + b"bell"
        heard: list[bytes | None] = []

        def hear(events: list[EntryEvent]) -> None:
            heard.extend(event.value for event in events)

        async with other.listen(Map.REPLIES, hear, key=(3, bell)):
            await grid.set_together(Map.REPLIES, 3, {})
            await grid.set_together(Map.REPLIES, 3, {bell: b"1", prefix + b"a": b"a"})
            await grid.set_together(Map.REPLIES, 3, {bell: b"2", prefix + b"b": b"b"})
            keys = [bell, prefix + b"a", prefix + b"b"]
            assert await grid.get_all(Map.REPLIES, 3, keys) == dict(zip(keys, (b"2", b"a", b"b"), strict=True))
            with trio.fail_after(rig.hint_s):
                while heard != [b"1", b"2"]:  # noqa: ASYNC110  # the listener is what is tested
                    await trio.sleep(0.02)
        assert await grid.get(Map.REPLIES, 4, bell) is None


async def test_an_entry_with_ttl_goes_by_itself(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        key = rig.fresh()
        await grid.set(Map.NODES, 2, key, b"alive", ttl_s=1)
        await grid.set(Map.NODES, 2, key + b"kept", b"alive")
        assert await grid.get(Map.NODES, 2, key) == b"alive"
        with trio.fail_after(4):
            while await grid.get(Map.NODES, 2, key) is not None:  # noqa: ASYNC110 (only reading shows it)
                await trio.sleep(0.1)
        assert await grid.put_if_absent(Map.NODES, 2, key, b"again") is None
        assert await grid.get(Map.NODES, 2, key + b"kept") == b"alive"


async def test_an_entry_that_is_set_again_lives_on(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        key = rig.fresh()
        for _ in range(4):
            await grid.set(Map.NODES, 2, key, b"alive", ttl_s=2)
            await trio.sleep(0.8)
            assert await grid.get(Map.NODES, 2, key) == b"alive"


async def test_many_calls_at_once(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        prefix = rig.fresh()
        done: list[int] = []

        async def work(number: int) -> None:
            key = prefix + b"%d" % number
            partition = number % grid.partition_count
            await grid.set(Map.INBOX, partition, key, b"%d" % number)
            assert await grid.get(Map.INBOX, partition, key) == b"%d" % number
            done.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(work, number)
        await eventually(lambda: sorted(done) == list(range(300)), rig.hint_s)
