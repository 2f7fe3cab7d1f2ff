"""One core, three kinds of caller: trio, asyncio, threads. Real time, as asyncio and threads have no other."""

import ast
import asyncio  # noqa: TID251  # asyncio's users are what is tested
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.clients.trio_thread import TrioThread
from tenure.testing import Cluster, SyncCluster
from tests.api.jobs import Counter, Script, step
from tests.api.shells import SHELLS, SOURCE, made_from

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("path", SHELLS)
def test_the_blocking_shells_are_up_to_date(path: str) -> None:
    made = ast.parse((SOURCE / SHELLS[path]).read_text())
    wanted = ast.parse(made_from(path, (SOURCE / path).read_text()))
    for module in (made, wanted):
        module.body.sort(key=lambda node: (not isinstance(node, ast.ImportFrom), getattr(node, "module", "")))
    assert ast.dump(made) == ast.dump(wanted), "run `python -m tests.api.shells`"


def test_both_clients_have_the_same_methods() -> None:
    def methods(cls: type) -> dict[str, list[str]]:
        found = inspect.getmembers(cls, inspect.isfunction)
        return {name: list(inspect.signature(fn).parameters) for name, fn in found if not name.startswith("_")}

    assert methods(tenure.Client) == methods(tenure.SyncClient)
    assert len(methods(tenure.Client)) > 20
    for cls in (tenure.Client, tenure.SyncClient):
        for name in methods(cls):
            assert inspect.getdoc(getattr(cls, name))


async def everything(client: tenure.Client) -> None:
    """Every method once."""
    await client.schedule(Counter, id="a", total=1)
    await client.schedule_many([(Counter, "b", {}), (Script, "s", {})])
    await client.publish("a", {"n": 1})
    await client.publish_many([("a", {"n": 1}), (tenure.Topic("t"), 1)], ids=["x", "y"])
    await client.broadcast(Counter, {"n": 1})
    assert await client.ask("a", {"n": 1}) == 5
    assert (await client.state("a")).total == 5
    await client.pause("a")
    await client.resume("a")
    await client.cancel("b")
    assert await client.retry("a") is False
    assert (await client.describe("a"))["type"] == "api-counter"
    assert len(await client.jobs()) == 3
    assert len(await client.nodes()) == 2
    assert len(await client.partitions()) == 16
    assert await client.topics() == {}
    with pytest.raises(tenure.UnknownJob):
        await client.ask("nobody", 1)
    letters = await client.dead_letters()
    assert await client.replay(letters) == 1
    await asyncio_or_trio_sleep(0.2)
    assert await client.discard(await client.dead_letters()) == 1
    await client.unschedule("a")


async def hang(job: Script, ctx: tenure.Context) -> None:
    await trio.sleep_forever()


async def asyncio_or_trio_sleep(seconds: float) -> None:
    if trio.lowlevel.in_trio_run():
        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


async def whole() -> None:
    async with Cluster() as cluster, cluster.client() as client:
        await everything(client)
        await cluster.kill(0)
        assert await cluster.add_node() == 2
        with pytest.raises(tenure.Mistake, match="no node 0"):
            await cluster.kill(0)


@pytest.mark.parametrize("run", [trio.run, lambda fn: asyncio.run(fn())], ids=["trio", "asyncio"])
def test_everything(run: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    run(whole)
    assert no_threads_left()


def no_threads_left() -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(thread.name == "tenure" for thread in threading.enumerate()):
            return True
        time.sleep(0.01)
    return False


def test_everything_without_await() -> None:
    with SyncCluster() as cluster, cluster.client() as client:
        client.schedule(Counter, id="a", total=1)
        client.publish("a", {"n": 1})
        assert client.ask("a", {"n": 1}) == 3
        assert client.state("a").total == 3
        cluster.drain(0)
        assert cluster.nodes() == [1]
        assert client.ask("a", {"n": 1}) == 4
        with pytest.raises(tenure.UnknownJob):
            client.describe("nobody")
        client.unschedule("a")
    with pytest.raises(tenure.ClientClosed):
        client.jobs()
    assert no_threads_left()


def test_many_threads_share_a_client() -> None:
    with SyncCluster() as cluster, cluster.client() as client, ThreadPoolExecutor(16) as pool:
        client.schedule(Counter, id="a")

        def work(n: int) -> None:
            client.publish("a", {"n": n})
            client.ask("a", {"n": 1})

        list(pool.map(work, range(100)))
        assert client.state("a").total == sum(range(100)) + 100


def test_asyncio_users_of_a_sync_cluster() -> None:
    async def use(client: tenure.Client) -> None:
        async with client:
            await client.schedule(Counter, id="a")
            totals = await asyncio.gather(*(client.ask("a", {"n": 1}) for _ in range(50)))
            assert sorted(totals) == list(range(1, 51))

    with SyncCluster() as cluster:
        asyncio.run(use(cluster.async_client()))


def test_cancelling_an_asyncio_caller_ends_the_wait_and_nothing_else() -> None:
    cancelled = threading.Event()

    async def main(client: tenure.Client) -> None:
        async with client:
            await client.schedule(Script, id="s")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.ask("s", step(hang)), 0.3)
            cancelled.set()
            assert (await client.describe("s"))["running"]
            await client.schedule(Counter, id="a")
            assert await client.ask("a", {"n": 1}) == 1

    with SyncCluster() as cluster:
        asyncio.run(main(cluster.async_client()))
        assert cancelled.is_set()


