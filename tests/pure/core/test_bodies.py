"""Messages that nobody can read are refused where they are sent; one that came all the same harms no other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, msgpack

from tenure.scheduler.bodies import DEPTH_MAX, is_too_deep, sizes
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.errors import WrongType
from tenure.scheduler.grid.port import Map
from tenure.scheduler.inlanes import InLanes
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.keys import slot_key
from tenure.scheduler.salvage import salvaged
from tenure.scheduler.snapshots.stragglers import deliver
from tenure.scheduler.wire import Batch, Envelope, encode
from tests.pure.core.bench import CLIENT, FORMATION, Bench, rest


class Anything(Job):
    n: int = 0

    def on_message(self, ctx: Context, message: Any) -> int:
        if message == "send":
            ctx.send("a", nested(700))
        self.n += 1
        return self.n


class Key(msgspec.Struct, frozen=True):
    x: int


ANY = JobType("any", Anything)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ODD = {
    "very deep": b"\x91" * 5000 + b"\x01",
    "deep": b"\x91" * 984 + b"\x01",
    "a map as a key": b"\x81\x81\xa1x\x01\x01",
    "no time": b"\xc7\x02\xffxx",
}


@asynccontextmanager
async def opened(bench: Bench) -> AsyncIterator[GridClient]:
    await bench.open(ANY)
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    for id in ("a", "b"):
        await bench.define(id, "any")
    async with open_client(bench.grid(), registry=Registry(ANY), now_ms=bench.now_ms) as client:
        yield client


@pytest.mark.parametrize(
    "odd", [nested(700), nested(900), {Key(1): 1}, msgpack.Ext(-1, b"xx")], ids=("deep", "very deep", "key", "time")
)
async def test_what_nobody_can_read_is_refused_where_it_is_sent(bench: Bench, odd: Any) -> None:
    async with opened(bench) as client:
        for call, to in ((client.publish, "a"), (client.ask, "a"), (client.broadcast, "any")):
            with pytest.raises(WrongType):
                await call(to, odd)  # type: ignore[operator]
        with pytest.raises(WrongType):
            await client.publish_many([("a", 1), ("a", odd)])
        assert (await client.state("a")).n == 0


async def test_what_is_nested_as_deep_as_may_be_arrives(bench: Bench) -> None:
    async with opened(bench) as client:
        await client.publish("a", nested(DEPTH_MAX))
        await client.publish("a", {"rows": [{"n": n, "of": [n, [n]]} for n in range(3000)]})
        assert (await client.state("a")).n == 2


async def test_a_job_can_send_nothing_that_nobody_can_read(bench: Bench) -> None:
    async with opened(bench) as client:
        await client.publish("b", "send")
        await rest(60)
        about = await client.directory.describe("b")
        assert "nested deeper" in str(about["failure"])


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_odd_message_takes_no_other_with_it(bench: Bench, odd: bytes) -> None:
    """An older client has sent it."""
    async with opened(bench) as client:
        await bench.send(
            bench.message("a", 1), Envelope("b", Raw(odd), source="x"), bench.message("a", 2), bench.message("b", 3)
        )
        assert (await client.state("a")).n == 2
        assert (await client.state("b")).n == 1
        (letter,) = await client.directory.dead_letters()
        assert (letter["to"], letter["source"]) == ("b", "x")
        assert (await client.directory.describe("b"))["status"] == "running"
        await rest(1)
        assert await bench.keys(Map.INBOX) == []
        # It is in the journal and in images by now, and harms nobody there.
        again = await bench.open(ANY)
        await again.tenure.images.write()
        await bench.open(ANY)
        assert (await client.state("a")).n == 2
        assert await client.directory.exhume([letter], replay=True) == 1


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_who_asks_with_an_odd_message_is_told(bench: Bench, odd: bytes) -> None:
    async with opened(bench) as client:
        await bench.send(Envelope("a", Raw(odd), reply=77))
        assert not (await bench.answer(77)).ok
        assert (await client.state("a")).n == 0


def test_a_lane_begins_though_its_first_slot_has_an_odd_message() -> None:
    lanes = InLanes({CLIENT: (100, 2)}, 0)
    first = encode(Batch([Envelope("a", Raw(ODD["very deep"]))], 100, 2))
    lanes.offer(slot_key(CLIENT, 200, 0), first)
    assert lanes.next_slot(CLIENT) is not None
    early = encode(Batch([Envelope("a", Raw(ODD["very deep"]))], 100, 3))
    lanes = InLanes({CLIENT: (100, 2)}, 0)
    lanes.offer(slot_key(CLIENT, 200, 0), early)
    assert lanes.next_slot(CLIENT) is None, "the lane before is not at its end"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-9, 9), inner),
    max_leaves=20,
)


@given(st.lists(VALUES, max_size=20), st.integers(0, 2**40), st.integers(0, 9), st.booleans())
def test_what_can_be_read_is_salvaged_as_it_is(values: list[Any], lane: int, n: int, holds_back: bool) -> None:
    envelopes = [Envelope("a", Raw(msgpack.encode(value)), id=str(at)) for at, value in enumerate(values)]
    stored = encode(Batch(envelopes, lane, n, 7, 8, holds_back))
    found = salvaged(stored)
    assert found is not None
    assert (encode(found[0]), found[1]) == (stored, {})


@given(VALUES, st.sampled_from((b"", bytes(70_000))))
def test_where_values_end_is_found(value: Any, long: bytes) -> None:
    stored = [msgpack.encode(part) for part in (value, long, str(long), list(long), msgpack.Ext(5, long), 1.5)]
    array = b"\x96" + b"".join(stored)
    assert [array[start:end] for start, end in sizes(array)] == stored


@given(st.binary(max_size=60))
def test_nonsense_is_no_batch(nonsense: bytes) -> None:
    for value in (nonsense, b"\x01\x00" + nonsense, b"\x01\x00\x91" + nonsense):
        salvaged(value)


@pytest.mark.parametrize("depth", [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 500, 2000])
@pytest.mark.parametrize("mark", [b"\x91", b"\x81\x01", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\xa1x"])
def test_how_deep_a_body_is(depth: int, mark: bytes) -> None:
    assert is_too_deep(mark * depth + b"\x01") is (depth > DEPTH_MAX)
    assert not is_too_deep(msgpack.encode([[1, {"a": 2}]] * 2000))


@pytest.mark.parametrize("odd", [ODD["very deep"], ODD["deep"]], ids=["very deep", "deep"])
def test_an_odd_message_on_its_way_takes_no_other_with_it_into_a_restored_cluster(odd: bytes) -> None:
    batch = encode(Batch([Envelope("a", Raw(b"\x01")), Envelope("b", Raw(odd)), Envelope("a", Raw(b"\x02"))]))
    found = deliver([(slot_key(CLIENT, 1, 0), batch)], {}, lambda name: [], 0)
    assert [bytes(envelope.body) for envelope in found.mail] == [b"\x01", b"\x02"]
    (letter,) = found.undecodable
    assert (letter.envelope.to, odd in bytes(letter.envelope.body)) == ("b", True)
    assert not is_too_deep(letter.envelope.body)


class Holds(Job):
    value: Any = None


async def test_parameters_that_no_owner_might_read_are_refused_where_they_are_given(bench: Bench) -> None:
    type = JobType("holds", Holds)
    await bench.open(type)
    async with open_client(bench.grid(), registry=Registry(type), now_ms=bench.now_ms, sender=CLIENT) as client:
        with pytest.raises(WrongType, match="given as parameters is nested deeper than 200"):
            await client.defining.schedule("holds", "a", {"value": nested(2 * DEPTH_MAX)})
    assert await bench.grid().get(Map.JOBS, 0, b"a") is None
