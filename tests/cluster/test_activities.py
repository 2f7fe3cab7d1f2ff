"""Activities with real nodes, members and processes, ended by kill -9: one at work at a time, none left behind."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import trio

import tenure
from tenure.jobs import ProcessJob
from tenure.jobs.processes import marked
from tenure.testing import Cluster

pytestmark = pytest.mark.cluster

WITHIN_S = 30.0
KILLS = 4

WORKER = f"""
import fcntl, os, sys, time
sys.path.insert(0, {str(Path(tenure.__file__).parents[1])!r})
from tenure.jobs.reporting import Reporter

name, seconds = sys.argv[1], float(sys.argv[2])
log = open(name + ".log", "a", buffering=1)
alone = open(name + ".alone", "w")
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    log.write("TWICE\\n")
with Reporter.from_environment() as reporter:
    log.write(f"began {{reporter.run.attempt}} {{os.getpid()}}\\n")
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s and not os.path.exists(name + ".stop"):
        reporter.progress(0, 1)
        time.sleep(0.05)
    reporter.confirm()
    log.write(f"done {{reporter.run.attempt}}\\n")
    reporter.result(reporter.run.attempt)
"""


class Work:
    """What one job's processes leave on the disk."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = str(folder / name)

    def command(self, seconds: float) -> list[str]:
        return [sys.executable, "-c", WORKER, self.name, str(seconds)]

    def log(self) -> list[str]:
        path = Path(self.name + ".log")
        return path.read_text().splitlines() if path.exists() else []

    def began(self) -> list[tuple[int, int]]:
        """(attempt, process) of each that has begun."""
        return [(int(line.split()[1]), int(line.split()[2])) for line in self.log() if line.startswith("began")]

    def stop(self) -> None:
        Path(self.name + ".stop").touch()

    def is_exact(self) -> bool:
        """Never two at once, each attempt once."""
        attempts = [attempt for attempt, _ in self.began()]
        return "TWICE" not in self.log() and len(attempts) == len(set(attempts))


async def until(look: Callable[[], Any]) -> Any:
    with trio.fail_after(WITHIN_S):
        while not (found := look()):  # noqa: ASYNC110  # only looking shows it
            await trio.sleep(0.02)
        return found


async def shown(client: tenure.Client, id: str, done: Callable[[tenure.ActivityView], Any]) -> tenure.ActivityView:
    with trio.fail_after(WITHIN_S):
        while True:
            try:
                found = (await client.describe(id))["activities"]
            except tenure.UnknownJob:
                found = []
            if found and done(found[-1]):
                return found[-1]
            await trio.sleep(0.05)