def test_the_end_of_the_loop_closes_the_client() -> None:
    """asyncio.run cancels what is still there: the client is closed all the same."""
    began = threading.Event()

    async def forgotten() -> None:
        async with Cluster(nodes=1) as cluster, cluster.client() as client:
            await client.schedule(Script, id="s")
            began.set()
            await asyncio.sleep(3600)

    async def main() -> None:
        task = asyncio.create_task(forgotten())
        await asyncio.to_thread(began.wait, 10)
        assert not task.done()

    asyncio.run(main())
    assert began.is_set()
    assert no_threads_left()


def test_a_client_closed_under_a_call_ends_it() -> None:
    async def main(client: tenure.Client) -> None:
        async with client:
            await client.schedule(Script, id="s")
            call = asyncio.create_task(client.ask("s", step(hang)))
            await asyncio.sleep(0.2)
        with pytest.raises(tenure.ClientClosed):
            await call

    with SyncCluster() as cluster:
        asyncio.run(main(cluster.async_client()))


async def test_errors_of_the_block_come_out_as_they_are(in_virtual_time: None) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Cluster() as cluster, cluster.client():
            raise ZeroDivisionError
    with pytest.raises(tenure.UnknownJob):
        async with Cluster() as cluster, cluster.client() as client:
            await client.state("nobody")
    with trio.move_on_after(1) as scope:
        async with Cluster() as cluster, cluster.client():
            await trio.sleep_forever()
    assert scope.cancelled_caught


def test_errors_of_opening_come_out_as_they_are(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import tenure\n\nraise ValueError('no')\n")

    async def open_it() -> None:
        async with Cluster(app=broken):
            pass

    for attempt in (lambda: trio.run(open_it), lambda: asyncio.run(open_it()), SyncCluster(app=broken).__enter__):
        with pytest.raises(tenure.BadApplication, match=r"broken\.py, line 3: ValueError: no"):
            attempt()
    assert no_threads_left()


def test_an_engine_that_breaks_is_heard_of() -> None:
    class Broken:
        async def __aenter__(self) -> str:
            return "value"

        async def __aexit__(self, *error: Any) -> None:
            raise RuntimeError("could not be left")

    thread = TrioThread()
    lease = thread.open(Broken)
    lease.opened.result(5)
    with pytest.raises(RuntimeError, match="could not be left"):
        lease.close().result(5)
    with pytest.raises(RuntimeError, match="could not be left"):
        lease.submit(trio.sleep).result(5)  # type: ignore[arg-type]
    thread.stop()
    assert no_threads_left()


def test_a_client_is_opened_once(tmp_path: Path) -> None:
    with SyncCluster(nodes=0) as cluster:
        client = cluster.client()
        with pytest.raises(tenure.ClientClosed, match="with"):
            client.jobs()
        with client:
            pass
        with pytest.raises(tenure.Mistake, match="opened already"):
            client.__enter__()


@pytest.mark.parametrize("elsewhere", [trio.run, lambda fn: asyncio.run(fn())], ids=["trio", "asyncio"])
async def test_a_client_that_lives_in_one_loop_refuses_calls_from_another(elsewhere: Any) -> None:
    """Trio's tasks can't be woken from there: both loops would break."""

    async def use() -> None:
        with pytest.raises(tenure.Mistake, match="opened in another event loop"):
            await client.publish("a", {"n": 1})

    async with Cluster(nodes=1, members=1) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="a")
        await trio.to_thread.run_sync(elsewhere, use)
        assert await client.ask("a", {"n": 1}) == 1


async def test_a_client_that_was_opened_under_asyncio_refuses_calls_from_trio() -> None:
    async def opened() -> tenure.Client:
        client = cluster.async_client()
        await client.__aenter__()
        return client

    def blocking() -> tenure.Client:
        return asyncio.run(opened())

    with SyncCluster(nodes=1, members=1) as cluster:
        client = await trio.to_thread.run_sync(blocking)
        with pytest.raises(tenure.Mistake, match="opened in another event loop"):
            await client.publish("a", {"n": 1})
