"""Passing lives: jobs that end as they begin, under few ids, of one type and then of another. What is left of them is
soon forgotten, while writes, zombies and clients of before are still about."""

from collections import Counter
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import DuplicateJob
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.strikes import doubtful_definitions
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Passing", "judge_passages"]

FERRYMAN = "ferryman"
IDS = 4


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
    """Each id has one driver, which makes one life after the other, and asks for none twice."""

    types: ClassVar = (JobType("passer", Passer), JobType("stroller", Stroller), JobType("ferryman", Ferryman))
    settings: ClassVar = {"tombstone_s": 3.0, "definitions_sweep_s": 1.0}
    strikes: ClassVar = (doubtful_definitions,)

    async def prepare(self, client: GridClient) -> None:
        self.lives = 0
        self.asked: dict[str, dict[int, str]] = {f"passer{n}": {} for n in range(IDS)}
        self.made: dict[str, set[int]] = {id: set() for id in self.asked}
        await client.defining.schedule("ferryman", FERRYMAN, {})

    def drives(self) -> list[Drive]:
        return [lambda client, id=id: self._pass(client, id) for id in self.asked]  # type: ignore[misc]

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
        if FERRYMAN in read:
            for id, types in self.asked.items():
                passed = [each for each in read[FERRYMAN].passed if each["life"] in types]
                found.add(judge_passages(id, types, self.made[id], passed))
        return found
