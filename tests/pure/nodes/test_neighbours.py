"""A process of this machine that has ended is known to have, at once; nothing is ever taken to have that has not."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tenure.nodes.neighbours import Neighbours, _born
from tenure.scheduler.assignment import NodeInfo


@dataclass
class Sleeper:
    process: "subprocess.Popen[bytes]"
    info: NodeInfo


@pytest.fixture
def neighbours() -> Neighbours:
    found = Neighbours()
    if not found.host:
        pytest.skip("this system does not tell which processes there are")
    return found


@pytest.fixture
def sleeper(neighbours: Neighbours) -> Iterator[Sleeper]:
    process = subprocess.Popen(["sleep", "60"])
    info = NodeInfo("a", 1, host=neighbours.host, pid=process.pid, born=_born(process.pid) or 0)
    yield Sleeper(process, info)
    process.kill()
    process.wait()


def test_a_living_process_is_not_gone(neighbours: Neighbours, sleeper: Sleeper) -> None:
    assert not neighbours.is_gone(sleeper.info)
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    assert not neighbours.is_gone(sleeper.info)


def test_a_killed_one_is_gone_before_its_parent_has_looked_and_after(neighbours: Neighbours, sleeper: Sleeper) -> None:
    os.kill(sleeper.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.process.pid, os.WEXITED | os.WNOWAIT)
    assert neighbours.is_gone(sleeper.info)
    sleeper.process.wait()
    assert neighbours.is_gone(sleeper.info)


def test_another_process_of_the_same_number_is_not_it(neighbours: Neighbours, sleeper: Sleeper) -> None:
    assert neighbours.is_gone(structs.replace(sleeper.info, born=sleeper.info.born - 1))


@pytest.mark.parametrize("changed", [{"host": "elsewhere"}, {"host": ""}, {"pid": 0}, {"born": 0}])
def test_nothing_is_said_of_processes_that_can_not_be_seen(
    neighbours: Neighbours, sleeper: Sleeper, changed: dict[str, Any]
) -> None:
    sleeper.process.kill()
    sleeper.process.wait()
    assert not neighbours.is_gone(structs.replace(sleeper.info, **changed))


def hide(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """/proc says this of every process."""

    def read(_path: Path) -> bytes:
        raise error

    monkeypatch.setattr(Path, "read_bytes", read)


def of_another_user(_pid: int, _signal: int) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("error", [PermissionError(1, "hidepid=1"), PermissionError(13, "or so"), OSError(24, "files")])
def test_one_that_can_not_be_looked_at_is_not_gone(
    neighbours: Neighbours, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    hide(monkeypatch, error)
    assert not neighbours.is_gone(sleeper.info)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "hidepid=2"), ProcessLookupError(3, "ended amid the read")])
def test_one_that_is_not_shown_is_gone_if_its_number_is_nobodys(
    neighbours: Neighbours, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    hide(monkeypatch, error)
    assert not neighbours.is_gone(sleeper.info)
    with monkeypatch.context() as another_user:
        another_user.setattr(os, "kill", of_another_user)
        assert not neighbours.is_gone(sleeper.info)
    sleeper.process.kill()
    sleeper.process.wait()
    assert neighbours.is_gone(sleeper.info)


@pytest.mark.parametrize("pid", [2**31, 2**40, 2**63 - 1, -1])
def test_a_heartbeat_with_a_number_that_no_process_has_is_in_nobodys_way(neighbours: Neighbours, pid: int) -> None:
    """It may be damaged: it kept all nodes of its machine from looking at any."""
    assert not neighbours.is_gone(NodeInfo("a", 1, host=neighbours.host, pid=pid, born=5))
