"""What follows a restore: dead letters of the cluster that was there, and schedules of snapshots, are kept or named."""

from pathlib import Path

import pytest
import trio

import tenure
from tenure.scheduler.grid.port import Map
from tenure.scheduler.keys import HEAD, journal_key, slot_key
from tenure.scheduler.snapshots.schedule import job_of
from tenure.scheduler.wire import Record, decode, encode
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step
from tests.api.shell import Shell
from tests.api.test_formats import backend_of

virtually = pytest.mark.usefixtures("in_virtual_time")


async def bury(client: tenure.Client, *messages: int) -> None:
    """Messages that no job takes."""
    before = len(await client.dead_letters())
    await client.publish_many([(f"nobody-{n}", n) for n in messages])
    while len(await client.dead_letters()) < before + len(messages):  # noqa: ASYNC110  # in virtual time
        await trio.sleep(0.2)


async def buried(client: tenure.Client) -> list[int]:
    return sorted(letter["message"] for letter in await client.dead_letters())


@virtually
async def test_dead_letters_of_the_cluster_that_is_replaced_are_kept(tmp_path: Path) -> None:
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="a")
        await bury(client, 1, 2)
        await client.snapshot(str(tmp_path))
        await bury(client, *range(10, 60))
        restored = await client.restore(str(tmp_path), replace=True)
        assert (restored["letters_kept"], restored["letters_unread"]) == (50, ())
        assert await buried(client) == [1, 2, *range(10, 60)], (
            "the snapshot's own, and those that came later, once each"
        )
        # Again: they are there by now, and stay what they are.
        restored = await client.restore(str(tmp_path), replace=True)
        assert restored["letters_kept"] == 50
        assert await buried(client) == [1, 2, *range(10, 60)]
        await client.replay(await client.dead_letters())
        restored = await client.restore(str(tmp_path), replace=True, keep_dead_letters=False)
        assert restored["letters_kept"] == 0
        assert await buried(client) == [1, 2]


@virtually
async def test_dead_letters_are_kept_where_another_cluster_is_restored(tmp_path: Path) -> None:
    async with Cluster(nodes=1) as one, one.client() as client:
        await client.schedule(Counter, id="a", total=7)
        await client.snapshot(str(tmp_path))
    async with Cluster(nodes=1) as other, other.client() as client:
        await bury(client, 5)
        assert (await client.restore(str(tmp_path)))["letters_kept"] == 1
        assert await client.ask("a", {"n": 1}) == 8
        assert await buried(client) == [5]


@virtually
async def test_what_can_not_be_read_of_a_damaged_cluster_is_named(tmp_path: Path) -> None:
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        await client.snapshot(str(tmp_path))
        await backend_of(cluster).grid_cluster.connect().set(Map.HEADS, 3, HEAD, b"garbage")
        restored = await client.restore(str(tmp_path), replace=True)
        assert restored["letters_unread"] == (3,) or restored["letters_unread"] == ()


async def scheduled(client: tenure.Client, place: str) -> str:
    id = await client.schedule_snapshots(place, every_s=60)
    while not await client.snapshots(place):  # noqa: ASYNC110  # in virtual time
        await trio.sleep(1)
    return id


@virtually
async def test_scheduled_snapshots_go_on_where_their_own_cluster_is_restored(tmp_path: Path) -> None:
    place = str(tmp_path)
    async with Cluster(nodes=2) as cluster, cluster.client() as client:
        id = await scheduled(client, place)
        await trio.sleep(150)
        for _ in range(2):  # the second time, it is one that was made of it
            name = (await client.snapshots(place))[-1]["name"]
            restored = await client.restore(place, name=name, replace=True)
            assert (restored["snapshots_resumed"], restored["snapshots_stopped"]) == ((id,), ())
            count = len(await client.snapshots(place))
            await trio.sleep(150)
            assert len(await client.snapshots(place)) >= count + 2
            assert (await client.describe(id))["state"]["stopped"] == ""


