"""From an older version of Tenure and of an application to newer ones, node by node, under load: the books balance."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import tenure
from tenure.connect import parse_cluster
from tenure.jobs import spawning
from tenure.scheduler import formats
from tenure.scheduler.formats import FIRST
from tenure.scheduler.grid.hazelcast import HazelcastGrid
from tenure.scheduler.grid.port import Map
from tenure.testing import Cluster
from tenure.testing.node_process import NodeEnded
from tests.upgrade.history import older_interpreter
from tests.upgrade.zipped import ZIPPED

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
OLDER, NEWER = HERE / "older.py", HERE / "newer.py"
ACCOUNTS = [f"account-{n}" for n in range(40)]
SINKS = [f"sink-{n}" for n in range(3)]
PAUSE_MAX_MS = 10_000
"""Far above what the benchmark measures on a machine of its own."""


@pytest.fixture(scope="module")
def older_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return older_interpreter(tmp_path_factory.mktemp("older") / "it")


@pytest.fixture
def zipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process reads the newer format, as newer clients do."""
    monkeypatch.setattr(formats, "_known", {**formats._known, ZIPPED.number: ZIPPED})


class Books:
    """A steady load, until it is closed; then it must balance."""

    def __init__(self, client: tenure.Client) -> None:
        self.client, self.sent = client, 0
        self.stop, self.ended = trio.Event(), trio.Event()

    async def run(self) -> None:
        while not self.stop.is_set():
            began_s = trio.current_time()
            self.sent += 1
            await self.client.publish_many([(id, {"n": self.sent}) for id in ACCOUNTS], timeout_s=60)
            await trio.sleep_until(began_s + 0.1)
        self.ended.set()

    async def check(self) -> int:
        """Nothing lost, nothing twice, nothing out of order. Returns the longest pause."""
        self.stop.set()
        await self.ended.wait()
        quiet = await self.client.wait("books", timeout_s=60)
        assert quiet["jobs"] == len(ACCOUNTS) + len(SINKS)
        accounts = [await self.client.state(id) for id in ACCOUNTS]
        assert {(account["last"], account["disordered"]) for account in accounts} == {(self.sent, 0)}
        sinks = [await self.client.state(id) for id in SINKS]
        passed = self.sent // 5
        assert sum(sink["count"] for sink in sinks) == passed * len(ACCOUNTS)
        assert sum(sink["total"] for sink in sinks) == passed * (passed + 1) // 2 * len(ACCOUNTS)
        return max(account["longest_ms"] for account in accounts)


@asynccontextmanager
async def under_load(cluster: Cluster) -> AsyncIterator[Books]:
    """Jobs that are looked at from outside: this process knows no class of theirs."""
    async with cluster.client(registry=tenure.load_application(OLDER, apart=True)) as scheduling:
        await scheduling.schedule_many([("upgraded-account", id, {}) for id in ACCOUNTS])
        await scheduling.schedule_many([("upgraded-sink", id, {}) for id in SINKS])
    async with cluster.client(registry=tenure.Registry()) as client, trio.open_nursery() as nursery:
        books = Books(client)
        nursery.start_soon(books.run)
        yield books
        nursery.cancel_scope.cancel()


