"""A handler that never returns, on nodes as processes, each started again by its supervisor when it ends: it costs two
of them at most, once, and its job has failed; all other jobs go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.application import load_application
from tenure.cli.ends import Exit
from tenure.members import MemberSettings, open_member

pytestmark = pytest.mark.cluster

SETTINGS = MemberSettings(cluster_name="hung-tests", port=0, heap_initial_mib=64, heap_max_mib=256)
APPLICATION = """
import itertools
import re
import time
import tenure

eaten = []

@tenure.job("hung-counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.total += message
        return self.total

@tenure.job("hog")
class Hog(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> None:
        while message == "memory":
            eaten.append(b"x" * 2**22)
            time.sleep(0.01)
        if message == "c":
            sum(range(10**13))
        if message == "memory in c":
            list(map("x".join, itertools.repeat(["abc" * 8] * 3000)))
        if message == "regex":
            re.match(r"(a+)+$", "a" * 60 + "b")
        while True:
            pass

@tenure.job("async-hog")
class AsyncHog(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: str) -> None:
        sum(range(10**13))
"""
LAST = APPLICATION.splitlines().index("            pass") + 1
LINES = {"loop": (LAST - 1, LAST), "regex": (LAST - 2,), "c": (LAST - 6,)}


OUTAGE_S = 3.0


class Supervised:
    """A node that is started again whenever it ends, and all that it said."""

    def __init__(self, number: int, app: Path, cluster: str, *arguments: str) -> None:
        self.log, self.ends = app.parent / f"node-{number}.log", list[int]()
        self._command = [sys.executable, "-m", "tenure.cli", "node", str(app), "--json", *arguments]
        self._env = {
            **os.environ,
            "PYTHONPATH": str(Path(tenure.__file__).parents[1]),
            "TENURE_CLUSTER": cluster,
            "TENURE_STATE_DIR": str(app.parent / f"state-{number}"),
        }
        self._is_over = False
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise)
        self._thread.start()

    def _supervise(self) -> None:
        while not self._is_over:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)
            if self._is_over:
                self.process.kill()
            self.ends.append(self.process.wait())

    def said(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def is_ready(self) -> bool:
        return any(line.get("event") == "ready" for line in self.said())

    def end(self) -> None:
        self._is_over = True
        if self.process is not None:
            self.process.kill()
        self._thread.join(30)


@contextmanager
def supervised(count: int, app: Path, cluster: str, *arguments: str) -> Iterator[list[Supervised]]:
    nodes = [Supervised(number, app, cluster, *arguments) for number in range(count)]
    try:
        end_s = time.monotonic() + 60
        while not all(node.is_ready() for node in nodes):
            assert time.monotonic() < end_s, [node.log.read_text() for node in nodes]
            time.sleep(0.1)
        yield nodes
    finally:
        for node in nodes:
            node.end()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "app_of_hung_tests.py"
    file.write_text(APPLICATION)
    return file


@pytest.fixture
async def cluster() -> Any:
    async with open_member(SETTINGS) as member:
        yield f"{SETTINGS.cluster_name}@127.0.0.1:{member.address[1]}"


def outages(client: tenure.SyncClient, ids: list[str], begun_s: float, until: Any) -> list[tuple[float, float, str]]:
    """When some job did not answer for three seconds (a handoff on a busy machine takes one): from, to, which."""
    found = []
    while not until():
        for id in ids:
            asked_s = time.monotonic() - begun_s
            while True:
                try:
                    client.ask(id, 0, timeout_s=1)
                    break
                except tenure.NotDone:
                    assert time.monotonic() - begun_s < 120
            if (answered_s := time.monotonic() - begun_s) - asked_s > OUTAGE_S:
                found.append((round(asked_s, 1), round(answered_s, 1), id))
        time.sleep(0.1)
    return found


def has_failed(client: tenure.SyncClient, id: str) -> bool:
    try:
        return bool(client.describe(id, timeout_s=0.3)["status"] == "failed")
    except tenure.NotDone:
        return False


@pytest.mark.parametrize("message", ["loop", "regex"])
async def test_a_handler_that_never_returns_costs_two_nodes_once_and_its_job(
    app: Path, cluster: str, message: str
) -> None:
    with (
        supervised(3, app, cluster) as nodes,
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        ids = [f"c{n}" for n in range(20)]
        client.schedule_many([("hung-counter", id, {}) for id in ids])
        client.schedule("hog", id="hog-1")
        assert [client.ask(id, 1) for id in ids] == [1] * 20
        begun_s = time.monotonic()
        client.publish("hog-1", message)
        found = outages(client, ids, begun_s, lambda: has_failed(client, "hog-1"))
        parked_s = time.monotonic() - begun_s
        found += outages(client, ids, begun_s, lambda: time.monotonic() - begun_s > parked_s + 8)
        assert max((end_s for _, end_s, _ in found), default=0) < 20, found
        assert parked_s < 40
        error = client.describe("hog-1")["failure"]["error"]
        assert error.startswith("HungRepeatedly: 2 nodes stood still in this turn")
        assert any(f"app_of_hung_tests.py:{line} in on_message" in error for line in LINES[message]), error
        assert sorted(code for node in nodes for code in node.ends) == [Exit.HUNG] * 2
        said = [entry for node in nodes for entry in node.said()]
        told = [entry for entry in said if "has blocked the loop of this node" in str(entry.get("event"))]
        assert {entry["level"] for entry in told} == {"warning", "error"}
        assert all("job 'hog-1' (hog, message)" in entry["event"] for entry in told)
        assert all("in on_message" in entry["stack"] for entry in told)
        assert [client.state(id).total for id in ids] == [1] * 20
        client.retry("hog-1", skip=True)
        assert client.describe("hog-1")["status"] == "running"


async def test_one_that_keeps_the_interpreters_lock_in_c_costs_two_nodes_once_and_its_job(
    app: Path, cluster: str
) -> None:
    """No thread of its process comes to run, and no signal is heard: its warden ends it."""
    with (
        supervised(3, app, cluster) as nodes,
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        ids = [f"c{n}" for n in range(20)]
        client.schedule_many([("hung-counter", id, {}) for id in ids])
        client.schedule("hog", id="hog-1")
        assert [client.ask(id, 1) for id in ids] == [1] * 20
        begun_s = time.monotonic()
        client.publish("hog-1", "c")
        found = outages(client, ids, begun_s, lambda: has_failed(client, "hog-1"))
        parked_s = time.monotonic() - begun_s
        found += outages(client, ids, begun_s, lambda: time.monotonic() - begun_s > parked_s + 8)
        # Where there are too few processors, each of the two has twice as long.
        assert max((end_s for _, end_s, _ in found), default=0) < 45, found
        assert parked_s < 80
        error = client.describe("hog-1")["failure"]["error"]
        assert error.startswith("HungRepeatedly: 2 nodes stood still in this turn")
        assert f"app_of_hung_tests.py:{LINES['c'][0]} in on_message" in error
        assert [code for node in nodes for code in node.ends] == [-signal.SIGKILL] * 2
        said = [entry for node in nodes for entry in node.said()]
        told = [entry for entry in said if "has blocked the whole of this node" in str(entry.get("event"))]
        assert {entry["level"] for entry in told} == {"warning", "error"}
        assert all(entry["event"].startswith("job 'hog-1' (hog)") for entry in told)
        assert all("in on_message" in entry["stack"] for entry in told)
        assert [client.state(id).total for id in ids] == [1] * 20


async def test_an_async_one_costs_three_at_most(app: Path, cluster: str) -> None:
    """Nothing says which of them is at work before attempts are counted."""
    with (
        supervised(3, app, cluster) as nodes,
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        client.schedule("async-hog", id="hog-1")
        client.publish("hog-1", "now")
        with trio.fail_after(90):
            while not await trio.to_thread.run_sync(has_failed, client, "hog-1"):  # noqa: ASYNC110
                await trio.sleep(0.2)
        assert client.describe("hog-1")["failure"]["error"].startswith("HungRepeatedly: 2 nodes stood still")
        assert [code for node in nodes for code in node.ends] in ([-signal.SIGKILL] * 2, [-signal.SIGKILL] * 3)


async def test_one_that_eats_memory_in_c_is_ended_before_the_system_does_it(app: Path, cluster: str) -> None:
    with (
        supervised(3, app, cluster, "--set", "memory_max_mib=500") as nodes,
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        client.schedule("hog", id="hog-1")
        client.publish("hog-1", "memory in c")
        with trio.fail_after(60):
            while not await trio.to_thread.run_sync(has_failed, client, "hog-1"):  # noqa: ASYNC110
                await trio.sleep(0.2)
        error = client.describe("hog-1")["failure"]["error"]
        assert "MiB of memory, more than a node may take (memory_max_mib)" in error
        codes = [code for node in nodes for code in node.ends]
        assert codes in ([-signal.SIGKILL], [-signal.SIGKILL] * 2), codes


async def test_a_handler_that_eats_memory_costs_one_node_once_and_its_job(app: Path, cluster: str) -> None:
    with (
        supervised(3, app, cluster, "--set", "memory_max_mib=400") as nodes,
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        ids = [f"c{n}" for n in range(20)]
        client.schedule_many([("hung-counter", id, {}) for id in ids])
        client.schedule("hog", id="hog-1")
        assert [client.ask(id, 1) for id in ids] == [1] * 20
        begun_s = time.monotonic()
        client.publish("hog-1", "memory")
        found = outages(client, ids, begun_s, lambda: has_failed(client, "hog-1"))
        assert max((end_s for _, end_s, _ in found), default=0) < 20, found
        error = client.describe("hog-1")["failure"]["error"]
        assert error.startswith("TookTooMuchMemory: in this turn a node came to take")
        assert "MiB of memory, more than a node may take (memory_max_mib), and had to be ended: at" in error
        assert [code for node in nodes for code in node.ends] == [Exit.HUNG]
        told = [entry for node in nodes for entry in node.said() if "has grown to" in str(entry.get("event"))]
        assert len(told) == 1
        taken = [int(entry["event"].partition("has grown to ")[2].partition(" MiB")[0]) for entry in told]
        assert min(taken) > 400
        assert max(taken) < 1000
        assert [client.state(id).total for id in ids] == [1] * 20


async def test_a_signal_is_heard_also_by_a_node_that_hangs(app: Path, cluster: str) -> None:
    with (
        supervised(1, app, cluster, "--set", "hung_after_s=0", "--drain-deadline", "3") as [node],
        tenure.SyncClient(cluster, registry=load_application(str(app), apart=True)) as client,
    ):
        client.schedule("hog", id="hog-1")
        client.publish("hog-1", "loop")
        while not any("has blocked the loop" in str(entry.get("event")) for entry in node.said()):  # noqa: ASYNC110
            await trio.sleep(0.1)
        process = node.process
        assert process is not None
        await trio.sleep(2)
        assert process.poll() is None  # nothing but a signal ends it
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == Exit.HUNG
        last = [entry for entry in node.said() if "told to stop, and did not hear it" in str(entry.get("event"))]
        assert any(f":{line} in on_message" in last[0]["event"] for line in LINES["loop"])
        node._is_over = True


async def test_a_node_with_a_member_of_its_own_is_not_ended_for_it(app: Path) -> None:
    """All data would end with it, and nobody else is there."""
    with supervised(1, app, "", "--set", "hung_after_s=1", "--drain-deadline", "1") as [node]:
        [ready] = [entry for entry in node.said() if entry.get("event") == "ready"]
        with tenure.SyncClient(ready["cluster"], registry=load_application(str(app), apart=True)) as client:
            client.schedule("hog", id="hog-1")
            client.publish("hog-1", "loop")
        await trio.sleep(5)
        assert not node.ends
        assert any("has blocked the loop" in str(entry.get("event")) for entry in node.said())
        assert node.process is not None
        node._is_over = True
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(20) == Exit.HUNG
