"""Lives of jobs: created, removed and created again under the same id, paused and resumed in between."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, UnknownJob
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Lifecycle", "Story", "judge_lives"]


class Mayfly(Job):
    """Lives for a while. At its end it tells the chronicle what it has seen."""

    life: int
    seen: list[int] = []
    starts: int = 0

    def on_start(self, ctx: Any) -> None:
        self.starts += 1

    def on_message(self, ctx: Any, message: int) -> list[Any]:
        self.seen.append(message)
        return [self.life, len(self.seen)]

    def on_stop(self, ctx: Any) -> None:
        ctx.send("chronicle", {"id": ctx.id, "life": self.life, "seen": self.seen, "starts": self.starts})


class Chronicle(Job):
    """What became of each life."""

    ends: list[dict[str, Any]] = []

    def on_message(self, ctx: Any, message: dict[str, Any]) -> None:
        self.ends.append(message)


class Story:
    """What was done to one id, and what its driver was told."""

    def __init__(self) -> None:
        self.lives = 0
        self.messages: set[int] = set()
        self.acknowledged: set[int] = set()
        self.confirmed: defaultdict[int, set[int]] = defaultdict(set)
        """life -> messages that it said it had seen"""
        self.removed: set[int] = set()
        """Lives whose removal was acknowledged."""
        self.is_there = False
        """Was the last life acknowledged, and nobody has tried to remove it?"""


def judge_lives(id: str, sent: Story, ends: list[dict[str, Any]], living: Mayfly | None, buried: list[int]) -> Findings:
    """Each life starts once and ends once; a message belongs to one life at most, or is a dead letter."""
    found = Findings()
    lives = [end["life"] for end in ends]
    if len(set(lives)) < len(lives):
        found.wrong.append(f"{id}: a life ended twice: {lives}")
    if lives != sorted(lives):
        found.wrong.append(f"{id}: lives ended out of order: {lives}")
    everything = [*ends, {"life": living.life, "seen": living.seen, "starts": living.starts}] if living else ends
    for life in everything:
        if life["starts"] != 1:
            found.wrong.append(f"{id}: life {life['life']} was started {life['starts']} times")
        if lost := sent.confirmed[life["life"]] - set(life["seen"]):
            found.wrong.append(f"{id}: life {life['life']} has forgotten {sorted(lost)}")
    if living is not None and living.life in lives:
        found.wrong.append(f"{id}: life {living.life} has ended, and lives")
    # A life that ended before its owner heard of it was never begun; one that has answered was.
    begun = {life for life, messages in sent.confirmed.items() if messages}
    if missing := sorted((sent.removed & begun) - set(lives)):
        found.waiting.append(f"{id}: lives removed, and not ended: {missing}")
    accounted = [n for life in everything for n in life["seen"]] + buried
    if len(set(accounted)) < len(accounted):
        found.wrong.append(f"{id}: messages that had two fates: {sorted(accounted)}")
    if unsent := set(accounted) - sent.messages:
        found.wrong.append(f"{id}: messages that were never sent: {sorted(unsent)}")
    if waiting := sorted(sent.acknowledged - set(accounted)):
        found.waiting.append(f"{id}: messages without a fate: {waiting}")
    return found


class Lifecycle(Workload):
    """One driver for each id, so that what it has done is known."""

    types: ClassVar[tuple[JobType, ...]] = (JobType("mayfly", Mayfly), JobType("chronicle", Chronicle))

    type_name, prefix, count = "mayfly", "mayfly", 2

    async def prepare(self, client: GridClient) -> None:
        self.sent = {f"{self.prefix}{n}": Story() for n in range(self.count)}
        await client.defining.schedule("chronicle", "chronicle", {})

    def drives(self) -> list[Drive]:
        return [lambda client, id=id: self._live(client, id) for id in self.sent]  # type: ignore[misc]

    async def _live(self, client: GridClient, id: str) -> None:
        sent, attempt, defining = self.sent[id], self.world.attempt, client.defining
        while self.world.working:
            if sent.lives:
                # Whatever there was: it was not known to be gone.
                await self._insist(lambda: self._remove(client, id))
                sent.removed.add(sent.lives)
            sent.lives += 1
            born = {"life": sent.lives}
            await self._insist(lambda born=born: defining.schedule("mayfly", id, born, deadline_s=5.0))  # type: ignore[misc]
            sent.is_there = True
            for _ in range(self.random.randint(1, 4)):
                await self._one_message(client, id, sent.lives)
                if self.random.random() < 0.2:
                    await attempt(1, lambda: defining.want(id, "paused", deadline_s=4.0))
                    await attempt(1, lambda: defining.want(id, "running", deadline_s=4.0))
                await self.pause(0.2, 1.0)

    async def _remove(self, client: GridClient, id: str) -> None:
        was_there, self.sent[id].is_there = self.sent[id].is_there, False
        try:
            await client.defining.want(id, "removed", deadline_s=5.0)
        except UnknownJob:
            if was_there:
                raise
            # It went with an earlier try, and its tombstone with time; or it was never made.

    async def _insist(self, call: Callable[[], Awaitable[object]]) -> None:
        while not (await self.world.attempt(1, call)).done:
            await self.pause(0.1, 0.5)

    async def _one_message(self, client: GridClient, id: str, life: int) -> None:
        sent = self.sent[id]
        n = len(sent.messages)
        sent.messages.add(n)
        if self.random.random() < 0.5:
            outcome: Any = await self.world.attempt(1, lambda: client.publish(id, n))
        else:
            outcome = await self.world.attempt(1, lambda: client.ask(id, n, deadline_s=3.0))
            if outcome.done:
                if outcome.result[0] != life:
                    self.world.violate(f"{id}: life {outcome.result[0]} answered in life {life}")
                sent.confirmed[life].add(n)
        if outcome.done:
            sent.acknowledged.add(n)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        read = await states(client, ["chronicle"], found)
        try:
            letters = await client.directory.dead_letters(deadline_s=5.0)
        except NotDone as error:
            found.waiting.append(str(error))
            return found
        for id, sent in self.sent.items():
            living = None
            if sent.lives:
                try:
                    living = await client.state(id, deadline_s=5.0)
                except UnknownJob:
                    pass
                except NotDone as error:
                    found.waiting.append(str(error))
                    continue
            if "chronicle" in read:
                ends = [end for end in read["chronicle"].ends if end["id"] == id]
                buried = [letter["message"] for letter in letters if letter["to"] == id]
                found.add(judge_lives(id, sent, ends, living, buried))
        return found
