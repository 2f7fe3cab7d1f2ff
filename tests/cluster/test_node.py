"""`tenure node` as it is run: a process on real members, from ready to drained, and what it says when it can't."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

import tenure
from tenure.connect import parse_cluster
from tenure.members import Member, MemberSettings, free_port, open_member, start_member
from tenure.scheduler.grid.hazelcast import HazelcastGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.keys import HEAD

pytestmark = pytest.mark.cluster

SETTINGS = MemberSettings(cluster_name="node-tests", port=0, heap_initial_mib=64, heap_max_mib=256)
WITHIN_S = 60
COMMAND = (sys.executable, "-m", "tenure.cli")

APPLICATION = """
import tenure

@tenure.job("counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        self.total += message["n"]
        return self.total

@tenure.job("sleeper")
class Sleeper(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        import trio
        await trio.sleep(message)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "app_of_node_tests.py"
    file.write_text(APPLICATION)
    return file


class Node:
    """A `tenure node` process, and what it said."""

    def __init__(self, arguments: list[str], folder: Path, cluster: str) -> None:
        self.log = folder / f"node-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tenure.cli", "node", "--json", *arguments]
        env = {
            **os.environ,
            "PYTHONPATH": str(Path(tenure.__file__).parents[1]),
            "TENURE_CLUSTER": cluster,
            "TENURE_STATE_DIR": str(folder / "state"),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def said(self) -> list[dict[str, Any]]:
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def ready(self) -> dict[str, Any]:
        return until(lambda: next((line for line in self.said() if line.get("event") == "ready"), None), self)

    def ended(self, within_s: float = WITHIN_S) -> int:
        return self.process.wait(within_s)

    def why(self) -> str:
        """The sentence that it ended with."""
        return str(self.said()[-1]["what"])


def until(look: Callable[[], Any], node: Node, within_s: float = WITHIN_S) -> Any:
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := look():
            return found
        assert node.process.poll() is None, node.log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s:\n{node.log.read_text()}")


@contextmanager
def running(app: Path, *arguments: str, cluster: str = "") -> Iterator[Node]:
    node = Node([str(app), *arguments], app.parent, cluster)
    try:
        yield node
    finally:
        node.process.kill()
        node.process.wait()


def members_of(node: Node) -> list[psutil.Process]:
    return [child for child in psutil.Process(node.process.pid).children(recursive=True) if child.name() == "java"]


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def address(*members: Member) -> str:
    return f"{SETTINGS.cluster_name}@{','.join('%s:%d' % member.address for member in members)}"  # noqa: UP031


@pytest.fixture
async def member() -> Any:
    async with open_member(SETTINGS) as member:
        yield member


def test_without_a_cluster_it_brings_a_member_which_ends_with_it(app: Path) -> None:
    with running(app) as node:
        ready = node.ready()
        assert ready["pid"] == node.process.pid
        assert ready["partitions"] == 271
        with tenure.SyncClient(ready["cluster"], registry=_types(app)) as client:
            client.schedule("counter", id="a", total=1)
            assert client.ask("a", {"n": 2}) == 3
        (java,) = members_of(node)
        node.process.send_signal(signal.SIGTERM)
        assert node.ended() == 0, node.log.read_text()
        assert is_gone(java)
        ended = "drained; all jobs end with this node's own member"
        said = [line["event"] for line in node.said()]
        assert "draining" in said
        assert said[-1] == ended


def test_its_member_ends_also_when_it_is_killed(app: Path) -> None:
    with running(app) as node:
        node.ready()
        (java,) = members_of(node)
        node.process.kill()
        end_s = time.monotonic() + 10
        while not is_gone(java) and time.monotonic() < end_s:
            time.sleep(0.05)
        assert is_gone(java)


def test_it_ends_when_its_member_does_and_says_so(app: Path) -> None:
    with running(app) as node:
        node.ready()
        (java,) = members_of(node)
        java.kill()
        assert node.ended() == 1
        assert "The embedded member ended" in node.why()
        assert "was killed (SIGKILL)" in node.why()


async def test_it_drains_on_a_signal_and_another_takes_over(app: Path, member: Member) -> None:
    cluster = address(member)
    with running(app, "--name", "first", cluster=cluster) as first:
        first.ready()
        with running(app, "--name", "second", cluster=cluster) as second:
            second.ready()
            first.process.send_signal(signal.SIGINT)
            assert await trio.to_thread.run_sync(first.ended) == 0, first.log.read_text()
            async with tenure.Client(cluster) as client:
                with trio.fail_after(30):
                    statuses = await client.partitions()
            assert {status["node"] for status in statuses} == {second.ready()["node"]}


async def test_without_any_event_all_still_works(app: Path, member: Member) -> None:
    cluster = address(member)
    with running(app, "--no-events", cluster=cluster) as node:
        await trio.to_thread.run_sync(node.ready)
        async with tenure.Client(cluster, registry=_types(app)) as client:
            await client.schedule("counter", id="a")
            assert [await client.ask("a", {"n": 1}) for _ in range(3)] == [1, 2, 3]


async def test_a_preferred_network_without_any_member_is_told(app: Path, member: Member) -> None:
    for network, is_told in (("10.99.0.0/16", True), ("127.0.0.0/8", False)):
        with running(app, "--prefer-network", network, cluster=address(member)) as node:
            await trio.to_thread.run_sync(node.ready)
            assert (f"no member has an address in {network}" in node.log.read_text()) == is_told


async def test_what_takes_too_long_is_not_waited_for(app: Path, member: Member) -> None:
    cluster = address(member)
    with running(app, "--turn-deadline", "0.5", cluster=cluster) as node:
        node.ready()
        async with tenure.Client(cluster, registry=_types(app)) as client:
            await client.schedule("sleeper", id="s")
            await client.publish("s", 600)
            await trio.sleep(1)
        began_s = time.monotonic()
        node.process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(node.ended) == 0, node.log.read_text()
        assert time.monotonic() - began_s < 20
    with running(app, "--drain-deadline", "1", "--turn-deadline", "600", cluster=cluster) as node:
        node.ready()
        async with tenure.Client(cluster, registry=_types(app)) as client:
            while not (await client.describe("s"))["running"]:  # noqa: ASYNC110  # that turn, again
                await trio.sleep(0.1)
        node.process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(node.ended) == 1
        assert "partitions were not handed over within 1 s" in node.why()
        assert "--drain-deadline" in node.why()


async def test_a_second_signal_ends_it_at_once(app: Path, member: Member) -> None:
    cluster = address(member)
    with running(app, "--turn-deadline", "25", cluster=cluster) as node:
        node.ready()
        async with tenure.Client(cluster, registry=_types(app)) as client:
            await client.schedule("sleeper", id="s")
            await client.publish("s", 600)
            await trio.sleep(1)
        node.process.send_signal(signal.SIGTERM)
        await trio.sleep(1)
        began_s = time.monotonic()
        node.process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(node.ended) == 1
        assert time.monotonic() - began_s < 5


async def test_members_that_lack_the_settings_are_refused(app: Path) -> None:
    settings = replace(SETTINGS, attributes={"tenure.indeterminate": "ignore"})
    async with open_member(settings) as member:
        with running(app, cluster=address(member)) as node:
            assert await trio.to_thread.run_sync(node.ended) == 1
            assert "acknowledgements" in node.why()
            assert "--allow-unsafe-members" in node.why()
        with running(app, "--allow-unsafe-members", cluster=address(member)) as node:
            await trio.to_thread.run_sync(node.ready)


def test_nobody_there(app: Path) -> None:
    cluster = f"nobody@127.0.0.1:{free_port()}"
    with running(app, "--connect-timeout", "2", cluster=cluster) as node:
        assert node.ended() == 3
        assert "nothing listens there" in node.why()


async def test_members_gone_for_good(app: Path, member: Member) -> None:
    with running(app, "--give-up-after", "4", cluster=address(member)) as node:
        await trio.to_thread.run_sync(node.ready)
        member.kill()
        assert await trio.to_thread.run_sync(node.ended) == 3
        assert "No member has answered for 4 s" in node.why()


async def test_a_cluster_that_comes_back_empty_is_told_and_not_taken_for_a_new_one(app: Path) -> None:
    settings = replace(SETTINGS, port=free_port())
    member = await start_member(settings)
    cluster = address(member)
    try:
        with running(app, cluster=cluster) as node:
            formation = (await trio.to_thread.run_sync(node.ready))["formation"]
            async with tenure.Client(cluster, registry=_types(app)) as client:
                await client.schedule("counter", id="a")
                assert await client.ask("a", {"n": 1}) == 1
                member.kill()
                member = await start_member(settings)
                assert await trio.to_thread.run_sync(node.ended) == 1
                assert "come back empty" in node.why()
                with pytest.raises(tenure.ClusterReplaced, match="come back empty") as caught:
                    await client.publish("a", {"n": 2})
                assert caught.value.unstored == [("a", {"n": 2})]
                with pytest.raises(tenure.ClusterReplaced, match="come back empty"):
                    await client.ask("a", {"n": 3})
        command = [sys.executable, "-m", "tenure.cli", "publish", "a", '{"n": 4}', "--cluster", cluster]
        told = await trio.run_process(command, capture_stderr=True, check=False)
        assert told.returncode == 3
        assert b"come back empty" in told.stderr
        assert b"tenure restore" in told.stderr
        with running(app, cluster=cluster) as again:
            assert await trio.to_thread.run_sync(again.ended) == 1
            assert formation in again.why()
        with running(app, "--begin-anew", cluster=cluster) as anew:
            assert (await trio.to_thread.run_sync(anew.ready))["formation"] != formation
    finally:
        member.kill()


async def test_after_a_reboot_of_everything_no_new_cluster_is_formed(app: Path, tmp_path: Path) -> None:
    """kill -9 of all members and nodes. Who was connected hears of it in the next call, and goes on after a restore."""
    settings = replace(SETTINGS, port=free_port())
    member = await start_member(settings)
    cluster, place = address(member), tmp_path / "snapshots"
    try:
        async with tenure.Client(cluster, registry=_types(app)) as client:
            with running(app, cluster=cluster) as node:
                formation = (await trio.to_thread.run_sync(node.ready))["formation"]
                await client.schedule("counter", id="a")
                assert await client.ask("a", {"n": 1}) == 1
                await client.snapshot(str(place))
                await client.publish("a", {"n": 100})
                node.process.kill()
                member.kill()
            member = await start_member(settings)
            with running(app, cluster=cluster) as again:
                assert await trio.to_thread.run_sync(again.ended) == 1
                assert all(word in again.why() for word in (formation, "tenure restore URL", "--begin-anew"))
            assert "formed" not in again.log.read_text()
            with running(app, "--state", str(tmp_path / "knows of nothing"), cluster=cluster) as other:
                assert await trio.to_thread.run_sync(other.ended) == 1
                assert formation in other.why(), "the first has left word"
            with pytest.raises(tenure.ClusterReplaced, match=formation), trio.fail_after(10):
                await client.publish("a", {"n": 2})
            await trio.run_process([*COMMAND, "restore", str(place), "--replace", "--cluster", cluster])
            with running(app, cluster=cluster) as restored:
                assert (await trio.to_thread.run_sync(restored.ready))["formation"] != formation
                assert await client.ask("a", {"n": 2}) == 3, "as of the snapshot"
    finally:
        member.kill()


async def test_a_client_that_lives_through_a_reboot_stores_nothing_in_a_cluster_that_nobody_wanted(
    app: Path, tmp_path: Path
) -> None:
    """Where a node without notes has formed it all the same. The other nodes refuse, and clients do."""
    settings = replace(SETTINGS, port=free_port())
    member = await start_member(settings)
    cluster = address(member)
    try:
        async with tenure.Client(cluster, registry=_types(app)) as client:
            with running(app, cluster=cluster) as node:
                await trio.to_thread.run_sync(node.ready)
                await client.schedule("counter", id="a")
                assert "another cluster" not in await said(cluster, tmp_path, "jobs")
                node.process.kill()
                member.kill()
            member = await start_member(settings)
            with running(app, "--state", str(tmp_path / "knows of nothing"), cluster=cluster) as other:
                formed = (await trio.to_thread.run_sync(other.ready))["formation"]
                with pytest.raises(tenure.ClusterReplaced, match=formed), trio.fail_after(10):
                    await client.publish("a", {"n": 2})
                with running(app, cluster=cluster) as again:
                    assert await trio.to_thread.run_sync(again.ended) == 1
                    assert "nobody has put there on purpose" in again.why()
                async with tenure.Client(cluster) as fresh:
                    assert await fresh.dead_letters() == []
                assert f"another cluster, {formed}" in await said(cluster, tmp_path, "jobs")
                assert "✗ identity: this is another cluster" in await said(cluster, tmp_path, "doctor", code=1)
                assert "identity" not in await said(cluster, tmp_path, "doctor", "--accept")
                assert "another cluster" not in await said(cluster, tmp_path, "jobs")
    finally:
        member.kill()


async def said(cluster: str, folder: Path, *arguments: str, code: int = 0) -> str:
    """What a command prints, for people."""
    env = {**os.environ, "TENURE_STATE_DIR": str(folder / "state")}
    command = [*COMMAND, *arguments, "--cluster", cluster]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return (done.stdout + done.stderr).decode()


async def test_damaged_bookkeeping_ends_no_node_and_a_restore_heals_heads(app: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, port=free_port(), partition_count=31)
    place = str(tmp_path / "snapshots")
    async with open_member(settings) as member:
        cluster = address(member)
        with running(app, cluster=cluster) as node:
            formation = (await trio.to_thread.run_sync(node.ready))["formation"]
            async with (
                tenure.Client(cluster, registry=_types(app)) as client,
                HazelcastGrid.connect(parse_cluster(cluster)) as grid,
            ):
                await client.schedule("counter", id="a")
                await client.snapshot(place)
                for key in (b"assignment", b"cluster", b"node/junk", b"snapshot"):
                    await grid.set(Map.NODES, 0, key, b"\x01\x00\xc1")
                await trio.sleep(5)
                assert node.process.poll() is None
                assert await client.ask("a", {"n": 1}) == 1
                await client.snapshot(place)
                for partition in (5, 6, 7):
                    await grid.set(Map.HEADS, partition, HEAD, b"garbage")
                node.process.kill()
                # Without nodes nobody mends it but the command.
                await grid.set(Map.NODES, 0, b"cluster", b"\x01\x00garbage")
                assert "can't be read" in await said(cluster, tmp_path, "jobs", code=3)
                assert f"cluster {formation}" in (told := await said(cluster, tmp_path, "repair", code=1))
                assert all(f"✗ partition {partition}: its head can't be read" in told for partition in (5, 6, 7))
                assert "Restored" in await said(cluster, tmp_path, "restore", place, "--replace")
                assert "0 left" in await said(cluster, tmp_path, "repair")
                with running(app, cluster=cluster) as again:
                    await trio.to_thread.run_sync(again.ready)
                    assert await client.ask("a", {"n": 1}) == 2


NESTED = (
    APPLICATION
    + """
@tenure.job("parent")
class Parent(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: str) -> int:
        async with tenure.Client() as client:
            await client.schedule("counter", id=message)
            return await client.ask(message, {"n": 1})

@tenure.job("blocking-parent", blocking=True)
class BlockingParent(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> int:
        with tenure.SyncClient() as client:
            client.schedule("counter", id=message)
            return client.ask(message, {"n": 10})
"""
)


def test_clients_that_name_no_cluster_are_in_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside an embedded node, and in its handlers, whose environment named none either."""
    app = tmp_path / "nested_app.py"
    app.write_text(NESTED)
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TENURE_CLUSTER", raising=False)
    with running(app) as node:
        node.ready()
        assert "all data is in memory, in a member of this node's own" in node.log.read_text()
        with tenure.SyncClient(registry=_types(app)) as client:
            client.schedule("parent", id="p")
            client.schedule("blocking-parent", id="b")
            assert client.ask("p", "kid") == 1
            assert client.ask("b", "kid") == 11
            assert client.state("kid").total == 11
            assert len(client.nodes()) == 1
        assert len(members_of(node)) == 1, "nobody has started another"
        node.process.terminate()
        assert node.ended() == 0
        assert "all jobs end with this node's own member" in node.log.read_text()


def _types(app: Path) -> tenure.Registry:
    return tenure.load_application(app, apart=True)
