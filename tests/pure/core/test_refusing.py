"""Questions to jobs that run nothing are refused also where very much waits, without looking at all for each."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler import refusals
from tenure.scheduler.context import Context
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import client_partition, reply_key
from tenure.scheduler.wire import Answer, Envelope, Failure, decode
from tests.pure.core.bench import CLIENT, Bench, rest


class Slow(Job):
    seen: list[int] = []

    async def on_message(self, ctx: Context, message: list[Any]) -> int:
        await GATE.wait()
        self.seen.append(message[0])
        return message[0]


GATE = trio.Event()
SLOW = JobType("slow", Slow)


@pytest.fixture(autouse=True)
def gate() -> trio.Event:
    global GATE
    GATE = trio.Event()
    return GATE


async def answers(bench: Bench, numbers: range) -> list[Answer]:
    found = []
    for n in numbers:
        stored = await bench.grid().get(Map.REPLIES, client_partition(CLIENT, 1), reply_key(CLIENT, n))
        if stored is not None:
            found += decode(stored, list[Answer])
    return found


async def test_all_that_wait_are_refused_also_where_very_much_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "QUESTIONS_A_PASS", 7)
    await bench.open(SLOW)
    await bench.define("a", "slow")
    await rest(1)
    large = "x" * 50_000
    for n in range(0, 60, 4):  # 3 MB
        await bench.send(*(bench.message("a", [k, large], reply=1000 + k if k % 2 else 0) for k in range(n, n + 4)))
    await rest(1)
    await bench.define("a", "slow", revision=2, wanted="paused")
    await rest(2)
    refused = await answers(bench, range(1000, 1060))
    assert sorted(answer.n for answer in refused) == list(range(1001, 1060, 2))
    texts = [msgspec.msgpack.decode(answer.body)[1] for answer in refused]
    assert all("took no question, and nothing was done" in text for text in texts)
    GATE.set()
    await bench.define("a", "slow", revision=3)
    await rest(2)
    assert (await bench.state_of("a"))["seen"] == list(range(0, 60, 2))


class Looked(deque[Envelope]):
    times = 0

    def __iter__(self) -> Iterator[Envelope]:
        self.times += 1
        return super().__iter__()


async def test_what_waits_is_not_counted_anew_for_each_question(bench: Bench) -> None:
    opened = await bench.open(SLOW)
    await bench.define("a", "slow", wanted="paused")
    await rest(1)
    await bench.publish("a", *([n] for n in range(500)))
    await rest(1)
    live = opened.tenure.lives.of("a")
    live.queue = looked = Looked(live.queue)
    await bench.send(*(bench.message("a", [n], reply=n) for n in range(1, 301)))
    await rest(1)
    refused = await answers(bench, range(1, 301))
    assert len(refused) == 300
    assert "501 messages wait for it" in msgspec.msgpack.decode(refused[0].body)[1]  # with its start
    assert looked.times < 20


async def test_who_is_forgiven_has_no_attempts_that_were_counted_ahead(bench: Bench) -> None:
    opened = await bench.open(SLOW)
    await bench.define("a", "slow")
    await bench.publish("a", [1], [2], [3])
    await rest(1)
    tenure = opened.tenure
    live = tenure.lives.of("a")
    assert tenure.suspicion._mark(live, 3) == 3
    live.failure = Failure("x", "", "", 1, 0)
    tenure.definitions.forgive(live)
    await rest(1)
    assert ([envelope.attempts for envelope in live.queue], live.precounted) == ([0, 0, 0], 0)
    assert [envelope.attempts for envelope in opened.state.mail["a"]] == [0, 0, 0]


class Flaky(Job):
    n: int = 0

    async def on_message(self, ctx: Context, message: int) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        await GATE.wait()
        self.n += 1


async def test_what_is_being_tried_again_is_not_said_to_be_skipped(bench: Bench) -> None:
    opened = await bench.open(JobType("flaky", Flaky))
    await bench.define("a", "flaky")
    await bench.publish("a", 1)
    await rest(5)
    live = opened.tenure.lives.of("a")
    assert (live.running, live.failure is not None) == (True, True)
    answer = await bench.command("retry", "a", skip=True)
    assert msgspec.msgpack.decode(answer.body) is False
    GATE.set()
    await rest(1)
    assert (await bench.state_of("a"))["n"] == 1
