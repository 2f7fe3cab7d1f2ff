"""Handlers that fail: state goes back to what was committed, the turn is tried again, and poison is parked."""

from asyncio import CancelledError  # noqa: TID251  # handlers may raise it, whatever runs them
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.strikes import late_answers
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Failing"]

RUDE: tuple[type[BaseException], ...] = (CancelledError, GeneratorExit)
"""What libraries raise out of handlers, and means something to who runs them."""
POISON_EACH = 11


def is_poison(n: int) -> bool:
    """Does this message of a sender always fail? Behind it come two that fail for a while."""
    return n % POISON_EACH == 5


class Clumsy(Job):
    """Changes its state, sends, and only then finds out that it can't go on."""

    seen: dict[str, list[int]] = {}
    half_done: list[int] = []

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        sender, n = message
        self.half_done.append(n)
        ctx.send("witness", n)
        if n % POISON_EACH in (6, 7) and ctx.attempt < 3:
            raise ValueError("not this time")
        if n % 7 == 4 and ctx.attempt < 3:
            raise RUDE[n % len(RUDE)]()
        if is_poison(n):
            raise ArithmeticError("never")
        self.half_done.pop()
        self.seen.setdefault(sender, []).append(n)


class Witness(Job):
    """Counts what it hears."""

    heard: int = 0

    def on_message(self, ctx: Any, message: int) -> None:
        self.heard += 1


class Failing(Workload):
    """Messages that fail twice, and messages that always fail. Whoever minds the jobs skips the latter, amid faults
    too: one message for each failure, however late the answers are."""

    types: ClassVar = (
        JobType("clumsy", Clumsy, retry=Retry(attempts_max=4, first_delay_s=0.05, delay_max_s=0.1)),
        JobType("witness", Witness),
    )
    # A message is poison or it is not: those that fail for crashes besides are looked at elsewhere.
    strikes: ClassVar = (late_answers,)
    settings: ClassVar = {"crash_attempts_max": 1000}

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"clumsy{n}" for n in range(2)]
        for id in self.jobs:
            await client.defining.schedule("clumsy", id, {})
        await client.defining.schedule("witness", "witness", {})

    def drives(self) -> list[Drive]:
        return [self._publish, self._mind]

    async def _mind(self, client: GridClient) -> None:
        while self.world.working:
            found = Findings()
            job, deadline_s = self.random.choice(self.jobs), self.random.choice((0.3, 1.0, 5.0))
            await self._skip_poison(client, [job], found, deadline_s)
            if found.wrong:
                self.world.violate("; ".join(found.wrong))
            await self.pause(0.1, 1.0)

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("tormentor")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(3)]
            outcome = await self.world.attempt(3, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.3, 1.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        await self._skip_poison(client, self.jobs, found)
        read = await states(client, [*self.jobs, "witness"], found)
        letters = await self._letters(client, found)
        if letters is None or len(read) < len(self.jobs) + 1:
            return found
        applied = 0
        for id in self.jobs:
            job = read[id]
            applied += sum(map(len, job.seen.values()))
            if job.half_done:
                found.wrong.append(f"{id} kept what failed turns did: {job.half_done}")
            found.add(self._judge(id, job, [tuple(letter["message"]) for letter in letters if letter["to"] == id]))
        heard = read["witness"].heard
        if heard != applied:
            # More may have been heard, for a moment: jobs are not looked at all at once.
            found.waiting.append(f"the witness has heard of {heard} turns, {applied} were committed")
        return found

    def _judge(self, id: str, job: Clumsy, letters: list[tuple[str, int]]) -> Findings:
        found = Findings()
        if len(set(letters)) < len(letters):
            found.wrong.append(f"{id}: a message became two dead letters: {sorted(letters)}")
        seen = {sender: list(numbers) for sender, numbers in job.seen.items()}
        for sender, n in letters:
            if not is_poison(n):
                found.wrong.append(f"{id}: message {n} of {sender} became a dead letter, and would have worked")
            if n in seen.get(sender, ()):
                found.wrong.append(f"{id}: message {n} of {sender} was applied, and became a dead letter too")
            numbers = seen.setdefault(sender, [])
            numbers.append(n)
            numbers.sort()
        for sender, numbers in job.seen.items():
            if numbers != sorted(numbers):
                found.wrong.append(f"{id}: out of {sender}'s order: {numbers}")
        found.add(judge_all(id, seen, self.sendings.to[id]))
        return found

    async def _skip_poison(self, client: GridClient, jobs: list[str], found: Findings, deadline_s: float = 5.0) -> None:
        for id in jobs:
            try:
                about = await client.directory.describe(id, deadline_s=5.0)
                if about["status"] == "failed" and about["first_waiting"] is None:
                    found.wrong.append(f"{id} has failed, and the message that did it is gone")
                elif about["status"] == "failed":
                    found.waiting.append(f"{id} has failed: {about['error']}")
                    poison = is_poison(about["first_waiting"]["message"][1])
                    await client.directory.retry(id, skip=poison, deadline_s=deadline_s)
            except NotDone as error:
                found.waiting.append(str(error))

    async def _letters(self, client: GridClient, found: Findings) -> list[dict[str, Any]] | None:
        try:
            return await client.directory.dead_letters(deadline_s=5.0)
        except NotDone as error:
            found.waiting.append(str(error))
            return None
