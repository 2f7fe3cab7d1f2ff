"""The thread behind blocking and asyncio clients: nobody waits for ever, whatever is closed or forked under them."""

import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import tenure
import tenure.testing
from tenure.clients.trio_thread import Lease, TrioThread
from tenure.scheduler.errors import ClientClosed, Mistake

SOON_S = 5.0


@tenure.job("trio-thread-counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> int:
        self.total += 1
        return self.total


@asynccontextmanager
async def opening() -> AsyncIterator[int]:
    yield 1


async def for_ever(_: int) -> None:
    await trio.sleep_forever()


async def for_ever_in_a_nursery(_: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)


async def fails_as_it_is_cancelled(_: int) -> None:
    async def bad() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was cancelled")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(bad)


async def fails_in_a_nursery(_: int) -> None:
    async def bad() -> None:
        raise ValueError("by itself")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bad)
        nursery.start_soon(trio.sleep_forever)


async def leaves_the_program(_: int) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("operation", [for_ever, for_ever_in_a_nursery, fails_as_it_is_cancelled])
def test_who_is_in_a_call_as_it_is_closed_is_told(operation: Callable[[int], Awaitable[None]]) -> None:
    thread = TrioThread()
    lease: Lease[int] = thread.open(opening)
    lease.opened.result(SOON_S)
    future, other = lease.submit(operation), lease.submit(for_ever)
    time.sleep(0.1)
    lease.close().result(SOON_S)
    for waiting in (future, other):
        with pytest.raises(ClientClosed, match="it may have been done"):
            waiting.result(SOON_S)
    thread.stop()
    thread.join(SOON_S)


@pytest.mark.parametrize(("operation", "error"), [(fails_in_a_nursery, ValueError), (leaves_the_program, SystemExit)])
def test_an_error_is_its_callers_alone(operation: Any, error: type[BaseException]) -> None:
    thread = TrioThread()
    lease: Lease[int] = thread.open(opening)
    lease.opened.result(SOON_S)
    other, future = lease.submit(for_ever), lease.submit(operation)
    with pytest.raises(error):
        future.result(SOON_S)
    time.sleep(0.1)
    assert not other.done()
    lease.close().result(SOON_S)
    thread.stop()
    thread.join(SOON_S)


def test_who_opens_what_fails_in_a_nursery_is_told() -> None:
    @asynccontextmanager
    async def bad() -> AsyncIterator[int]:
        await for_ever_in_a_nursery(1)
        yield 1

    thread = TrioThread()
    lease: Lease[int] = thread.open(bad)
    time.sleep(0.1)
    thread.abandon()
    for future in (lease.opened, lease.closed):
        with pytest.raises(ClientClosed, match="the program has ended"):
            future.result(SOON_S)


def test_what_is_closed_while_it_is_being_opened_is_not_waited_for() -> None:
    """As when an asyncio timeout ends `async with Client()` while a member starts."""
    left = threading.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[int]:
        try:
            await trio.sleep_forever()
        finally:
            left.set()
        yield 1

    thread = TrioThread()
    lease: Lease[int] = thread.open(slow)
    time.sleep(0.1)
    lease.close()
    assert left.wait(SOON_S)
    for future in (lease.opened, lease.closed):
        with pytest.raises(ClientClosed):
            future.result(SOON_S)
    other = thread.open(opening)
    other.opened.result(SOON_S)
    other.close().result(SOON_S)
    thread.stop()
    thread.join(SOON_S)


def test_a_cancelled_wait_for_the_end_harms_nobody() -> None:
    thread = TrioThread()
    first, second = thread.open(opening), thread.open(opening)
    first.opened.result(SOON_S)
    first.closed.cancel()
    first.close()
    time.sleep(0.1)
    second.opened.result(SOON_S)
    second.close().result(SOON_S)
    thread.stop()
    thread.join(SOON_S)


@pytest.mark.parametrize("call", ["ask", "schedule_many", "wait"])
def test_a_client_that_is_closed_lets_go_of_the_thread_in_it(call: str) -> None:
    """As a web server ends: it closes its client, and joins its threads."""
    calls: dict[str, Callable[[Any], object]] = {
        "ask": lambda client: client.ask("a", {}, timeout_s=60),
        "schedule_many": lambda client: client.schedule_many([(Counter, f"y{n}", {}) for n in range(30_000)]),
        "wait": lambda client: client.wait("default", timeout_s=60),
    }
    with (
        ThreadPoolExecutor(1) as pool,
        tenure.testing.SyncCluster(nodes=1, members=1, partitions=16) as cluster,
    ):
        with cluster.client() as client:
            client.schedule(Counter, id="a")
            if call != "schedule_many":
                cluster.kill(0)
            waiting = pool.submit(calls[call], client)
            time.sleep(0.5)
            assert not waiting.done()
        with pytest.raises(ClientClosed):
            waiting.result(SOON_S)


def _in_the_child(act: Callable[[], object]) -> str:
    """What came of it in a fork of this process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        def late() -> None:
            theirs.send("it neither returned nor raised")
            os._exit(3)

        timer = threading.Timer(SOON_S, late)
        timer.daemon = True
        timer.start()
        try:
            theirs.send(repr(act()))
        except BaseException as error:  # noqa: BLE001
            theirs.send(f"{type(error).__name__}: {error}")
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    answer: str = ours.recv() if ours.poll(2 * SOON_S) else "nothing"
    process.join(SOON_S)
    return answer


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_client_says_that_it_was_opened_before_a_fork() -> None:
    with (
        tenure.testing.SyncCluster(nodes=1, members=1, partitions=16) as cluster,
        cluster.client() as client,
    ):
        client.schedule(Counter, id="a")
        assert client.ask("a", {}) == 1
        said = _in_the_child(lambda: client.publish("a", {}, timeout_s=2))
        assert said.startswith(f"{Mistake.__name__}: ")
        assert f"opened in process {os.getpid()}" in said
        assert "after the fork" in said
        assert _in_the_child(lambda: client.__exit__(None, None, None)) == "None", "there is nothing to close"
        assert client.ask("a", {}) == 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_was_made_and_not_opened_before_a_fork_works_after_it() -> None:
    thread = TrioThread()

    def use() -> int:
        lease: Lease[int] = thread.open(opening)
        lease.opened.result(SOON_S)

        async def add(value: int) -> int:
            return value + 41

        return lease.submit(add).result(SOON_S)

    assert _in_the_child(use) == "42"
