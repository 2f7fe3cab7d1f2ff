"""Blocking turns: waiting for a thread is not running, a thread that was given up is named and replaced, and no job
fails for want of one."""

import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

import tenure
from tenure.cli.examination import examine_grid
from tenure.members import Standard
from tenure.scheduler.jobtype import JobType, Registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.threads import TOLD_EVERY_S, WAIT_TOLD_S, Threads
from tenure.testing import Cluster
from tests.api.test_formats import backend_of

hangs = threading.Event()


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    hangs.clear()
    yield
    hangs.set()


class Slow(tenure.Job):
    n: int = 0

    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        time.sleep(0.1)
        self.n += 1
        return self.n


class Hang(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        hangs.wait(30)


TYPES = Registry(
    JobType("slow", Slow, blocking=True, timeout_s=0.5, retry=tenure.Retry(attempts_max=1)),
    JobType("hang", Hang, blocking=True, timeout_s=0.1, retry=tenure.Retry(attempts_max=3, first_delay_s=0.01)),
)
SETTINGS = NodeSettings(blocking_threads_max=4)


@pytest.fixture
async def real() -> AsyncIterator[Cluster]:
    """In real time: threads know no other."""
    async with Cluster(nodes=1, members=1, backups=0, partitions=2, app=TYPES, settings=SETTINGS) as cluster:
        yield cluster


def node_of(cluster: Cluster) -> Node:
    [running] = backend_of(cluster)._nodes.values()
    return running.node


async def test_no_job_fails_for_waiting(real: Cluster) -> None:
    """40 jobs, 4 threads, 0.1 s each, `timeout_s=0.5`: the last one waits for a second, and runs for a tenth."""
    async with real.client() as client:
        ids = [f"s{n}" for n in range(40)]
        await client.schedule_many([("slow", id, {}) for id in ids])
        await client.publish_many([(id, 1) for id in ids])
        with trio.fail_after(20):
            while [(await client.state(id)).n for id in ids] != [1] * len(ids):
                assert {job["status"] for job in await client.jobs()} == {"running"}
                await trio.sleep(0.1)


async def test_lost_threads_are_named_and_replaced_and_then_others_wait(
    real: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, reports = node_of(real), []
    node.host.report = reports.append
    async with real.client() as client:
        await client.schedule("slow", id="s")
        hung = [f"h{n}" for n in range(2)]
        await client.schedule_many([("hang", id, {}) for id in hung])
        await client.publish_many([(id, 1) for id in hung])
        with trio.fail_after(20):
            while len(node.host.threads.lost) < 6:  # noqa: ASYNC110  # two jobs, three attempts each
                await trio.sleep(0.02)
        assert await client.ask("s", 1, timeout_s=5) == 1  # 4 lost ones were replaced, two places are left
        lost = [text for text in reports if "its thread still runs" in text]
        assert len(lost) == 6
        assert "of job 'h0' (hang) was given up after 0." in "".join(lost)
        assert "hangs.wait(30)" in lost[0]
        assert "replaced by another" in lost[0]
        assert "2 of 4 threads are left" in lost[5]
        verdicts = {found.about: found for found in await examine_grid(node.grid, timeout_s=2)}
        assert verdicts["threads"].standard is Standard.WARNING
        assert f"{node.host.node} (6)" in verdicts["threads"].finding
        await client.schedule("hang", id="h2")
        await client.publish("h2", 1)
        with trio.fail_after(20):
            while len(node.host.threads.lost) < 8:  # noqa: ASYNC110
                await trio.sleep(0.02)
        await client.publish("s", 2)
        await trio.sleep(1)
        assert (await client.describe("s"))["status"] == "running"  # it waits; that is no failure
        hangs.set()
        with trio.fail_after(20):
            while (await client.state("s")).n < 2:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert not node.host.threads.lost


async def test_what_waits_for_long_is_told_now_and_then(autojump_clock: trio.testing.MockClock) -> None:
    reports: list[str] = []
    threads = Threads(1, reports.append)
    begun: list[str] = []
    async with trio.open_nursery() as nursery:
        for who in ("a", "b", "c"):
            nursery.start_soon(threads.run, lambda: hangs.wait(30), who, lambda who=who: begun.append(who))
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(WAIT_TOLD_S - 1)
        threads.mind()
        assert not reports
        for _ in range(3):
            await trio.sleep(2)
            threads.mind()
        assert len(reports) == 1
        assert reports[0].startswith("2 blocking turns wait for a thread, the first (b) for 11 s: 1 are at work")
        assert "the longest, a, for 11 s" in reports[0]
        await trio.sleep(TOLD_EVERY_S)
        threads.mind()
        assert len(reports) == 2
        assert begun == ["a"]
        nursery.cancel_scope.cancel()
    assert len(threads.lost) == 1  # what only waited has left nothing


async def test_a_place_is_free_again_however_a_call_ends() -> None:
    reports: list[str] = []
    threads = Threads(1, reports.append)

    def fail() -> None:
        raise KeyError("x")

    for _ in range(3):
        with pytest.raises(KeyError):
            await threads.run(fail, "f", lambda: None)
        assert await threads.run(lambda: 5, "five", lambda: None) == 5
    assert (threads.borrowed_tokens, threads.lost, reports) == (0, {}, [])