@pytest.fixture
def spawned() -> Iterator[list[int]]:
    """Processes that nobody else ends."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in spawning._running:
        process.wait(10)


def command(app: Path) -> list[str]:
    return [sys.executable, "-m", "tenure.cli", "node", str(app), "--name", "{name}"]


async def tenure_cli(
    cluster: str, *arguments: str, code: int = 0, python: Path | str = sys.executable
) -> str:
    done = await trio.run_process(
        [str(python), "-m", "tenure.cli", *arguments, "--cluster", cluster],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode()
    assert done.returncode == code, said
    return " ".join(said.split())


async def test_an_upgrade_under_load(older_python: Path, zipped: None, spawned: list[int], tmp_path: Path) -> None:
    async with Cluster(nodes=0, members=2, grid="hazelcast", app=OLDER) as cluster:
        for _ in range(3):
            await cluster.add_node(python=older_python)
        address = await cluster.address()
        async with under_load(cluster) as books, cluster.client() as client:
            old = [info.id for info in await client.nodes()]
            assert {info.reads for info in await client.nodes()} == {(FIRST,)}
            await trio.sleep(2)
            planned = await tenure_cli(address, "upgrade", "--dry-run")
            assert all(id in planned for id in old)
            assert "3 nodes would be replaced, 1 at a time." in planned

            # A version that lacks a job type is noticed, and goes no further.
            lacking = tmp_path / "lacking.py"
            lacking.write_text("import tenure\n@tenure.job('something-else')\nclass Other(tenure.Job): pass\n")
            with pytest.raises(tenure.UpgradeStopped, match="0 of 3 nodes are replaced") as stopped:
                await client.upgrade(command(lacking), log_folder=tmp_path, timeout_s=60)
            assert "Nodes that are left: " + ", ".join(sorted(old)) in str(stopped.value)
            note_processes(await client.nodes(), old, spawned)
            for info in await client.nodes():
                if info.id not in old:
                    await client.stop(info.id, drain=True)

            # Nodes of both versions beside each other, and then the newer ones alone.
            steps: list[str] = []
            done = await client.upgrade(command(NEWER), at_once=2, log_folder=tmp_path, on_step=steps.append)
            note_processes(await client.nodes(), old, spawned)
            assert sorted(done) == sorted(old)
            assert {info.id for info in await client.nodes()} == set(done.values())
            assert [step[-12:] for step in steps if step.endswith("of 3 done")] == [" 2 of 3 done", " 3 of 3 done"]
            assert [(await client.describe(id))["stuck"] for id in ACCOUNTS] == [""] * len(ACCOUNTS)
            assert await formats_written(address, Map.JOURNAL) == {FIRST}
            said = await tenure_cli(address, "upgrade", "status")
            assert "Format 1 is written, and all nodes read 2" in said

            # Declared: from here on there is no way back, and who can't follow is told so.
            assert "Format 2 is written from now on." in await tenure_cli(address, "upgrade", "finalize")
            await trio.sleep(3)
            assert 2 in await formats_written(address, Map.JOURNAL)
            with pytest.raises(NodeEnded, match="this cluster writes format 2, and this version reads 1"):
                await cluster.add_node(OLDER)
            assert "this cluster writes format 2" in await tenure_cli(address, "jobs", code=1)
            await cluster.add_node(NEWER)
            pause_ms = await books.check()
            states = [await books.client.state(id) for id in ACCOUNTS]
            assert {state["upgraded_from"] for state in states} == {1}
            assert pause_ms < PAUSE_MAX_MS


async def test_both_versions_take_over_from_each_other_and_the_way_back_is_open(
    older_python: Path, tmp_path: Path
) -> None:
    """As long as nothing is finalized: what either has written the other reads, also when its writer was killed."""
    place = str(tmp_path / "place")
    async with Cluster(nodes=0, members=2, grid="hazelcast", app=OLDER) as cluster:
        for _ in range(2):
            await cluster.add_node(python=older_python)  # 0 and 1
        address = await cluster.address()
        async with under_load(cluster) as books, cluster.client() as client:
            await trio.sleep(1)
            taken = [await taken_by(older_python, address, place)]
            newer = await cluster.add_node()  # 2
            await trio.sleep(2)
            taken.append((await client.snapshot(place))["name"])
            await cluster.kill(newer)
            await trio.sleep(2)
            newer = await cluster.add_node()  # 3
            await cluster.kill(0)
            await trio.sleep(2)
            taken.append(await taken_by(older_python, address, place))
            await cluster.drain(1)  # the newer one is alone
            seen = json.loads(await tenure_cli(address, "state", ACCOUNTS[0], "--json", python=older_python))
            assert seen["last"] > 0
            back = await cluster.add_node(python=older_python)  # 4
            await trio.sleep(2)
            await cluster.drain(newer)
            assert await cluster.nodes() == [back]
            taken.append((await client.snapshot(place))["name"])
            assert await formats_written(address, Map.JOURNAL) == {FIRST}
            assert await books.check() < PAUSE_MAX_MS
            assert [snapshot["name"] for snapshot in await client.snapshots(place)] == taken
            for name in taken:
                assert (await client.verify_snapshot(place, name=name))["problems"] == []


async def taken_by(python: Path, address: str, place: str) -> str:
    """A snapshot that a client of this version asks for."""
    program = (
        "import sys, tenure\n"
        "with tenure.SyncClient(sys.argv[1]) as client: print(client.snapshot(sys.argv[2])['name'])"
    )
    done = await trio.run_process([str(python), "-c", program, address, place], capture_stdout=True)
    return done.stdout.decode().strip()


def note_processes(nodes: list[tenure.NodeInfo], old: list[str], spawned: list[int]) -> None:
    spawned += [info.pid for info in nodes if info.id not in old]


async def formats_written(address: str, map: Map) -> set[int]:
    found: set[int] = set()
    async with HazelcastGrid.connect(parse_cluster(address)) as grid:
        for partition in range(0, grid.partition_count, 9):
            async for page in grid.scan(map, partition):
                found |= {entry.value[0] for entry in page}
    return found
