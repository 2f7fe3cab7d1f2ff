"""Handlers that fail, states that are too large or can't be read: retried, parked, named; nothing is lost."""

import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.grid.port import Map
from tenure.scheduler.keys import partition_of, slot_key
from tenure.testing import Cluster
from tenure.testing.memory_cluster import MemoryBackend
from tests.api.jobs import Counter, Script, step

PARTITIONS = 16


@tenure.job("api-fragile", retry=tenure.Retry(attempts_max=4, first_delay_s=1, factor=3))
class Fragile(tenure.Job):
    """Fails as long as `trouble` says so."""

    done: list[str] = []
    half: int = 0

    def on_message(self, ctx: tenure.Context, message: str) -> str:
        self.half += 1
        ctx.send("audit", {"n": 1})
        tries.append((message, ctx.attempt, trio.current_time()))
        if message in trouble:
            raise RuntimeError(f"no luck with {message}")
        self.done.append(message)
        return message


tries: list[tuple[str, int, float]] = []
trouble: set[str] = set()


@pytest.fixture(autouse=True)
def calm() -> None:
    tries.clear()
    trouble.clear()


async def test_retries_back_off_and_leave_no_trace_of_failed_tries(client: tenure.Client) -> None:
    await client.schedule(Counter, id="audit")
    await client.schedule(Fragile, id="f")
    trouble.add("a")
    await client.publish("f", "a")
    await trio.sleep(0.5)
    description = await client.describe("f")
    assert description["failure"] is not None
    assert description["failure"]["error"] == "RuntimeError: no luck with a"
    assert "on_message" in description["failure"]["traceback"]
    assert description["failure"]["retry_ms"] > 0
    assert description["state"] == {"done": [], "half": 0}
    await trio.sleep(5)
    trouble.clear()
    await trio.sleep(20)
    assert [attempt for _, attempt, _ in tries] == [1, 2, 3, 4]
    times = [time for _, _, time in tries]
    delays = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    for delay, wanted in zip(delays, [1, 3, 9], strict=True):
        assert wanted <= delay < wanted + 1.1
    state = await client.state("f")
    assert (state.done, state.half) == (["a"], 1)
    assert (await client.describe("f"))["failure"] is None
    assert (await client.state("audit")).total == 1


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


UNSTORABLE = "\udcff is no UTF-8"


@tenure.job("api-troubled", retry=tenure.Retry(attempts_max=1))
class Troubled(tenure.Job):
    """Does what can't be stored."""

    text: str = ""

    def on_message(self, ctx: tenure.Context, message: str) -> str:
        if message == "unspeakable":
            raise Unspeakable
        if message == "large":
            raise ValueError("x" * 10_000_000)
        if message == "error":
            raise FileNotFoundError(UNSTORABLE)
        if message == "cause":
            raise ValueError("for a reason") from FileNotFoundError(UNSTORABLE)
        if message == "state":
            self.text = UNSTORABLE
        if message == "id":
            ctx.send("fine", "fine", id=UNSTORABLE)
        if message == "send":
            ctx.send("fine", UNSTORABLE)
        return UNSTORABLE if message == "answer" else "fine"


ERRORS = {
    "unspeakable": "Unspeakable: (what it says can't be had: RuntimeError)",
    "large": f"ValueError: {'x' * 1000}",
    "error": r"FileNotFoundError: \udcff is no UTF-8",
    "cause": "ValueError: for a reason",
    "state": "WrongType: the state of job type",
    "id": "Mistake: a message's id is a string of at most 500 bytes",
    "send": "WrongType: message to 'fine' can't be stored",
    "answer": "WrongType: the handler's result can't be an answer",
}


@pytest.mark.parametrize("what", ERRORS)
async def test_texts_that_can_not_be_stored_fail_their_job_and_nothing_else(client: tenure.Client, what: str) -> None:
    for id in ("troubled", "fine"):
        await client.schedule(Troubled, id=id)
    with pytest.raises(tenure.JobFailed, match=re.escape(ERRORS[what])):
        await client.ask("troubled", what)
    await client.publish("troubled", what, id="of which no answer is kept")
    await trio.sleep(1)
    failure = (await client.describe("troubled"))["failure"]
    if what == "answer":
        assert failure is None  # nobody asks for it
        return
    assert failure is not None
    assert failure["error"].startswith(ERRORS[what])
    assert len(failure["error"]) <= 2000
    assert await client.ask("fine", "fine") == "fine"