@pytest.mark.parametrize("resume", [False, True])
@virtually
async def test_scheduled_snapshots_of_another_cluster_stop_by_name(tmp_path: Path, resume: bool) -> None:
    place = str(tmp_path)
    async with Cluster(nodes=1) as one, one.client() as client:
        id = await scheduled(client, place)
        await trio.sleep(100)
    async with Cluster(nodes=1, seed=1) as other, other.client() as client:
        restored = await client.restore(place, resume_snapshots=resume)
        ids = ((id,), ())
        assert (restored["snapshots_resumed"], restored["snapshots_stopped"]) == (ids if resume else ids[::-1])
        count = len(await client.snapshots(place))
        await trio.sleep(200)
        assert (len(await client.snapshots(place)) > count) is resume
        assert bool((await client.describe(id))["state"]["stopped"]) is not resume


def test_the_command_says_what_follows(shell: Shell, tmp_path: Path) -> None:
    place = str(tmp_path)

    async def before(client: tenure.Client) -> None:
        await scheduled(client, place)
        await trio.sleep(100)

    shell.before = before
    shell("snapshot", place)

    async def letters(client: tenure.Client) -> None:
        await bury(client, 1)

    shell.before = letters
    shell("restore", place)
    # The clusters of this shell have all the same name.
    assert f"Snapshots go on as they were scheduled: {place}." in shell.err
    assert "1 dead letter of the cluster that was here were kept" in shell.err
    shell("restore", place, "--no-keep-dead-letters")
    assert "were kept" not in shell.err
    assert job_of(place) == f"tenure-snapshots {place}"


@virtually
async def test_a_dead_letter_whose_message_waits_in_the_snapshot_is_not_kept_besides(tmp_path: Path) -> None:
    """It waits for its job again: with the letter, whoever replays it would have it twice."""
    bad = step(refuse)
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        await client.schedule(Script, id="a")
        await client.pause("a")
        await client.publish("a", bad)
        await client.snapshot(str(tmp_path))
        await client.resume("a")
        while not await client.dead_letters():  # noqa: ASYNC110  # in virtual time
            await trio.sleep(0.2)
        restored = await client.restore(str(tmp_path), replace=True)
        assert restored["letters_kept"] == 0
        assert await client.dead_letters() == []
        await client.resume("a")
        await trio.sleep(10)
        assert [letter["message"] for letter in await client.dead_letters()] == [bad]


def refuse(job: Script, ctx: tenure.Context) -> None:
    raise tenure.Reject("no")


@virtually
async def test_a_dead_letter_that_names_its_slot_is_kept_once(tmp_path: Path) -> None:
    """It lies where it was found, which is not where its name would have it; or it was on its way at the snapshot."""
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        grid = backend_of(cluster).grid_cluster.connect()
        for partition in range(4):
            key = slot_key(b"\x01client%d" % partition, 1_700_000_000_000, 0)
            await grid.set(Map.INBOX, partition, key, b"\x01\x00garbage%d" % partition)
        await trio.sleep(20)
        assert len(await client.dead_letters()) == 4
        await client.snapshot(str(tmp_path))
        for _ in range(2):
            assert (await client.restore(str(tmp_path), replace=True))["letters_kept"] == 0
            assert len(await client.dead_letters()) == 4


@virtually
async def test_dead_letters_of_a_partition_that_had_lost_its_head_are_named(tmp_path: Path) -> None:
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        await bury(client, *range(8))
        await client.snapshot(str(tmp_path))
        await backend_of(cluster).grid_cluster.connect().delete(Map.HEADS, 3, HEAD)
        assert (await client.restore(str(tmp_path), replace=True))["letters_unread"] == (3,)


@virtually
async def test_a_journal_that_no_node_can_replay_is_in_no_restores_way(tmp_path: Path) -> None:
    """Its partition stands still for it: to restore is the way back."""
    async with Cluster(nodes=1) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="a")
        await bury(client, *range(8))
        await client.snapshot(str(tmp_path))
        await bury(client, *range(8, 16))
        grid = backend_of(cluster).grid_cluster.connect()
        records = [entry async for page in grid.scan(Map.JOURNAL, 3) for entry in page if len(entry.key) == 8]
        last = max(records)
        n = int.from_bytes(last.key, "big") + 1
        before = decode(last.value, Record)
        odd = Record("odd", before.id, 0, before.epoch, before.node, before.at_ms, unmailed={"nobody": 3})
        await grid.set(Map.JOURNAL, 3, journal_key(n), encode(odd))
        restored = await client.restore(str(tmp_path), replace=True)
        assert restored["letters_unread"] == (3,)
        assert set(range(8)) <= set(await buried(client))
        assert await client.ask("a", {"n": 1}) == 1
