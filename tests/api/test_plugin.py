"""The pytest plugin, in test runs of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

APP = """
import tenure

@tenure.job("counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx, message):
        self.total += message["n"]
        return self.total
"""
TESTS = """
import asyncio

import pytest
import tenure


async def test_async(cluster, autojump_clock):
    assert await cluster.nodes() == [0, 1]


@pytest.mark.tenure(nodes=1, app="app.py")
class TestMarked:
    async def test_app(self, cluster, autojump_clock):
        assert await cluster.nodes() == [0]
        async with cluster.client() as client:
            await client.schedule("counter", id="c")
            assert await client.ask("c", {"n": 2}) == 2

    @pytest.mark.tenure(nodes=3)
    def test_sync(self, sync_cluster):
        assert sync_cluster.nodes() == [0, 1, 2]
        with sync_cluster.client() as client:
            client.schedule("counter", id="c", total=5)
            assert client.ask("c", {"n": 2}) == 7

    def test_asyncio(self, sync_cluster):
        async def use():
            async with sync_cluster.async_client() as client:
                await client.schedule("counter", id="c")
                return await client.ask("c", {"n": 3})

        assert asyncio.run(use()) == 3


@pytest.mark.tenure(3)
def test_wrong_marker(sync_cluster):
    pass
"""
UNUSED = """
import sys


def test_nothing_is_imported():
    heavy = {"tenure.scheduler", "tenure.clients", "msgspec", "hazelcast", "trio", "anyio"} & set(sys.modules)
    assert not heavy, heavy
"""
FAILING = """
import pytest
import tenure.testing
import trio


async def test_with_a_cluster(autojump_clock):
    async with tenure.testing.Cluster(nodes=1) as cluster, cluster.client():
        assert await cluster.nodes() == [7]


@pytest.fixture
async def client(cluster):
    async with cluster.client() as client:
        yield client


async def test_with_fixtures(client, autojump_clock):
    assert await client.jobs() == [8]


async def test_in_a_nursery(cluster, autojump_clock):
    async with cluster.client(), trio.open_nursery():
        try:
            raise KeyError("cause")
        except KeyError as error:
            raise ValueError("alone") from error


async def fails(text):
    raise ValueError(text)


async def test_with_two_errors(cluster, autojump_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, "one")
        nursery.start_soon(fails, "two")


async def test_without_us(autojump_clock):
    assert 1 == 9
"""
ALONE = """
def test_sync(sync_cluster):
    assert sync_cluster.nodes() == [0, 1]
"""


def run(folder: Path, *options: str) -> str:
    """pytest's output; the plugin is on, as where the project is installed."""
    source = Path(__file__).resolve().parents[2] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "tenure.testing.plugin", "--strict-markers", "-q", *options, "."]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    output = run(tmp_path, "-p", "pytest_trio.plugin")
    assert "4 passed, 1 error" in output, output
    assert "the marker `tenure` takes keyword arguments only" in output


def test_a_lone_error_comes_out_as_itself(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    (tmp_path / "test_it.py").write_text(FAILING)
    output = run(tmp_path, "-p", "pytest_trio.plugin")
    assert "5 failed" in output, output
    told = dict(re.findall(r"^_+ (test_\w+) _+$(.*?)(?=^_+ test_|^=+ short)", output, re.MULTILINE | re.DOTALL))
    alone = ("test_with_a_cluster", "test_with_fixtures", "test_in_a_nursery")
    assert {name for name, text in told.items() if "Exception Group" in text} == told.keys() - {*alone}
    for name in alone:
        assert set(re.findall(r"^(\S+\.py):\d+: ", told[name], re.MULTILINE)) == {"test_it.py"}
    assert "assert [0] == [7]" in told["test_with_a_cluster"]
    assert "direct cause of the following" in told["test_in_a_nursery"]


def test_it_costs_nothing_unused_and_needs_no_pytest_trio(tmp_path: Path) -> None:
    (tmp_path / "test_a_unused.py").write_text(UNUSED)
    (tmp_path / "test_b_alone.py").write_text(ALONE)
    assert "2 passed" in (output := run(tmp_path)), output
