"""A member whose heap gets full is told of before it ends."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import tenure
from tenure.members import MemberSettings
from tenure.members.heap import BESIDE_HEAP_MIB, taken_mib, watch_heap


def looked(taken: list[int | None]) -> list[str]:
    """What is said while the process takes so many MiB, look for look; then the last for an hour."""
    said: list[str] = []
    settings = MemberSettings(heap_max_mib=256, port=5702)
    member: Any = SimpleNamespace(pid=7, settings=settings, address=settings.address)

    def take(pid: int) -> int | None:
        assert pid == 7
        return taken.pop(0) if len(taken) > 1 else taken[0]

    async def run() -> None:
        with trio.move_on_after(3600):
            await watch_heap(member, said.append, take)

    trio.run(run, clock=MockClock(autojump_threshold=0))
    return said


def test_it_is_said_once_and_names_the_member() -> None:
    (said,) = looked([106, 270, None, 256 + BESIDE_HEAP_MIB, 10, 400])
    assert said.startswith("the heap of the member at 127.0.0.1:5702 has grown to all that it may take (256 MiB)")
    assert "tenure member --memory" in said


@pytest.mark.parametrize("taken", [[106], [270], [None], [256 + BESIDE_HEAP_MIB - 1]])
def test_one_that_has_room_is_not_told_of(taken: list[int | None]) -> None:
    assert looked(taken) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells")
def test_how_much_a_process_has_taken() -> None:
    """In a process of its own: one that runs many tests gives memory back at any time."""
    work = """
import os, tenure.members.heap as heap
before = heap.taken_mib(os.getpid())
held = bytearray(os.urandom(1)) * (64 * 2**20)
print(heap.taken_mib(os.getpid()) - before, len(held))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(tenure.__file__).parents[1])}
    command = [sys.executable, "-c", work]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    taken, held = map(int, done.stdout.split())
    assert (60 <= taken <= 70, held) == (True, 64 * 2**20), taken
    assert taken_mib(2**22 + 1) is None
