"""Timers that are to ring now ring once, whatever becomes of the answers."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import tenure
from tenure.clients import quiescing
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.export import lines
from tenure.scheduler.snapshots.stores import open_store
from tenure.testing import Cluster

pytestmark = [pytest.mark.tenure(nodes=2, partitions=7)]
SERIAL = itertools.count()
JOBS = [f"alarm-{n}" for n in range(20)]


@tenure.job("firing-alarm", application="firing")
class Alarm(tenure.Job):
    """Sets itself anew."""

    rung: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(3600)

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.rung += 1
        ctx.wake_in(3600)


class Deaf:
    """A client that does not get the first answer of each partition that was to fire."""

    def __init__(self, core: Any) -> None:
        self.command = core.command
        self.lost: set[int] = set()
        self.lose = trio.Event()

    async def __call__(self, partition: int, to: str, arguments: dict[str, Any], **options: Any) -> Any:
        answer = await self.command(partition, to, arguments, **options)
        if arguments.get("fire") and partition not in self.lost:
            self.lost.add(partition)
            self.lose.set()
            raise tenure.NotDone("no answer")
        return answer


@pytest.fixture
def deaf(client: tenure.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deaf]:
    core: Any = client._home._value
    deaf = Deaf(core)
    monkeypatch.setattr(core, "command", deaf)
    yield deaf
    assert len(deaf.lost) == core.partition_count


async def rung(client: tenure.Client) -> set[int]:
    return {(await client.state(id)).rung for id in JOBS}


async def test_a_partition_whose_answer_was_lost_does_not_fire_again(
    cluster: Cluster, client: tenure.Client, deaf: Deaf
) -> None:
    await client.schedule_many([(Alarm, id, {}) for id in JOBS])
    await client.wait("firing", timers="fire")
    assert await rung(client) == {1}
    await client.wait("firing", timers="fire")  # another wait
    assert await rung(client) == {2}


async def test_its_next_owner_does_not_either(
    cluster: Cluster, client: tenure.Client, deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule_many([(Alarm, id, {}) for id in JOBS])
    monkeypatch.setattr(quiescing, "PAUSE_S", 5.0)  # the next round comes after the crash
    async with trio.open_nursery() as nursery:

        async def crash() -> None:
            await deaf.lose.wait()
            await trio.sleep(1)
            await cluster.kill(0)

        nursery.start_soon(crash)
        await client.wait("firing", timers="fire")
    assert await rung(client) == {1}


async def test_nor_a_cluster_that_is_restored_any_less(cluster: Cluster, client: tenure.Client, deaf: Deaf) -> None:
    """What is kept of it is no job, and is in nobody's way."""
    await client.schedule_many([(Alarm, id, {}) for id in JOBS])
    await client.wait("firing", timers="fire")
    place = f"memory:firing-{next(SERIAL)}"
    assert (await client.snapshot(place))["jobs"] == len(JOBS)
    assert (await client.verify_snapshot(place))["whole"]
    assert [line["kind"] async for line in lines(Catalog(open_store(place)), "")] == ["job"] * len(JOBS)
    async with Cluster(nodes=1, partitions=5) as another, another.client() as other:
        assert (await other.restore(place))["jobs"] == len(JOBS)
        await other.wait("firing", timers="fire")
        assert await rung(other) == {2}
