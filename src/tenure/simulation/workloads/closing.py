"""Closing: a cluster is shut down with a snapshot, or merely sealed for a while, in the middle of its work.

What was ever acknowledged is in the snapshot that the cluster ends with, and nothing is acknowledged under a seal.
Where a shutdown comes to nothing, all goes on.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import trio

from tenure.clients.ending import shutdown_with_snapshot
from tenure.clients.plain import one_error
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import ApplicationClosed, NotDone, TenureError
from tenure.scheduler.grid.port import Grid, GridError
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.orders import HOLD_AGAIN_S, hold, let_go
from tenure.scheduler.seal import Seal
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory
from tenure.simulation.histories import Findings, Sent, judge_all
from tenure.simulation.restored import judge_snapshot
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Closing"]

ARCHIVE = "archive"


class Usher(Job):
    """Writes down what it hears, and tells the archive of some."""

    seen: dict[str, list[int]] = {}
    passed_on: int = 0

    async def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        await trio.sleep((message[1] % 3) * 0.1)
        self.seen.setdefault(message[0], []).append(message[1])
        if message[1] % 3 == 0:
            self.passed_on += 1
            ctx.send(ARCHIVE, [ctx.id, self.passed_on])


class Archive(Job):
    """What it was told by each, in order."""

    told: dict[str, list[int]] = {}

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        self.told.setdefault(message[0], []).append(message[1])


class Closing(Workload):
    """Publishers, and an operator who closes."""

    types: ClassVar = (JobType("usher", Usher), JobType("archive", Archive))
    alone: ClassVar = True

    async def prepare(self, client: GridClient) -> None:
        self.world.can_end = True
        # A node whose last heartbeat lands late is listed for a minute after its end, and waited for.
        self.world.drives_end_s_max = 90.0
        self.sendings = Sendings()
        self.jobs = [f"usher{n}" for n in range(4)]
        self.url = f"memory:closing {self.world.seed}"
        self.store = MEMORIES[self.url] = Memory()
        self.is_for_good = self.random.random() < 0.7
        self.under_seal = ""
        """The token of a seal of which all clients know."""
        self.verdict: Findings | None = None
        for id in (*self.jobs, ARCHIVE):
            await client.defining.schedule("archive" if id == ARCHIVE else "usher", id, {})

    def drives(self) -> list[Drive]:
        return [self._publish, self._publish, self._operate]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("visitor")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(3)]
            try:
                outcome = await self.world.attempt(3, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            except ApplicationClosed:
                outcome = None
            if outcome is not None:
                self.sendings.told(batch, outcome)
                if outcome.done and self.under_seal and self.world.cluster.marker().sealed == self.under_seal:
                    self.world.violate(f"{batch} were acknowledged to {sender} under seal {self.under_seal}")
            await self.pause(0.1, 0.6)

    async def _operate(self, client: GridClient) -> None:
        await self.pause(1.0, 5.0)
        while self.world.working and not self.world.has_ended():
            try:
                if self.is_for_good:
                    await shutdown_with_snapshot(client, self.url, timeout_s=self.random.choice((10.0, 25.0, 40.0)))
                else:
                    await self._seal_for_a_while(client)
            except TenureError as error:
                self.world.trace.tell("operator", f"could not: {error!r}")
            await self.pause(0.5, 3.0)
        self.world.trace.tell(
            "operator", f"is done; the cluster {'has ended' if self.world.has_ended() else 'goes on'}"
        )

    async def _seal_for_a_while(self, client: GridClient) -> None:
        seal = Seal(client.grid, secrets.token_hex(8))
        async with _holding(client):
            try:
                await seal.put()
                await seal.settle()
                self.under_seal = seal.token
                options = SnapshotOptions(deadline_s=10.0)
                await take_snapshot(client.grid, self.url, self.store, client.now_ms, options)
            finally:
                self.under_seal = ""
                with trio.move_on_after(5.0, shield=True):
                    await seal.lift()

    async def examine(self, client: GridClient) -> Findings:
        if not self.world.has_ended():
            return await self._judge(client)
        if self.verdict is None:
            name = self.world.cluster.marker().ended
            self.verdict = await judge_snapshot(
                self.world, self.store, name, Registry(*self.types), self._judge, partitions=3
            )
        return self.verdict

    async def _judge(self, client: GridClient) -> Findings:
        found = Findings()
        try:
            read = await states(client, [*self.jobs, ARCHIVE], found)
            letters = await client.directory.dead_letters(deadline_s=5.0)
        except NotDone as error:
            return Findings(waiting=[str(error)])
        archive = read.pop(ARCHIVE, None)
        for id, job in read.items():
            refused = [letter for letter in letters if letter["to"] == id]
            odd = [letter for letter in refused if letter["reason"] != "ApplicationClosed"]
            found.wrong += (f"{letter} was not refused for being closed" for letter in odd)
            sent = _without(self.sendings.to[id], {tuple(letter["message"]) for letter in refused})
            found.add(judge_all(id, job.seen, sent))
            told = archive.told.get(id, []) if archive is not None else []
            if told != list(range(1, len(told) + 1)):
                found.wrong.append(f"{ARCHIVE} was told by {id} out of order, twice or with gaps: {told}")
            elif len(told) != job.passed_on:
                found.waiting.append(f"{ARCHIVE} was told {len(told)} of {job.passed_on} by {id}")
        return found


def _without(sent: Mapping[str, Sent], refused: set[tuple[str, int]]) -> dict[str, Sent]:
    """What was sent to a job, but for what was refused as inputs were closed: none of that may be seen besides."""
    left = {}
    for sender, each in sent.items():
        mine = left[sender] = Sent()
        mine.numbers = [n for n in each.numbers if (sender, n) not in refused]
        mine.acknowledged = {n for n in each.acknowledged if (sender, n) not in refused}
    return left


@asynccontextmanager
async def _holding(client: GridClient) -> AsyncIterator[None]:
    """All nodes are told to hold, again and again."""

    async def keep() -> None:
        while True:
            await _persistently(hold)
            await trio.sleep(HOLD_AGAIN_S)

    async def _persistently(act: Callable[[Grid], Awaitable[None]]) -> None:
        while True:
            try:
                await act(client.grid)
                return
            except GridError:
                await trio.sleep(0.1)

    with one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            try:
                yield
            finally:
                with trio.move_on_after(5.0, shield=True):
                    await _persistently(let_go)
                nursery.cancel_scope.cancel()