async def test_clients_refuse_what_can_not_be_stored_and_go_on(client: tenure.Client) -> None:
    await client.schedule(Troubled, id="fine")
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    for unstorable in (UNSTORABLE, deep):
        with pytest.raises(tenure.WrongType):
            await client.publish("fine", unstorable)
        with pytest.raises(tenure.WrongType):
            await client.ask("fine", unstorable)
    for id in (UNSTORABLE, "x" * 501, 5):
        with pytest.raises(tenure.Mistake, match="a message's id is a string of at most 500 bytes"):
            await client.publish("fine", "fine", id=id)  # type: ignore[arg-type]
        with pytest.raises(tenure.Mistake, match="a message's id is a string of at most 500 bytes"):
            await client.ask("fine", "fine", id=id)  # type: ignore[arg-type]
    assert await client.ask("fine", "fine", id="x" * 500) == "fine"


async def test_a_job_that_has_failed_waits_for_retry(client: tenure.Client) -> None:
    await client.schedule(Counter, id="other")
    await client.schedule(Fragile, id="f")
    trouble.add("bad")
    await client.publish_many([("f", "one"), ("f", "bad"), ("f", "two")])
    with pytest.raises(tenure.JobFailed, match="nothing was done"):
        await client.ask("f", "three", timeout_s=40)
    description = await client.describe("f")
    assert description["status"] == "failed"
    assert description["error"] == "RuntimeError: no luck with bad"
    assert description["first_waiting"] is not None
    assert description["first_waiting"]["message"] == "bad"
    assert description["state"]["done"] == ["one"]
    assert await client.ask("other", {"n": 1}) == 1
    trouble.clear()
    assert await client.retry("f") is True
    assert (await client.state("f")).done == ["one", "bad", "two"]
    assert await client.retry("f") is False


async def test_skipping_makes_a_dead_letter_of_what_failed(client: tenure.Client) -> None:
    await client.schedule(Counter, id="audit")
    await client.schedule(Fragile, id="f")
    trouble.add("bad")
    await client.publish_many([("f", "bad"), ("f", "two")])
    await trio.sleep(30)
    assert await client.retry("f", skip=True) is True
    assert (await client.state("f")).done == ["two"]
    [letter] = await client.dead_letters()
    assert (letter["message"], letter["reason"], letter["detail"]) == (
        "bad",
        "Skipped",
        "RuntimeError: no luck with bad",
    )
    trouble.clear()
    assert await client.replay([letter]) == 1
    assert (await client.state("f")).done == ["two", "bad"]


async def test_the_one_who_asked_is_told(client: tenure.Client) -> None:
    await client.schedule(Fragile, id="f")
    trouble.add("bad")
    with pytest.raises(tenure.JobFailed, match="RuntimeError: no luck with bad"):
        await client.ask("f", "bad")


async def test_a_failed_job_that_was_paused_and_tries_again_can_be_paused(client: tenure.Client) -> None:
    await client.schedule(Fragile, id="f")
    trouble.add("bad")
    await client.publish("f", "bad")
    await trio.sleep(30)
    await client.pause("f")
    assert (await client.describe("f"))["status"] == "failed"
    trouble.clear()
    assert await client.retry("f") is True
    assert await client.ask("f", "good") == "good"
    await client.pause("f")
    assert (await client.describe("f"))["status"] == "paused"
    await client.resume("f")
    assert (await client.state("f")).done == ["bad", "good"]


async def test_a_failed_job_can_be_removed(client: tenure.Client) -> None:
    await client.schedule(Fragile, id="f")
    trouble.add("bad")
    await client.publish("f", "bad")
    await trio.sleep(30)
    await client.unschedule("f")
    with pytest.raises(tenure.UnknownJob):
        await client.state("f")
    assert [letter["message"] for letter in await client.dead_letters()] == ["bad"]


@pytest.mark.tenure(settings=tenure.NodeSettings(state_bytes_max=1000))
async def test_a_state_that_grows_too_large_fails_its_turn(client: tenure.Client) -> None:
    await client.schedule(Script, id="s")
    grow = step(lambda job, ctx: job.log.append("x" * 1000))
    with pytest.raises(tenure.JobFailed, match=r"StateTooLarge.*the limit is 1000"):
        await client.ask("s", grow)
    assert (await client.describe("s"))["state"] == {"log": ["started"]}


async def test_a_state_of_a_wrong_type_fails_its_turn(client: tenure.Client) -> None:
    def spoil(job: Script, ctx: tenure.Context) -> None:
        job.log = "not a list"  # type: ignore[assignment]

    await client.schedule(Script, id="s")
    with pytest.raises(tenure.JobFailed, match=r"WrongType.*Expected `array`, got `str` - at `\$.log`"):
        await client.ask("s", step(spoil))


@tenure.job("api-odd", retry=tenure.Retry(attempts_max=1))
def odd(ctx: tenure.Context, message: Any) -> int:
    ctx.state[message] = "x"
    return len(ctx.state)


