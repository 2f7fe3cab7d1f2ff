"""One lost partition never hides the others: commands show the rest, name what is missing, and end with 1."""

import pytest
import trio

import tenure
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.port import Map
from tenure.scheduler.keys import HEAD, partition_of
from tests.api.jobs import Counter
from tests.api.shell import Shell

IDS = [f"job-{n}" for n in range(20)]
LOST = 2


@pytest.fixture
def lossy(shell: Shell) -> Shell:
    """A cluster of four partitions, one of which is lost."""

    async def before(client: tenure.Client) -> None:
        await client.schedule_many([(Counter, id, {}) for id in IDS])
        for id in IDS:
            await client.ask(id, {"n": 1})
        await client.publish_many([(f"nobody-{n}", n) for n in range(20)])
        while len(await client.dead_letters()) < 20:  # noqa: ASYNC110  # in virtual time
            await trio.sleep(0.2)
        await client._home.run(_lose)
        await trio.sleep(30)

    shell.before = before
    return shell


async def _lose(client: GridClient) -> None:
    await client.grid.delete(Map.HEADS, LOST, HEAD)


def elsewhere(*ids: str) -> list[str]:
    return [id for id in ids if partition_of(id, 4) != LOST]


def test_jobs_of_the_others_are_listed_and_changed(lossy: Shell) -> None:
    rows = lossy("jobs", "--json", code=1)
    assert sorted(row["id"] for row in rows) == sorted(elsewhere(*IDS))
    assert f"The jobs of partition {LOST} are not among these" in lossy.err
    rows = lossy("pause", "id=job-*", "--json", code=1)
    assert sorted(row["id"] for row in rows if row["done"]) == sorted(elsewhere(*IDS))
    assert f"The jobs of partition {LOST} are not among these" in lossy.err
    well, ill = elsewhere(*IDS)[0], next(id for id in IDS if partition_of(id, 4) == LOST)
    assert [row["id"] for row in lossy("pause", well, "--json")] == [well]
    lossy("pause", ill, code=1)
    assert f"partition {LOST} is lost" in lossy.err, "nobody says that there is no such job"


def test_dead_letters_and_topics_of_the_others_are_listed(lossy: Shell) -> None:
    rows = lossy("dead-letters", "--json", code=1)
    assert len(lossy("dead-letters", "list", "--json", code=1)) == len(rows), "as snapshots are listed"
    assert sorted(row["to"] for row in rows) == sorted(elsewhere(*(f"nobody-{n}" for n in range(20))))
    assert f"The dead letters of partition {LOST} are not among these" in lossy.err
    lossy("dead-letters", "discard", "--to", "*", code=1)
    assert f"{len(rows)} letters discarded" in lossy.err
    lossy("topics", code=1)
    assert f"The topics of partition {LOST} are not among these" in lossy.err
