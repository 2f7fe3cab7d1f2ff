"""Dead letters: bounded in number and bytes by holding their senders back, kept in full for a while, never a flood."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.keys import partition_of
from tenure.testing import Cluster
from tests.api.test_formats import backend_of

PARTITIONS = 4
SETTINGS = tenure.NodeSettings(
    dead_letters_max=20, dead_letters_bytes_max=20_000, dead_letters_keep_s=100, group_messages_max=10
)
NOBODY = "nobody-here"


@tenure.job("letters-int")
class Int(tenure.Job):
    """Takes numbers."""

    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.total += message
        return self.total


@tenure.job("letters-reader", topics=("letters-numbers",))
class Reader(Int):
    """Reads numbers."""


@tenure.job("letters-deaf", topics=("letters-numbers",))
class Deaf(tenure.Job):
    """Takes nothing at all."""


@tenure.job("letters-sleeper", topics=("letters-numbers",))
class Sleeper(tenure.Job):
    """Does not come to an end."""

    async def on_message(self, ctx: tenure.Context, message: Any) -> None:
        await trio.sleep_forever()


@pytest.fixture
async def cluster(in_virtual_time: None) -> AsyncIterator[Cluster]:
    async with Cluster(nodes=2, members=2, partitions=PARTITIONS, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[tenure.Client]:
    async with cluster.client() as client:
        yield client


def beside(id: str) -> str:
    """Another id of the same partition."""
    return next(f"n{n}" for n in range(1000) if partition_of(f"n{n}", PARTITIONS) == partition_of(id, PARTITIONS))


async def fill(client: tenure.Client, id: str, body: Any = 1) -> int:
    """Publish until it is held back; returns how many were stored."""
    for n in range(10_000):
        try:
            await client.publish(id, body, timeout_s=1)
        except tenure.Backlogged as backlogged:
            if backlogged.full.keys() == {id}:
                return n
            raise
    raise AssertionError("nobody is held back")


async def test_who_publishes_to_nobody_is_held_back_before_anything_is_dropped(client: tenure.Client) -> None:
    stored = await fill(client, NOBODY)
    assert 20 <= stored <= 30
    with pytest.raises(tenure.Backlogged, match=r"'nobody-here' takes no more for now: no such job is known, and part"):
        await client.publish(NOBODY, 1, timeout_s=1)
    good = beside(NOBODY)
    await client.schedule(Int, id=good, timeout_s=5)
    for _ in range(50):
        await client.publish(good, 1, timeout_s=1)
    assert await client.ask(good, 1, timeout_s=1) == 51
    letters = await client.dead_letters()
    assert [letter["message"] for letter in letters] == [1] * stored
    assert await client.discard(letters) == stored
    await client.publish(NOBODY, 2, timeout_s=5)
    await trio.sleep(1)
    assert [letter["message"] for letter in await client.dead_letters()] == [2]


async def test_ids_that_are_all_different_are_held_back_too(client: tenure.Client) -> None:
    stored = 0
    for n in range(400):
        with trio.move_on_after(0.3):
            await client.publish(f"nobody-{n}", n, timeout_s=0.2 if stored > 80 else 1)
            stored += 1
            continue
        break
    else:
        raise AssertionError("nobody is held back")


async def test_dead_letters_are_bounded_by_their_bytes_too(client: tenure.Client) -> None:
    assert 7 <= await fill(client, NOBODY, "x" * 3_000) <= 12
    assert {letter["message"] for letter in await client.dead_letters()} == {"x" * 3_000}


async def test_what_is_held_back_goes_to_the_job_when_it_is_made(client: tenure.Client) -> None:
    await fill(client, NOBODY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.publish_many, [(NOBODY, n) for n in range(100)])
        await trio.sleep(5)
        await client.schedule(Int, id=NOBODY)
    assert (await client.state(NOBODY)).total == sum(range(100))


async def test_a_job_whose_messages_are_all_refused_is_full_for_a_while(cluster: Cluster) -> None:
    async with cluster.client(registry=tenure.Registry()) as client:  # it knows no types
        await client.schedule_many([])
        async with cluster.client() as knowing:
            await knowing.schedule(Int, id="i")
        stored = await fill(client, "i", "no number")
        assert 20 <= stored <= 30
        with pytest.raises(tenure.Backlogged, match="its messages become dead letters, of which partition"):
            await client.publish("i", "no number", timeout_s=1)
        await client.publish("i", 5, timeout_s=60)
        assert await client.state("i") == {"total": 5}


async def test_dead_letters_expire_after_a_while_and_that_is_said_and_counted(
    cluster: Cluster, client: tenure.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await client.publish_many([(NOBODY, n) for n in range(5)])
    await trio.sleep(60)
    await client.publish(NOBODY, 5)
    await trio.sleep(70)
    assert [letter["message"] for letter in await client.dead_letters()] == [5]
    out = capsys.readouterr().out
    assert len(re.findall("5 dead letters of partition . have expired: they were kept for 100 s", out)) == 1
    await cluster.add_node()
    for node in (0, 1):
        await cluster.kill(node)
    assert sum(row["dead_letters_expired"] for row in await client.partitions()) == 5, "also under the next owner"
    assert sum(row["dead_letters_dropped"] for row in await client.partitions()) == 0


async def test_many_dead_letters_are_few_lines_in_the_log(
    client: tenure.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(15):
        await client.publish(NOBODY, n)
    await trio.sleep(30)
    lines = [line for line in capsys.readouterr().out.splitlines() if "dead letter" in line]
    assert len(lines) == 2
    assert "for 'nobody-here': UnknownJob: there is no job of this id" in lines[0]
    assert "14 more dead letters (UnknownJob) in partition" in lines[1]


# -- strict ---------------------------------------------------------------------------------------


async def test_who_publishes_strictly_is_told_that_there_is_no_such_job(client: tenure.Client) -> None:
    await client.schedule(Int, id="i")
    await client.schedule(Int, id="gone")
    await client.unschedule("gone")
    await client.publish("i", 1, strict=True)
    for id in (NOBODY, "gone"):
        with pytest.raises(tenure.UnknownJob, match=f"there is no job '{id}': nothing was stored of 1 messages"):
            await client.publish(id, 1, strict=True)
    with pytest.raises(tenure.UnknownJob, match="there is no job 'nobody-here', 'gone': nothing was stored of 4"):
        await client.publish_many([("i", 1), (NOBODY, 1), ("gone", 1), (tenure.Topic("t"), 1)], strict=True)
    await client.publish_many([("i", 1), (tenure.Topic("t"), 1)], strict=True)
    assert await client.ask("i", 0) == 2
    assert await client.dead_letters() == []


async def test_strict_is_not_fooled_by_reads_that_miss_what_is_there(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule(Int, id="i")
    grid = await client._home.run(grid_of)
    real, misses = grid.get, [2]

    async def get(map: Map, partition: int, key: bytes) -> bytes | None:
        if map is Map.JOBS and misses[0]:
            misses[0] -= 1
            return None
        return await real(map, partition, key)

    monkeypatch.setattr(grid, "get", get)
    await client.publish("i", 1, strict=True)
    await client.publish("i", 1, strict=True)
    assert misses == [0]


async def grid_of(client: GridClient) -> Grid:
    return client.grid


async def test_what_is_no_pair_is_refused(client: tenure.Client) -> None:
    for wrong in (["o1"], [b"o1"], "o1", ["o12"], [("o1",)], [1]):
        with pytest.raises(tenure.Mistake, match="publish_many takes pairs"):
            await client.publish_many(wrong)  # type: ignore[arg-type]
    await trio.sleep(1)
    assert await client.dead_letters() == []


async def test_a_job_that_is_removed_while_there_are_too_many_dead_letters_stops_no_lane(client: tenure.Client) -> None:
    """Its client had asked about it, and been told that it is there."""
    good = beside(NOBODY)
    gone = next(id for n in range(1000) if partition_of(id := f"g{n}", PARTITIONS) == partition_of(good, PARTITIONS))
    for id in (good, gone):
        await client.schedule(Int, id=id)
    await fill(client, NOBODY)
    for id in (good, gone):
        await client.publish(id, 1, timeout_s=5)
    await client.unschedule(gone, timeout_s=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood, client, gone)
        await trio.sleep(5)
        for _ in range(10):
            await client.publish(good, 1, timeout_s=5)
        assert await client.ask(good, 0, timeout_s=5) == 11
        assert len(await client.dead_letters()) < 200
        nursery.cancel_scope.cancel()


async def flood(client: tenure.Client, id: str) -> None:
    for _ in range(2000):
        await client.publish_many([(id, 1)] * 10, timeout_s=1000)


async def reasons(client: tenure.Client) -> dict[tuple[str, Any], tuple[str, str]]:
    """(to whom, what) -> why it is a dead letter."""
    return {
        (found["to"], found["message"]): (found["reason"], found["detail"]) for found in await client.dead_letters()
    }


async def test_what_comes_by_a_topic_and_can_not_be_taken_is_kept(client: tenure.Client) -> None:
    """Nobody can refuse it where it is published: who subscribes is known to its partition alone."""
    await client.schedule_many([(Reader, "reader", {}), (Deaf, "deaf", {})])
    await client.publish(tenure.Topic("letters-numbers"), "seven")
    core: Any = client._home._value
    async with tenure.Client(grid=core.grid, registry=Registry()) as stranger:
        await stranger.broadcast("letters-deaf", 8)
    await trio.sleep(2)
    wrong = "Expected `int`, got `str`"
    assert await reasons(client) == {
        ("reader", "seven"): (
            "WrongType",
            f"job type 'letters-reader' can't take it: {wrong} (it came by topic 'letters-numbers')",
        ),
        ("deaf", "seven"): (
            "WrongType",
            "job type 'letters-deaf' has no on_message (it came by topic 'letters-numbers')",
        ),
        ("deaf", 8): ("WrongType", "job type 'letters-deaf' has no on_message (it came to all jobs of its type)"),
    }
    await client.publish(tenure.Topic("letters-numbers"), 7)
    await trio.sleep(2)
    assert (await client.state("reader")).total == 7
    letter = next(found for found in await client.dead_letters() if found["message"] == 7)
    assert (letter["to"], await client.replay([letter])) == ("deaf", 1)


async def test_a_turn_that_is_cancelled_as_its_job_goes_leaves_what_came_by_a_topic(client: tenure.Client) -> None:
    await client.schedule(Sleeper, id="sleeper")
    await client.publish(tenure.Topic("letters-numbers"), 1)
    await trio.sleep(2)
    await client.unschedule("sleeper", now=True)
    why = "its turn was cancelled, as its job was being removed (it came by topic 'letters-numbers')"
    assert await reasons(client) == {("sleeper", 1): ("Cancelled", why)}


async def test_a_node_whose_clock_is_ahead_of_the_others_knows(in_virtual_time: None) -> None:
    """It throws nothing away that was to be kept (see tests/pure/core/test_clocks.py)."""
    year_ms = 365 * 86_400_000
    async with Cluster(nodes=3) as cluster:
        hosts = [running.node.host for running in backend_of(cluster)._nodes.values()]
        for host in hosts:
            host.has_clock_of_all = False
        hosts[0].clocks._now_ms = lambda: hosts[1].now_ms() + year_ms
        await trio.sleep(1)
        assert [round(host.clocks.ahead_ms / year_ms) for host in hosts] == [1, 0, 0]
        assert abs(hosts[0].clocks.past_ms() - hosts[1].now_ms()) < 2000