async def test_a_function_s_state_stays_one_that_can_be_read(client: tenure.Client) -> None:
    await client.schedule(odd, id="o")
    assert await client.ask("o", "seven") == 1
    with pytest.raises(tenure.JobFailed, match=r"WrongType: the state of job type 'api-odd' .* key 7 is no string"):
        await client.ask("o", 7)
    assert await client.state("o") == {"seven": "x"}
    await client.retry("o", skip=True)
    assert await client.ask("o", "eight") == 2


@tenure.job("api-delegating", retry=tenure.Retry(attempts_max=1))
class Delegating(tenure.Job):
    """Returns what would have to be awaited, or gone through."""

    done: list[str] = []

    def on_message(self, ctx: tenure.Context, message: str) -> Any:
        return getattr(self, message)(message)

    async def coroutine(self, message: str) -> None:
        self.done.append(message)

    def generator(self, message: str) -> Iterator[None]:
        self.done.append(message)
        yield

    async def async_generator(self, message: str) -> AsyncIterator[None]:
        self.done.append(message)
        yield

    def value(self, message: str) -> str:
        self.done.append(message)
        return message


@tenure.job("api-delegating-async", retry=tenure.Retry(attempts_max=1))
class AsyncDelegating(Delegating):
    async def on_message(self, ctx: tenure.Context, message: str) -> Any:
        return getattr(self, message)(message)


@pytest.mark.parametrize("what", ["coroutine", "generator", "async_generator"])
@pytest.mark.parametrize("type", [Delegating, AsyncDelegating])
async def test_work_that_a_handler_returns_instead_of_doing_it_fails_its_turn(
    client: tenure.Client, type: type[Delegating], what: str
) -> None:
    await client.schedule(type, id="d")
    await client.publish("d", what)
    await trio.sleep(1)
    described = await client.describe("d")
    assert described["status"] == "failed"
    assert described["error"].startswith(f"WrongType: the handler returned a {what}, of which nothing has run")
    await client.retry("d", skip=True)
    with pytest.raises(tenure.JobFailed, match=f"returned a {what}"):
        await client.ask("d", what)
    await client.retry("d", skip=True)
    assert await client.ask("d", "value") == "value"
    assert (await client.state("d")).done == ["value"]


async def test_a_turn_that_takes_too_long_is_ended(client: tenure.Client) -> None:
    await client.schedule(Limited, id="l")
    with pytest.raises(tenure.JobFailed, match=r"TurnTimeout.*2"):
        await client.ask("l", None)


@tenure.job("api-limited", timeout_s=2, retry=tenure.Retry(attempts_max=1))
class Limited(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: Any) -> None:
        await trio.sleep(100)


def backend_of(cluster: Cluster) -> MemoryBackend:
    backend = cluster._home._value
    assert isinstance(backend, MemoryBackend)
    return backend


@pytest.mark.parametrize("garbage", [b"\x01\x00\xc1garbage", b"\x07\x09from the future", b""])
async def test_a_slot_that_can_not_be_read_is_kept_and_its_partition_goes_on(
    cluster: Cluster, client: tenure.Client, garbage: bytes
) -> None:
    await client.schedule(Counter, id="clicks")
    partition = partition_of("clicks", PARTITIONS)
    grid = backend_of(cluster).grid_cluster.connect()
    sender, lane = b"\x99strange", await _lane(cluster)
    await grid.set(Map.INBOX, partition, slot_key(sender, lane, 0), garbage)
    await trio.sleep(5)
    assert await client.ask("clicks", {"n": 1}) == 1
    [letter] = await client.dead_letters()
    assert letter["message"] == garbage
    assert letter["reason"] in ("Undecodable", "UnreadableFormat")
    grid.close()


async def _lane(cluster: Cluster) -> int:
    return round((await cluster.now()).timestamp() * 1000) << 4


async def test_a_definition_that_can_not_be_read_is_left_alone(cluster: Cluster, client: tenure.Client) -> None:
    partition = partition_of("odd", PARTITIONS)
    grid = backend_of(cluster).grid_cluster.connect()
    await grid.set(Map.JOBS, partition, b"odd", b"\x01\x00\xc1garbage")
    await client.publish("odd", {"n": 1})
    neighbour = next(f"n{n}" for n in range(1000) if partition_of(f"n{n}", PARTITIONS) == partition)
    await client.schedule(Counter, id=neighbour)
    assert await client.ask(neighbour, {"n": 1}) == 1
    assert await grid.get(Map.JOBS, partition, b"odd") == b"\x01\x00\xc1garbage"
    assert await client.dead_letters() == []
    for name in ("schedule", "state"):
        with pytest.raises(tenure.Final if name == "schedule" else tenure.NotDone):
            await (client.schedule(Counter, id="odd") if name == "schedule" else client.state("odd", timeout_s=3))
    grid.close()
