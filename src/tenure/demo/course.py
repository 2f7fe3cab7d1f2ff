"""The course of a demo, and of chaos: members and nodes start, things happen under load, the ledger ends it.

What happens is passed in: the demo's is below, that of chaos in `shocks`.
"""

import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import trio

from tenure.connect import wall_clock_ms
from tenure.demo.ledger import Ledger, make_ledger
from tenure.demo.publishing import TICK_S, Load
from tenure.demo.stage import Stage
from tenure.members import jar_fetched, rich_progress
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import Mistake, NotDone
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.hazelcast_cluster import HazelcastBackend, open_hazelcast

__all__ = ["Course", "DemoOptions", "Happening", "play"]

MEMBERS, NODES, SENDERS = 3, 2, 2
Happening = Callable[[HazelcastBackend, float, Random, Stage], Awaitable[None]]
"""What happens to the cluster in the seconds in which messages are sent."""
APPLICATION = Path(__file__).parent / "application.py"
SCHEDULES_AT_ONCE = 64
STATES_AT_ONCE = 64
SETTLE_WITHIN_S = 60.0
DURATION_S_MIN = 10.0
MESSAGES_PER_S = 5_000


@dataclass(frozen=True, kw_only=True)
class Course:
    """What is to be played."""

    jobs: int
    messages: int
    duration_s: float
    happening: Happening
    members: int = MEMBERS
    nodes: int = NODES
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What may vary."""

    jobs: int = 1_000
    messages: int = 100_000
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.messages < 1:
            raise Mistake("A demo takes at least one job and one message.")

    @property
    def duration_s(self) -> float:
        """How long messages are sent for: long enough for all that happens meanwhile."""
        return max(DURATION_S_MIN, self.messages / MESSAGES_PER_S)

    def course(self) -> Course:
        """The demo's: a node dies, a member dies, a node joins."""
        return Course(
            jobs=self.jobs, messages=self.messages, duration_s=self.duration_s, happening=_shake, seed=self.seed
        )


async def play(course: Course, stage: Stage) -> Ledger:
    """Run it, and return the ledger. Everything that it started has ended by then."""
    seed = secrets.randbelow(10**6) if course.seed is None else course.seed
    random = Random(seed)
    stage.say(
        f"Seed {seed}: {course.jobs:,} jobs, {course.messages:,} messages, "
        f"{course.members} members, {course.nodes} nodes"
    )
    async with AsyncExitStack() as stack:
        await jar_fetched(rich_progress() if sys.stderr.isatty() else None)
        stage.say("Starting members and nodes …")
        cluster = await stack.enter_async_context(open_hazelcast(_plan(course)))
        client = await stack.enter_async_context(cluster.open_client(None, None))
        stage.watch(client.grid, course.messages)
        stack.enter_context(stage)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.keep_looking)
            ids = [f"account-{n}" for n in range(course.jobs)]
            await _schedule(client, ids)
            stage.say(f"{course.jobs:,} jobs are scheduled; sending for {course.duration_s:.0f} s")
            loads = await _send_and_shake(cluster, client, ids, course, random, seed, stage)
            stage.say("All messages are stored; reading every job's state")
            sent = {key: n for load in loads for key, n in load.acknowledged.items()}
            ledger = await _settled_ledger(client, ids, sent)
            nursery.cancel_scope.cancel()
    return ledger


def _plan(course: Course) -> Plan:
    return Plan(
        nodes=course.nodes,
        members=course.members,
        grid="hazelcast",
        app=str(APPLICATION),
        partitions=None,
        backups=1,
        settings=NodeSettings(),
        seed=0,
        start=None,
        faults=None,
    )


async def _send_and_shake(
    cluster: HazelcastBackend,
    client: GridClient,
    ids: list[str],
    course: Course,
    random: Random,
    seed: int,
    stage: Stage,
) -> list[Load]:
    shares = [course.messages // SENDERS + (n < course.messages % SENDERS) for n in range(SENDERS)]
    # One after the other, so that there is never long nothing on its way to a partition.
    loads = [
        Load(f"sender-{n}", ids, share, seed, offset_s=n * TICK_S / SENDERS) for n, share in enumerate(shares) if share
    ]
    async with AsyncExitStack() as stack:
        # Their registries are empty: what they send is right, and need not be checked a hundred thousand times.
        opened = [open_client(client.grid, registry=Registry(), now_ms=wall_clock_ms) for _ in loads]
        senders = [await stack.enter_async_context(some) for some in opened]
        async with trio.open_nursery() as nursery:
            for load, sender in zip(loads, senders, strict=True):
                nursery.start_soon(load.publish, sender, course.duration_s, stage.stored)
            nursery.start_soon(course.happening, cluster, course.duration_s, random, stage)
    return loads


async def _shake(cluster: HazelcastBackend, duration_s: float, random: Random, stage: Stage) -> None:
    """What happens to the cluster while messages are sent."""
    await trio.sleep(duration_s * 0.2)
    node = random.choice(await cluster.nodes())
    stage.say(f"kill -9 of node {node}")
    await cluster.kill(node)
    await trio.sleep(duration_s * 0.25)
    member = random.choice(await cluster.members())
    stage.say(f"kill -9 of member {member}")
    await cluster.kill_member(member)
    await trio.sleep(duration_s * 0.2)
    stage.say("a third node joins")
    number = await cluster.add_node()
    stage.say(f"node {number} runs its share")


async def _schedule(client: GridClient, ids: list[str]) -> None:
    await _each(ids, SCHEDULES_AT_ONCE, lambda id: client.defining.schedule("account", id, {}))


async def _settled_ledger(client: GridClient, ids: list[str], sent: dict[tuple[str, str], int]) -> Ledger:
    """Once nothing more is missing, or the deadline has passed: then what is missing is lost."""
    expected = sum(sent.values())
    deadline_s = trio.current_time() + SETTLE_WITHIN_S
    while True:
        states = await _states(client, ids)
        ledger = make_ledger(sent, states)
        if ledger.applied + ledger.doubled >= expected or trio.current_time() > deadline_s:
            return ledger
        await trio.sleep(0.5)


async def _states(client: GridClient, ids: list[str]) -> dict[str, Any]:
    states: dict[str, Any] = {}

    async def read(id: str) -> None:
        try:
            states[id] = msgspec.to_builtins(await client.state(id))
        except NotDone:
            states[id] = {}

    await _each(ids, STATES_AT_ONCE, read)
    return states


async def _each(ids: Sequence[str], at_once: int, do: Callable[[str], Any]) -> None:
    limiter = trio.CapacityLimiter(at_once)

    async def one(id: str) -> None:
        async with limiter:
            await do(id)

    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(one, id)
