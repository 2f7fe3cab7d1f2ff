"""The buffer of a client: bounded, shared by all who send, and empty once all that they sent is settled."""

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

import pytest
import trio

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Backlogged, NotDone
from tenure.scheduler.grid.memory import MemoryGrid
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.settings import ClientSettings
from tests.pure.core.bench import Bench, rest


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)


COUNTER = JobType("counter", Counter)


def client(bench: Bench, grid: MemoryGrid | None = None, **settings: int) -> AbstractAsyncContextManager[GridClient]:
    return open_client(
        bench.grid() if grid is None else grid,
        settings=ClientSettings(**settings),
        registry=Registry(COUNTER),
        now_ms=bench.now_ms,
        sender=b"\x01sending",
    )


async def is_empty(here: GridClient) -> None:
    """All that was sent is settled, and the buffer knows it."""
    sending = here.sending
    with trio.fail_after(60):
        while any(lane.next_step(0) for lane in sending._lanes.values()) or sending._pumping:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert sending._buffer_bytes == 0


async def test_what_is_sent_while_others_are_stored_leaves_the_buffer_too(bench: Bench) -> None:
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    random = Random(1)
    async with client(bench, buffer_bytes_max=2000) as here:

        async def publish(sender: int) -> None:
            for n in range(50):
                await here.publish("a", 1000 * sender + n, deadline_s=5)
                await trio.sleep(random.uniform(0, 0.003))

        async with trio.open_nursery() as nursery:
            for sender in range(10):
                nursery.start_soon(publish, sender)
        await is_empty(here)
    assert len((await bench.state_of("a"))["seen"]) == 500


async def test_so_does_what_is_withdrawn_or_whose_caller_has_gone(bench: Bench) -> None:
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    random = Random(1)
    async with client(bench, batch_messages_max=2, window_slots=4) as here:

        async def publish(sender: int) -> None:
            for n in range(20):
                with trio.move_on_after(random.choice([0.002, 1])):
                    try:
                        await here.publish_many([("a", 1000 * sender + n)] * 3, deadline_s=random.choice([0.001, 0.01]))
                    except Backlogged:
                        withdrawn.append(n)

        withdrawn: list[int] = []
        async with trio.open_nursery() as nursery:
            for sender in range(10):
                nursery.start_soon(publish, sender)
        assert 20 < len(withdrawn) < 200
        await is_empty(here)


async def test_all_who_wait_for_room_go_on(bench: Bench) -> None:
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    async with client(bench, buffer_bytes_max=100) as here:
        async with trio.open_nursery() as nursery:
            for n in range(6):
                nursery.start_soon(lambda n: here.publish_many([("a", n)] * 20, deadline_s=5), n)
        await is_empty(here)
    assert sorted((await bench.state_of("a"))["seen"]) == sorted([*range(6)] * 20)


async def test_what_is_withdrawn_makes_room_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    grid = bench.grid()
    store = grid.set

    async def late(*args: Any, **options: Any) -> None:
        await trio.sleep(2)  # meanwhile no pump can say that there is room
        await store(*args, **options)

    async def give_up() -> None:
        with pytest.raises(Backlogged, match="5 of 5"):
            await here.publish_many([("a", n) for n in range(5)], deadline_s=1)

    async with client(bench, grid, buffer_bytes_max=100, batch_messages_max=1) as here:
        await here.publish("a", 100)
        monkeypatch.setattr(grid, "set", late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            await rest(0.5)
            nursery.start_soon(here.publish, "a", 5)
            await rest(0.4)
            [lane] = here.sending._lanes.values()
            assert (len(lane.frozen), len(lane.waiting)) == (1, 2)
            await rest(0.2)
            assert (len(lane.frozen), len(lane.waiting)) == (1, 1), "the other one's message has come in"
        await is_empty(here)
    assert (await bench.state_of("a"))["seen"] == [100, 0, 5]


async def test_a_question_that_is_not_stored_in_time_has_no_effect_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked was told, and may have asked again."""
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    grid = bench.grid()
    store = grid.set

    async def late(*args: Any, **options: Any) -> None:
        await trio.sleep(3)
        await store(*args, **options)

    async with client(bench, grid, batch_messages_max=1) as here:
        await here.publish("a", 1)
        monkeypatch.setattr(grid, "set", late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.publish, "a", 2)
            await rest(0.1)
            with pytest.raises(NotDone, match="the question to 'a' is not known to be stored within 1 s: the cluster"):
                await here.ask("a", 3, deadline_s=1)
            with pytest.raises(NotDone, match=r"the question to partition 0 is not known to be stored within 1\.5 s"):
                await here.command(0, "", {"op": "status"}, deadline_s=1.5)
            await rest(0.1)
            [lane] = here.sending._lanes.values()
            assert not lane.waiting
        monkeypatch.undo()
        await is_empty(here)
        assert (await bench.state_of("a"))["seen"] == [1, 2]


async def test_a_question_that_is_asked_again_says_how_long_it_was_waited_for_in_all(bench: Bench) -> None:
    await bench.form()
    async with client(bench) as here:
        with pytest.raises(NotDone, match=r"no answer from partition 0 within 29\.5 s;"):
            await here.command(0, "", {"op": "status"}, deadline_s=29.5)
