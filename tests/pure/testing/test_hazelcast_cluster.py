"""The testing cluster of processes, where that takes no process."""

import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from tenure.demo.course import APPLICATION
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.hazelcast_cluster import HazelcastBackend


class Killed:
    """A member that has ended, while the call that kills it goes on."""

    def __init__(self) -> None:
        self.running = True
        self.dead, self.returns = threading.Event(), threading.Event()

    def kill(self) -> None:
        self.running = False
        self.dead.set()
        self.returns.wait(10)


@pytest.fixture
def cluster(tmp_path: Path) -> HazelcastBackend:
    plan = Plan(
        nodes=0,
        members=1,
        grid="hazelcast",
        app=str(APPLICATION),
        partitions=None,
        backups=1,
        settings=NodeSettings(),
        seed=0,
        start=None,
        faults=None,
    )
    return HazelcastBackend(plan, tmp_path)


async def test_others_may_look_while_a_member_is_killed(cluster: HazelcastBackend) -> None:
    member: Any = Killed()
    cluster._members[0] = member
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.kill_member, 0)
        await trio.to_thread.run_sync(member.dead.wait, 10)
        assert await cluster.members() == []
        member.returns.set()
    assert await cluster.members() == []
