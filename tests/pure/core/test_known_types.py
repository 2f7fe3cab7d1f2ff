"""What clients know of the types of jobs, which may be made anew under other types."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.errors import WrongType
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.known_types import KNOWN_S, REFRESH_S
from tenure.scheduler.wire import encode
from tests.pure.core.bench import FORMATION, Bench, rest


class Ints(Job):
    got: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.got.append(message)


class Strs(Job):
    got: list[str] = []

    def on_message(self, ctx: Context, message: str) -> int:
        self.got.append(message)
        return len(self.got)


INTS, STRS = JobType("ints", Ints), JobType("strs", Strs)


@asynccontextmanager
async def made_anew(bench: Bench) -> AsyncIterator[GridClient]:
    """A client that has published to a job of one type, which is of another one by now."""
    await bench.open(INTS, STRS)
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    await bench.define("x", "ints")
    async with open_client(bench.grid(), registry=Registry(INTS, STRS), now_ms=bench.now_ms) as client:
        await client.publish("x", 1)
        await rest(1)
        await bench.define("x", "ints", revision=2, wanted="removed")
        await rest(1)
        await bench.define("x", "strs", generation=2, revision=3)
        await rest(1)
        yield client


async def test_a_right_message_is_not_refused_for_what_the_job_was_before(bench: Bench) -> None:
    async with made_anew(bench) as client:
        await client.publish("x", "a")
        await client.publish_many([("x", "b"), ("x", "c")])
        assert (await client.state("x")).got == ["a", "b", "c"]


async def test_an_ask_is_not_refused_for_what_the_job_was_before(bench: Bench) -> None:
    async with made_anew(bench) as client:
        assert await client.ask("x", "a") == 1


async def test_a_wrong_message_is_refused_once_anything_was_learned_of_the_new_type(bench: Bench) -> None:
    async with made_anew(bench) as client:
        await client.publish("x", "a")
        for publish in (client.publish, client.ask):
            with pytest.raises(WrongType):
                await publish("x", 5)
        assert await client.directory.dead_letters() == []


async def test_a_wrong_message_is_not_acknowledged_when_the_job_has_been_another_one_for_a_while(bench: Bench) -> None:
    async with made_anew(bench) as client:
        await rest(KNOWN_S)
        with pytest.raises(WrongType):
            await client.publish("x", 5)


async def test_who_goes_on_publishing_learns_of_it_without_waiting(bench: Bench) -> None:
    async with made_anew(bench) as client:
        await rest(REFRESH_S)
        await client.publish("x", 5)
        await rest(1)
        with pytest.raises(WrongType):
            await client.publish("x", 5)
        letters = [(letter["message"], letter["reason"]) for letter in await client.directory.dead_letters()]
        assert letters == [(5, "WrongType")], "the first was stored, and is not lost"


async def test_a_read_that_is_out_of_date_refuses_nothing(bench: Bench) -> None:
    async with made_anew(bench) as client:
        bench.faults.once(Fault.STALE, map=Map.JOBS, connection=client.grid, times=1)
        await client.publish("x", "a")
        assert (await client.state("x")).got == ["a"]


async def test_a_message_that_is_wrong_for_certain_is_refused_at_once(bench: Bench) -> None:
    async with made_anew(bench) as client:
        with pytest.raises(WrongType):
            await client.publish("x", [1])
