"""Newborns: many jobs, each sent to as soon as it is scheduled, while reads of definitions are in doubt; some are
removed soon. What is there is found, and what is gone stays so."""

from collections import Counter
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import JobRemoved, NotDone, UnknownJob
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.strikes import doubtful_definitions
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Newborns", "judge_child"]

REGISTER = "register"


class Child(Job):
    """Is entered into the register, hears, and may be taken out of it."""

    heard: list[int] = []
    news: list[int] = []

    def on_start(self, ctx: Any) -> None:
        ctx.send(REGISTER, ("born", ctx.id))

    def on_message(self, ctx: Any, message: int) -> None:
        (self.news if ctx.message.topic else self.heard).append(message)

    def on_stop(self, ctx: Any) -> None:
        ctx.send(REGISTER, ("died", ctx.id))


class Register(Job):
    """Who was born and who has died."""

    entries: list[tuple[str, str]] = []

    def on_message(self, ctx: Any, message: tuple[str, str]) -> None:
        self.entries.append(message)


class Told:
    """What was done about one child, and what its parent was told."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.before_removal: set[int] = set()
        """Acknowledged before anybody thought of removing it."""
        self.news: set[int] = set()
        """Published and acknowledged while it was known to be there."""
        self.scheduled = self.removing = self.removed = False


def judge_child(id: str, told: Told, child: Child | None, entries: Counter[str], buried: list[int]) -> Findings:
    """One that was scheduled and that nobody wanted removed is there, and has got all that was sent to it; one that was
    removed is not. Each is born once and dies once."""
    found = Findings()
    heard = [] if child is None else child.heard
    if entries["born"] > 1 or entries["died"] > 1:
        found.wrong.append(f"{id} was born {entries['born']} times and died {entries['died']} times")
    if heard != sorted(set(heard)) or set(heard) - set(range(told.sent)):
        found.wrong.append(f"{id} has heard {heard} of {told.sent} messages")
    if told.scheduled and (lost := sorted(told.before_removal & set(buried))):
        found.wrong.append(f"{id} was there, and messages to it became dead letters: {lost}")
    if told.removed and child is not None:
        found.wrong.append(f"{id} was removed, and is there")
    if told.removed and entries["born"] and not entries["died"]:
        found.waiting.append(f"{id} was removed, and has not died")
    if not told.scheduled or told.removing:
        return found
    if child is None:
        found.wrong.append(f"{id} was scheduled, and is not there")
        return found
    if entries["died"]:
        found.wrong.append(f"{id} lives, and has died")
    if not entries["born"]:
        found.waiting.append(f"{id} was scheduled, and is not in the register")
    if missing := sorted(told.acknowledged - set(heard)):
        found.waiting.append(f"{id} has not heard {missing}")
    if missing := sorted(told.news - set(child.news)):
        found.waiting.append(f"{id} has not heard the news {missing}")
    return found


class Newborns(Workload):
    """Parents who schedule, send at once, and remove."""

    types: ClassVar = (JobType("child", Child, topics=("nursery",)), JobType("register", Register))
    strikes: ClassVar = (doubtful_definitions,)

    async def prepare(self, client: GridClient) -> None:
        self.told: dict[str, Told] = {}
        self.news = 0
        await client.defining.schedule("register", REGISTER, {})

    def drives(self) -> list[Drive]:
        return [self._bear, self._bear]

    async def _bear(self, client: GridClient) -> None:
        while self.world.working:
            id = self.world.name("child")
            told = self.told[id] = Told()
            told.scheduled = (await self.world.attempt(1, lambda id=id: client.defining.schedule("child", id, {}))).done  # type: ignore[misc]
            for _ in range(self.random.choice((1, 1, 3))):
                await self._say(client, id, told)
            if told.scheduled and self.random.random() < 0.4:
                await self._tell_all(client)
            if told.scheduled and self.random.random() < 0.4:
                await self._remove(client, id, told)
            await self.pause(0.1, 0.6)

    async def _say(self, client: GridClient, id: str, told: Told) -> None:
        n, told.sent = told.sent, told.sent + 1
        if (await self.world.attempt(1, lambda: client.publish(id, n))).done:
            told.acknowledged.add(n)
            if told.scheduled and not told.removing:
                told.before_removal.add(n)

    async def _tell_all(self, client: GridClient) -> None:
        there = [told for told in self.told.values() if told.scheduled and not told.removing]
        n, self.news = self.news, self.news + 1
        if (await self.world.attempt(1, lambda: client.publish_topic("nursery", n))).done:
            for told in there:
                told.news.add(n)

    async def _remove(self, client: GridClient, id: str, told: Told) -> None:
        told.removing = True
        try:
            told.removed = (
                await self.world.attempt(1, lambda: client.defining.want(id, "removed", deadline_s=4.0))
            ).done
        except (UnknownJob, JobRemoved) as error:
            self.world.violate(f"{id} was scheduled, and to remove it is refused: {error!r}")
        for _ in range(self.random.choice((0, 1, 2))):
            await self._say(client, id, told)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        read = await states(client, [REGISTER], found)
        try:
            letters = await client.directory.dead_letters(deadline_s=5.0)
        except NotDone as error:
            found.waiting.append(str(error))
            return found
        if REGISTER not in read:
            return found
        entries: dict[str, Counter[str]] = {}
        for what, id in read[REGISTER].entries:
            entries.setdefault(id, Counter())[what] += 1
        for id, told in self.told.items():
            try:
                child = await client.state(id, deadline_s=5.0)
            except (UnknownJob, JobRemoved):
                child = None
            except NotDone as error:
                found.waiting.append(str(error))
                continue
            buried = [letter["message"] for letter in letters if letter["to"] == id]
            found.add(judge_child(id, told, child, entries.get(id, Counter()), buried))
        return found
