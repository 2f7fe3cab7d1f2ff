"""Tests of the public API run on testing clusters in memory, in virtual time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tenure import Client
from tenure.testing import Cluster
from tests.api.shell import Shell

HERE = Path(__file__).parent


def _run_in_virtual_time(fn: Callable[[], Awaitable[Any]], *, clock: object, instruments: Any) -> Any:
    return trio.run(fn, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and {"cluster", "in_virtual_time"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


@pytest.fixture
def in_virtual_time() -> None:
    """For tests that make their own clusters."""


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)