async def owner(cluster: Cluster, client: tenure.Client, id: str) -> int:
    node = (await client.describe(id))["node"]
    return next(number for number in await cluster.nodes() if node.startswith(f"node-{number}-"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


async def test_kill_9(tmp_path: Path) -> None:
    async with Cluster(nodes=2, members=2, grid="hazelcast", partitions=31) as cluster, cluster.client() as client:
        await a_node_is_killed_and_another_drained(cluster, client, Work(tmp_path, "node"))
        await a_wrapper_is_killed(client, Work(tmp_path, "wrapper"))
        await a_cancel_leaves_nothing(client, Work(tmp_path, "cancel"))
        for n in range(KILLS):
            await something_is_killed_at_some_moment(cluster, client, Work(tmp_path, f"random{n}"), Random(n))
        await a_member_is_killed(cluster, client, Work(tmp_path, "member"))


async def a_node_is_killed_and_another_drained(cluster: Cluster, client: tenure.Client, work: Work) -> None:
    await client.schedule(ProcessJob, id="node", argv=work.command(600))
    ((_, pid),) = await until(work.began)
    before = await client.describe("node")
    await cluster.kill(await owner(cluster, client, "node"))
    await cluster.add_node()
    await cluster.drain(await owner(cluster, client, "node"))
    after = await client.describe("node")
    assert after["node"] != before["node"]
    assert after["activities"][0]["tag"] == before["activities"][0]["tag"]
    assert after["activities"][0]["pid"] == before["activities"][0]["pid"]
    assert psutil.pid_exists(pid)
    work.stop()
    activity = await shown(client, "node", lambda activity: activity["ended_ms"])
    assert (activity["status"], activity["result"]) == ("succeeded", 1)
    assert work.is_exact()
    assert len(work.began()) == 1
    await cluster.add_node()


async def a_wrapper_is_killed(client: tenure.Client, work: Work) -> None:
    await client.schedule(ProcessJob, id="wrapper", argv=work.command(600), first_delay_s=0.05)
    ((_, pid),) = await until(work.began)
    activity = await shown(client, "wrapper", lambda activity: activity["status"] == "running")
    os.kill(activity["pid"], signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(pid))
    await until(lambda: len(work.began()) == 2)
    work.stop()
    activity = await shown(client, "wrapper", lambda activity: activity["ended_ms"])
    assert (activity["status"], activity["result"]) == ("succeeded", 2)
    assert work.is_exact()


async def a_cancel_leaves_nothing(client: tenure.Client, work: Work) -> None:
    await client.schedule(ProcessJob, id="cancel", argv=work.command(600), cancel_deadline_s=5)
    await until(work.began)
    activity = await shown(client, "cancel", lambda activity: activity["status"] == "running")
    await client.cancel("cancel")
    await shown(client, "cancel", lambda activity: activity["status"] == "cancelled")
    assert marked(activity["tag"]) == []
    await until(lambda: not psutil.pid_exists(activity["pid"]))


async def something_is_killed_at_some_moment(
    cluster: Cluster, client: tenure.Client, work: Work, random: Random
) -> None:
    id = Path(work.name).name
    await client.schedule(ProcessJob, id=id, argv=work.command(1.0), first_delay_s=0.05, attempts_max=10)
    await trio.sleep(random.random() * 1.5)
    victim = random.choice(["node", "wrapper", "work"])
    if victim == "node":
        await cluster.kill(await owner(cluster, client, id))
    else:
        pids = [pid for _, pid in work.began()]
        if victim == "wrapper":
            pids = [activity["pid"] for activity in (await client.describe(id))["activities"] if activity["pid"]]
        for pid in pids[-1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    activity = await shown(client, id, lambda activity: activity["ended_ms"])
    assert (activity["status"], activity["result"]) == ("succeeded", activity["attempt"])
    assert work.is_exact(), work.log()
    if victim == "node":
        await cluster.add_node()


async def a_member_is_killed(cluster: Cluster, client: tenure.Client, work: Work) -> None:
    await client.schedule(ProcessJob, id="member", argv=work.command(600))
    await until(work.began)
    await cluster.kill_member(0)
    await trio.sleep(2)
    work.stop()
    activity = await shown(client, "member", lambda activity: activity["ended_ms"])
    assert (activity["status"], activity["result"]) == ("succeeded", 1)
    assert work.is_exact()


async def test_when_the_whole_cluster_is_gone_it_ends_by_itself(tmp_path: Path) -> None:
    work = Work(tmp_path, "orphan")
    async with Cluster(nodes=1, members=1, grid="hazelcast", partitions=7, backups=0) as cluster:
        async with cluster.client() as client:
            options: dict[str, Any] = {"heartbeat_s": 0.5, "orphan_after_s": 3, "cancel_deadline_s": 1}
            await client.schedule(ProcessJob, id="orphan", argv=work.command(600), **options)
            ((_, pid),) = await until(work.began)
            tag = (await shown(client, "orphan", lambda activity: activity["status"] == "running"))["tag"]
        await trio.sleep(4)
        assert psutil.pid_exists(pid)
    began_s = time.monotonic()
    await until(lambda: not marked(tag))
    assert time.monotonic() - began_s < 15
    assert work.is_exact()
