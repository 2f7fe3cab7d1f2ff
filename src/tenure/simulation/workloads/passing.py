"""Passing lives: jobs that end as they begin, under few ids, of one type and then of another. What is left of them is
soon forgotten, while writes, zombies and clients of before are still about; and nothing of them stays."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import DuplicateJob, UnknownJob, WrongType
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.strikes import doubtful_definitions
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Guise", "Passing", "judge_guise", "judge_passages"]

FERRYMAN = "ferryman"
IDS = 4
CHANGELINGS = 2


class Passer(Job):
    """Says that it was here, and goes."""

    life: int

    def on_start(self, ctx: Any) -> None:
        ctx.send(FERRYMAN, {"life": self.life, "type": "passer", "turn": ctx.turn_id})
        ctx.finish()


class Stroller(Job):
    """As the other, with another state, and in a turn that waits."""

    life: int
    steps: list[int] = []

    async def on_start(self, ctx: Any) -> None:
        self.steps.append(await ctx.once("step", lambda: self.life))
        ctx.send(FERRYMAN, {"life": self.life, "type": "stroller", "turn": ctx.turn_id})
        ctx.finish()


class Ferryman(Job):
    """Who has passed."""

    passed: list[dict[str, Any]] = []

    def on_message(self, ctx: Any, message: dict[str, Any]) -> None:
        self.passed.append(message)


class Counting(Job):
    """Takes numbers, and nothing else."""

    life: int
    got: list[int] = []

    def on_message(self, ctx: Any, message: int) -> None:
        self.got.append(message)


class Reading(Job):
    """Takes words, and nothing else."""

    life: int
    got: list[str] = []

    def on_message(self, ctx: Any, message: str) -> None:
        self.got.append(message)


class Guise:
    """What one id is now, as far as is known for certain."""

    def __init__(self) -> None:
        self.life = 0
        self.type: str | None = None
        self.acknowledged: set[int] = set()
        """In this life."""


def judge_guise(id: str, guise: Guise, got: list[Any], life: int) -> Findings:
    """What was acknowledged to who is there now, it has got, once."""
    found, numbers = Findings(), [int(each) for each in got]
    if life != guise.life:
        found.wrong.append(f"{id} is in life {life}, and was made for life {guise.life}")
    if len(set(numbers)) < len(numbers):
        found.wrong.append(f"{id} has got a message twice: {numbers}")
    if missing := sorted(guise.acknowledged - set(numbers)):
        found.waiting.append(f"{id} has not got {missing}, which fits it, and was acknowledged")
    return found


def judge_passages(id: str, types: dict[int, str], made: set[int], passed: list[dict[str, Any]]) -> Findings:
    """Each life passes once at most, as what it was made, and under a name of its own; those that were made do."""
    found = Findings()
    lives = Counter(each["life"] for each in passed)
    if twice := sorted(life for life, times in lives.items() if times > 1):
        found.wrong.append(f"{id}: lives that passed twice: {twice}")
    if names := [name for name, times in Counter(each["turn"] for each in passed).items() if times > 1]:
        found.wrong.append(f"{id}: two turns are called {names}")
    if strange := [each for each in passed if types.get(each["life"]) != each["type"]]:
        found.wrong.append(f"{id}: never made so: {strange}")
    if waiting := sorted(made - lives.keys()):
        found.waiting.append(f"{id}: made, and not seen: {waiting}")
    return found


class Passing(Workload):
    """Each id has one driver, which makes one life after the other, and asks for none twice. Others are told things by
    a client that stays, as what they are changes."""

    types: ClassVar = (
        JobType("passer", Passer),
        JobType("stroller", Stroller),
        JobType("ferryman", Ferryman),
        JobType("counting", Counting),
        JobType("reading", Reading),
    )
    settings: ClassVar = {"tombstone_s": 3.0, "definitions_sweep_s": 1.0}
    strikes: ClassVar = (doubtful_definitions,)

    async def prepare(self, client: GridClient) -> None:
        self.lives = 0
        self.asked: dict[str, dict[int, str]] = {f"passer{n}": {} for n in range(IDS)}
        self.made: dict[str, set[int]] = {id: set() for id in self.asked}
        self.guises = {f"changeling{n}": Guise() for n in range(CHANGELINGS)}
        await client.defining.schedule("ferryman", FERRYMAN, {})

    def drives(self) -> list[Drive]:
        passing: list[Drive] = [lambda client, id=id: self._pass(client, id) for id in self.asked]  # type: ignore[misc]
        changing: list[Drive] = [lambda client, id=id: self._change(client, id) for id in self.guises]  # type: ignore[misc]
        return [*passing, *changing, self._talk]

    async def _change(self, client: GridClient, id: str) -> None:
        guise = self.guises[id]
        while self.world.working:
            if guise.life:
                guise.type = None
                await self._insist(lambda: client.defining.want(id, "removed", deadline_s=5.0))
            guise.life, guise.acknowledged = guise.life + 1, set()
            type = self.random.choice(("counting", "reading"))
            await self._insist(lambda type=type: client.defining.schedule(type, id, {"life": guise.life}))  # type: ignore[misc]
            guise.type = type
            await self.pause(1.0, 4.0)

    async def _insist(self, call: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                if (await self.world.attempt(1, call)).done:
                    return
            except UnknownJob:
                return
            except DuplicateJob:
                pass  # the last one is still on its way out
            await self.pause(0.1, 0.5)

    async def _talk(self, client: GridClient) -> None:
        """What is right for a job that has been there all the time is not refused, and is not lost."""
        n = 0
        while self.world.working:
            await self.pause(0.1, 0.5)
            id = self.random.choice(list(self.guises))
            guise, n = self.guises[id], n + 1
            life, type = guise.life, guise.type
            if type is None:
                continue
            try:
                outcome = await self.world.attempt(
                    1,
                    lambda id=id, body=n if type == "counting" else str(n): client.publish(id, body),  # type: ignore[misc]
                )
            except WrongType as error:
                if (guise.life, guise.type) == (life, type):
                    self.world.violate(f"{id}, which is {type}, refuses what is right: {error}")
                continue
            if outcome.done and (guise.life, guise.type) == (life, type):
                guise.acknowledged.add(n)

    async def _pass(self, client: GridClient, id: str) -> None:
        while self.world.working:
            self.lives += 1
            life, type = self.lives, self.random.choice(("passer", "stroller"))
            self.asked[id][life] = type
            try:
                outcome = await self.world.attempt(
                    1,
                    lambda life=life, type=type: client.defining.schedule(type, id, {"life": life}),  # type: ignore[misc]
                )
                if outcome.done:
                    self.made[id].add(life)
            except DuplicateJob:
                pass  # the last one is still on its way out
            await self.pause(0.1, self.random.choice((0.2, 0.2, 4.0)))

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        read = await states(client, [FERRYMAN], found)
        there = [id for id, guise in self.guises.items() if guise.type is not None]
        for id, job in (await states(client, there, found)).items():
            found.add(judge_guise(id, self.guises[id], job.got, job.life))
        # Each has ended, and what is kept of that is not kept for long.
        if left := sorted(self.world.cluster.defined() & self.asked.keys()):
            found.waiting.append(f"definitions of jobs that are long gone: {left}")
        if FERRYMAN in read:
            for id, types in self.asked.items():
                passed = [each for each in read[FERRYMAN].passed if each["life"] in types]
                found.add(judge_passages(id, types, self.made[id], passed))
        return found
