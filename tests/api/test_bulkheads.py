"""An error that nobody expected stops the one thing that met it: never the node, nor what else it serves."""

import asyncio  # noqa: TID251  # what handlers raise may come from there
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

import tenure
from tenure.cli.examination import examine_grid
from tenure.cli.partitions_seen import look_at_partitions
from tenure.members import Standard
from tenure.scheduler.assignment import ASSIGNMENT
from tenure.scheduler.cluster import MARKER
from tenure.scheduler.definitions import Definitions
from tenure.scheduler.grid.port import Map
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import HEAD, partition_of
from tenure.scheduler.load import Meter
from tenure.scheduler.node import Node
from tenure.scheduler.sightings import Sightings
from tenure.scheduler.sweeping import Sweeping
from tenure.scheduler.taking import Taking
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.turns import Turns
from tenure.scheduler.wire import Definition, encode
from tenure.testing import Cluster
from tests.api.jobs import Counter
from tests.api.test_formats import backend_of

PARTITIONS = 8


class Custom(BaseException):
    """As libraries have them, to get past `except Exception`."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "asyncio": lambda: asyncio.CancelledError("x"),
    "exit": lambda: SystemExit(3),
    "generator": lambda: GeneratorExit("x"),
    "custom": lambda: Custom("x"),
    "memory": lambda: MemoryError("x"),
    "group": lambda: BaseExceptionGroup("x", [Custom("x"), ValueError("y")]),
}


class Plain(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> None:
        raise RAISED[message]()


class Async(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: str) -> None:
        await trio.sleep(0.01)
        raise RAISED[message]()


class Picky(tenure.Job):
    """Its own check raises what msgspec does not take for a check."""

    n: int = 0

    def __post_init__(self) -> None:
        if self.n < 0:
            raise Custom("negative")


class Blocking(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> None:
        raise RAISED[message]()


ONCE = tenure.Retry(attempts_max=1)
KINDS = {"plain": Plain, "async": Async, "blocking": Blocking}
TYPES = Registry(
    *registry,
    *(JobType(name, kind, retry=ONCE, blocking=name == "blocking") for name, kind in KINDS.items()),
    JobType("picky", Picky),
)
pytestmark = pytest.mark.tenure(nodes=1, members=1, backups=0, partitions=PARTITIONS, app=TYPES)


def node_of(cluster: Cluster) -> Node:
    [running] = backend_of(cluster)._nodes.values()
    assert not running.ended.is_set()
    return running.node


@pytest.fixture
def errors(cluster: Cluster) -> list[str]:
    """What the node says of errors that nobody expected."""
    found: list[str] = []
    node = node_of(cluster)
    node.host.log_error = lambda text, error: found.append(text)
    node.bulkhead._log_error = node.host.log_error
    return found


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_comes_out_of_a_handler_fails_its_turn_and_nothing_else(
    cluster: Cluster, client: tenure.Client, kind: str, raised: str
) -> None:
    await client.schedule(kind, id="j")
    await client.publish("j", raised)
    described = await client.describe("j")
    for _ in range(200):
        if described["status"] == "failed":
            break
        time.sleep(0.005)  # noqa: ASYNC251  # a thread knows no virtual time
        await trio.sleep(0.1)
        described = await client.describe("j")
    assert described["status"] == "failed"
    assert type(RAISED[raised]()).__name__ in described["failure"]["error"]
    node_of(cluster)


async def test_what_a_jobs_own_checks_raise_fails_that_job(
    cluster: Cluster, client: tenure.Client, errors: list[str]
) -> None:
    definition = Definition("picky", tenure.scheduler.wire.Raw(b"\x81\xa1n\xff"), 1, 1, "running")  # n: -1
    partition = partition_of("p", PARTITIONS)
    await node_of(cluster).grid.set(Map.JOBS, partition, b"p", encode(definition))
    await trio.sleep(5)
    described = await client.describe("p")
    assert described["status"] == "failed" or "negative" in described["stuck"]
    assert not errors


@pytest.mark.parametrize("parameters", [b"\x01", b"\xc0", b"\x82\x01\x02\xa1a\x03", b"\x91" * 600])
async def test_parameters_that_are_none_fail_their_job(
    cluster: Cluster, client: tenure.Client, errors: list[str], parameters: bytes
) -> None:
    definition = Definition("api-counter", tenure.scheduler.wire.Raw(b"\x80"), 1, 1, "running")
    stored = encode(definition).replace(b"\x80", parameters)
    await node_of(cluster).grid.set(Map.JOBS, partition_of("p", PARTITIONS), b"p", stored)
    await client.schedule(Counter, id="beside")
    await trio.sleep(5)
    assert not node_of(cluster).bulkhead.parked
    assert await client.ask("beside", {"n": 1}) == 1
    assert not errors


async def _group() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fail)
        nursery.start_soon(_fail)


async def _fail() -> None:
    raise MemoryError


@pytest.mark.parametrize("error", [ValueError("max() arg is an empty sequence"), MemoryError(), KeyError("x")])
async def test_an_error_in_the_loop_of_one_partition_parks_that_one(
    cluster: Cluster, client: tenure.Client, errors: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ids = [f"c{n}" for n in range(20)]
    await client.schedule_many([("api-counter", id, {}) for id in ids])
    await trio.sleep(1)
    assert [await client.ask(id, {"n": 1}) for id in ids] == [1] * 20
    node, sick = node_of(cluster), partition_of("c0", PARTITIONS)
    there = [id for id in ids if partition_of(id, PARTITIONS) == sick]
    deliver, failures = Taking._deliver_message, 0

    def delivers(self: Taking, envelope: Any) -> Any:
        nonlocal failures
        if self.partition == sick:
            failures += 1
            raise error
        return deliver(self, envelope)

    monkeypatch.setattr(Taking, "_deliver_message", delivers)
    await client.publish("c0", {"n": 1}, id="one")
    await trio.sleep(20)
    assert 3 < failures < 8  # ever more rarely
    assert node.bulkhead.parked.keys() == {sick}
    stopped = node.bulkhead.parked[sick]
    assert type(error).__name__ in stopped.error
    assert "81a16e01" in stopped.error  # the message's bytes
    assert "in delivers" in stopped.traceback
    assert [text for text in errors if f"partition {sick} is parked" in text] == errors
    assert len(errors) == 1  # once, as long as it is the same
    for id in sorted({*ids} - {*there}):
        assert await client.ask(id, {"n": 1}) == 2
    async with backend_of(cluster).open_client(None, None) as inside:
        [row] = [row for row in await look_at_partitions(inside, timeout_s=2) if row["state"] != "open"]
    assert (row["partition"], row["state"], row["node"]) == (sick, "parked", node.host.node)
    assert type(error).__name__ in row["error"]
    verdicts = {verdict.about: verdict for verdict in await examine_grid(node.grid, timeout_s=2)}
    assert verdicts["owners"].standard is Standard.BAD
    assert type(error).__name__ in verdicts["owners"].finding
    monkeypatch.setattr(Taking, "_deliver_message", deliver)
    await trio.sleep(70)
    assert not node.bulkhead.parked
    assert await client.ask("c0", {"n": 1}) == 3  # each once


async def test_a_message_that_parks_its_partition_each_time_fails_its_own_job_at_last(
    cluster: Cluster, client: tenure.Client, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule(Counter, id="bad")
    partition = partition_of("bad", PARTITIONS)
    beside = next(id for id in map(str, range(100)) if partition_of(id, PARTITIONS) == partition)
    await client.schedule(Counter, id=beside)
    await trio.sleep(1)
    succeed = Turns._succeed

    def broken(self: Turns, live: Any, *args: Any) -> None:
        if live.id == "bad":
            raise RuntimeError("a fault of the engine")
        succeed(self, live, *args)

    monkeypatch.setattr(Turns, "_succeed", broken)
    await client.publish("bad", {"n": 1})
    await trio.sleep(60)
    assert (await client.describe("bad"))["failure"]["error"].startswith("CrashedRepeatedly")
    assert await client.ask(beside, {"n": 1}) == 1
    assert not node_of(cluster).bulkhead.parked


async def test_nothing_is_committed_after_the_error(
    cluster: Cluster, client: tenure.Client, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule(Counter, id="a")
    assert await client.ask("a", {"n": 1}) == 1
    node, sick = node_of(cluster), partition_of("a", PARTITIONS)
    tenure_, slot = node.tenures[sick], node.tenures[sick].state.next_slot
    monkeypatch.setattr(Turns, "_result", _raise)
    tenure_.start(_group)
    await trio.sleep(0.5)
    assert sick in node.bulkhead.parked
    assert sick not in node.tenures
    assert tenure_.state.next_slot == slot  # no closing record, nothing
    assert "MemoryError" in node.bulkhead.parked[sick].traceback


def _raise(*args: Any) -> Any:
    raise RuntimeError("injected")


async def _araise(*args: Any) -> Any:
    raise RuntimeError("injected")


@pytest.mark.parametrize(
    ("what", "owner", "name", "fault"),
    [
        ("sweeps", Sweeping, "inbox", _araise),
        ("definitions", Definitions, "_sweep", _araise),
        ("images", Imaging, "write", _araise),
        ("presence", Meter, "measure", _raise),
        ("lookout", Node, "_see", _araise),
        ("assignment", Node, "_settle_assignment", _araise),
        ("sightings", Sightings, "_look", _araise),
        ("heartbeat's hints", Tenure, "hear_slot", _raise),
        ("clearing", Journal, "still_ours", _araise),
    ],
)
async def test_a_task_that_fails_is_reported_and_goes_on_later(
    cluster: Cluster,
    client: tenure.Client,
    errors: list[str],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    owner: type,
    name: str,
    fault: Any,
) -> None:
    await client.schedule(Counter, id="a")
    assert await client.ask("a", {"n": 1}) == 1
    node = node_of(cluster)
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, fault)
        for n in range(900):
            await client.publish("a", {"n": 0})
            if n % 90 == 0:
                await trio.sleep(1)
        if what == "sightings":
            with pytest.raises(tenure.NotFinished, match="that have not looked yet"):
                await client.wait("default", timeout_s=3)
        await trio.sleep(30)
        if what not in ("lookout", "assignment", "heartbeat's hints"):
            assert await client.ask("a", {"n": 1}) == 2
    assert not node.bulkhead.parked
    assert bool(errors) == (what != "heartbeat's hints")
    assert len(errors) <= (2 if what in ("presence", "lookout", "assignment") else 30 * PARTITIONS)
    await trio.sleep(130)
    assert await client.ask("a", {"n": 1}) in (2, 3)
    assert node_of(cluster) is node


@pytest.mark.parametrize("garbage", [b"", b"\x01\x00\xc1", b"\xb4junk", b"\x01\x00\x91\x91\x91", b"\x01\x00\x80"])
async def test_no_stored_value_that_can_not_be_understood_ends_a_process(
    cluster: Cluster, client: tenure.Client, garbage: bytes
) -> None:
    """In each map, under keys of each kind; and what was there before, the bookkeeping too, is overwritten."""
    await client.schedule(Counter, id="a")
    assert await client.ask("a", {"n": 1}) == 1
    node = node_of(cluster)
    grid, sound = backend_of(cluster).grid_cluster.connect(), partition_of("a", PARTITIONS)
    await trio.sleep(1)
    for map in Map:
        for partition in range(PARTITIONS):
            if partition == sound:
                continue
            keys = [entry.key async for page in grid.scan(map, partition) for entry in page]
            for key in (*keys, b"junk", b"\xff", b"x" * 8, b"node/junk", b"y" * 24):
                if map is not Map.NODES or key not in (ASSIGNMENT, MARKER):
                    await grid.set(map, partition, key, garbage)
    for key in (ASSIGNMENT, b"snapshot", b"hold"):
        await grid.set(Map.NODES, 0, key, garbage)
    await trio.sleep(30)
    assert node_of(cluster) is node
    assert await client.ask("a", {"n": 1}) == 2
    assert await grid.get(Map.HEADS, sound, HEAD) is not None
    grid.close()
