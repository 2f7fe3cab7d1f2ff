"""Word that a node leaves by a connection of its own: said and taken back also where that can't be had at once."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tenure.nodes import word
from tenure.nodes.word import Word
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Map, Refused
from tenure.scheduler.hangs import Hang, hang_key
from tenure.scheduler.wire import decode

HANG = Hang("a", 7, "hog-1", "turn", "app.py:1 in f", 9.5)


class Grids:
    """Connections, of which the first so many fail."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster, self.fail = cluster, 0

    @asynccontextmanager
    async def connect(self, settings: Any) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        if self.fail:
            self.fail -= 1
            raise Refused("nobody there")
        yield self.cluster.connect()


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> Grids:
    grids = Grids(MemoryCluster())
    monkeypatch.setattr("tenure.scheduler.grid.hazelcast.HazelcastGrid", grids)
    monkeypatch.setattr(word, "AGAIN_S", 0.01)
    monkeypatch.setattr(word, "KEPT_OPEN_S", 0.05)
    return grids


def stored(grids: Grids) -> bytes | None:
    async def look() -> bytes | None:
        return await grids.cluster.connect().get(Map.NODES, 0, hang_key("a"))

    return trio.run(look)


def test_what_is_said_stands_there_until_it_is_taken_back(grids: Grids) -> None:
    leave = Word(None, "a")  # type: ignore[arg-type]
    assert leave(HANG).wait(10)
    assert decode(stored(grids) or b"", Hang) == HANG
    assert leave(None).wait(10)
    assert stored(grids) is None


def test_what_could_not_be_taken_back_at_once_is_later(grids: Grids) -> None:
    leave = Word(None, "a")  # type: ignore[arg-type]
    grids.fail = 2
    assert leave(HANG).wait(10)
    end_s = time.monotonic() + 10
    while leave._is_running and time.monotonic() < end_s:
        time.sleep(0.01)  # until its connection is closed
    grids.fail = 3
    assert leave(None).wait(10)
    assert stored(grids) is None
