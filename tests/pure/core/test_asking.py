"""Questions of a client: their answers are heard when the bell rings, and found when it does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tenure.scheduler.asking import Asking
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.context import Context
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.taking import Taking
from tests.pure.core.bench import Bench, rest

POLL_S = 0.25


class Echo(Job):
    asked: int = 0

    async def on_message(self, ctx: Context, message: float) -> float:
        self.asked += 1
        await trio.sleep(message)
        return message


class Plain(Job):
    def on_message(self, ctx: Context, message: int) -> int:
        return message


ECHO, PLAIN = JobType("echo", Echo), JobType("plain", Plain)


@asynccontextmanager
async def client(bench: Bench) -> AsyncIterator[GridClient]:
    await bench.open(ECHO, PLAIN)
    for n in range(10):
        await bench.define(f"e{n}", "echo")
    await bench.define("p", "plain")
    settings, registry = ClientSettings(reply_poll_s=POLL_S), Registry(ECHO, PLAIN)
    async with open_client(bench.grid(), settings=settings, registry=registry, now_ms=bench.now_ms) as here:
        for to in (*(f"e{n}" for n in range(10)), "p"):
            assert await here.ask(to, 0) == 0  # by now they have been met
        await rest(2)
        yield here


@pytest.fixture
def no_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asking, "on_replies", lambda *_: None)


async def took_s(here: GridClient, to: str, message: Any, **options: Any) -> float:
    began_s = trio.current_time()
    assert await here.ask(to, message, **options) == message
    return trio.current_time() - began_s


async def test_an_answer_whose_bell_was_lost_is_found_soon(bench: Bench, no_bells: None) -> None:
    async with client(bench) as here:
        times: list[float] = []

        async def ask(n: int) -> None:
            await trio.sleep(0.07 * n)
            times.append(await took_s(here, f"e{n}", 0.0))

        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(ask, n)
        assert max(times) < POLL_S + 0.05
        assert await took_s(here, "e0", 1.0) < 1.0 + 2 * POLL_S


async def test_questions_that_are_answered_in_time_share_one_timer(bench: Bench) -> None:
    async with client(bench) as here:
        for n in range(200):
            assert await took_s(here, f"e{n % 10}", 0.01) < 0.1
        await trio.sleep(2 * POLL_S)
        for soon in (here.asking._soon, here.sending._soon):
            assert not soon._waits
            assert not soon._is_at_work
        assert await took_s(here, "e0", 3.0) < 3.1  # by its bell, also when it comes late


async def test_who_closes_the_client_keeps_nobody_waiting(bench: Bench, no_bells: None) -> None:
    closed: list[float] = []

    async def ask(here: GridClient, pause_s: float) -> None:
        await trio.sleep(pause_s)
        with pytest.raises(NotDone, match="client was closed"):
            await here.ask("e0", 100.0, deadline_s=50)
        closed.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        async with client(bench) as here:
            for pause_s in (0.0, POLL_S / 2):
                nursery.start_soon(ask, here, pause_s)
            await trio.sleep(1.2 * POLL_S)  # one looks by itself by now, one does not
        at_s = trio.current_time()
    assert [round(each - at_s, 3) for each in closed] == [0, 0]


async def test_a_deadline_ends_the_wait_for_room_as_well_as_that_for_an_answer(bench: Bench) -> None:
    async with client(bench) as here:
        here.sending._buffer_bytes = here.settings.buffer_bytes_max + 1
        for to in ("p", "e0"):
            began_s = trio.current_time()
            with pytest.raises(NotDone, match="within 2 s"):
                await here.ask(to, 5, deadline_s=2)
            assert trio.current_time() - began_s < 3.1  # it asks for a second why that is so
            here.sending._buffer_bytes = 0


async def test_a_question_costs_one_pass_of_its_partition(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(bench) as here:
        passes, take = [], Taking.take

        def counted(self: Taking) -> None:
            passes.append(self.partition)
            take(self)

        monkeypatch.setattr(Taking, "take", counted)
        for n in range(20):
            assert await here.ask("p", n) == n
        assert len(passes) == 20
