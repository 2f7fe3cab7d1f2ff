"""What chaos does to a cluster: one shock after another to its nodes, and to its members, as a seed decides.

Both at once, so that a node may be frozen while a member dies. A member is hurt only when the data of the one before is
where it belongs: with one backup, two deaths in a row are more than the cluster promises to survive.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random

import trio

from tenure.demo.course import Course
from tenure.demo.stage import Stage
from tenure.scheduler.errors import Mistake
from tenure.testing.hazelcast_cluster import HazelcastBackend

__all__ = ["ChaosOptions"]

FIRST_S = 3.0
REST_S = 1.0, 4.0
FROZEN_S = 0.5, 5.0
"""Shorter and longer than it takes to be given up."""
QUIET_S = 6.0
"""Before the end nothing new begins: what is broken is to be repaired under load."""
Shock = Callable[["_Shocks"], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class ChaosOptions:
    """What may vary."""

    seconds: float = 60.0
    nodes: int = 3
    members: int = 3
    jobs: int = 1_000
    rate: int = 2_000
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seconds < FIRST_S + QUIET_S:
            raise Mistake(f"--seconds is {self.seconds:g}: nothing could happen in less than {FIRST_S + QUIET_S:g} s.")
        if self.nodes < 2 or self.members < 3:
            raise Mistake("Chaos takes at least two nodes and three members, as some of them will be killed.")
        if self.jobs < 1 or self.rate < 1:
            raise Mistake("Chaos takes at least one job and one message a second.")

    def course(self) -> Course:
        """Load, and shocks until shortly before its end."""
        return Course(
            jobs=self.jobs,
            messages=max(1, round(self.seconds * self.rate)),
            duration_s=self.seconds,
            happening=shake,
            members=self.members,
            nodes=self.nodes,
            seed=self.seed,
        )


async def shake(cluster: HazelcastBackend, duration_s: float, random: Random, stage: Stage) -> None:
    """Shocks for so long."""
    end_s = trio.current_time() + duration_s - QUIET_S
    await trio.sleep(FIRST_S)
    async with trio.open_nursery() as nursery:
        # Each its own chance, so that what one takes does not change what the other does.
        for shocks in (NODE_SHOCKS, MEMBER_SHOCKS):
            nursery.start_soon(_Shocks(cluster, Random(random.random()), stage).run, shocks, end_s)


class _Shocks:
    """What happens to nodes, or to members."""

    def __init__(self, cluster: HazelcastBackend, random: Random, stage: Stage) -> None:
        self.cluster, self.random, self.stage = cluster, random, stage

    async def run(self, shocks: Mapping[str, Shock], end_s: float) -> None:
        names = sorted(shocks)
        while trio.current_time() < end_s:
            await shocks[self.random.choice(names)](self)
            await trio.sleep(self.random.uniform(*REST_S))

    async def a_node(self) -> int:
        return self.random.choice(await self.cluster.nodes())

    async def a_member(self) -> int:
        return self.random.choice(await self.cluster.members())


async def _kill_node(shocks: _Shocks) -> None:
    node = await shocks.a_node()
    shocks.stage.say(f"kill -9 of node {node}")
    await shocks.cluster.kill(node)
    shocks.stage.say(f"node {await shocks.cluster.add_node()} joins")


async def _freeze_node(shocks: _Shocks) -> None:
    node, frozen_s = await shocks.a_node(), shocks.random.uniform(*FROZEN_S)
    shocks.stage.say(f"node {node} is frozen for {frozen_s:.1f} s")
    await shocks.cluster.pause(node)
    try:
        await trio.sleep(frozen_s)
    finally:
        await shocks.cluster.unpause(node)


async def _drain_node(shocks: _Shocks) -> None:
    shocks.stage.say(f"node {await shocks.cluster.add_node()} joins")
    node = await shocks.a_node()
    shocks.stage.say(f"node {node} is drained")
    await shocks.cluster.drain(node)


async def _kill_member(shocks: _Shocks) -> None:
    member = await shocks.a_member()
    shocks.stage.say(f"kill -9 of member {member}")
    await shocks.cluster.kill_member(member)
    await shocks.cluster.settle_members()
    await _add_member(shocks)


async def _change_member(shocks: _Shocks) -> None:
    await _add_member(shocks)
    member = await shocks.a_member()
    shocks.stage.say(f"member {member} hands over its data and goes")
    await shocks.cluster.remove_member(member)
    await shocks.cluster.settle_members()


async def _add_member(shocks: _Shocks) -> None:
    shocks.stage.say(f"member {await shocks.cluster.add_member()} joins")
    await shocks.cluster.settle_members()


NODE_SHOCKS: Mapping[str, Shock] = {"kill": _kill_node, "freeze": _freeze_node, "drain": _drain_node}
MEMBER_SHOCKS: Mapping[str, Shock] = {"kill": _kill_member, "change": _change_member}
