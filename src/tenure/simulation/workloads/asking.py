"""Questions: what a job answered was committed, and stays, though odd messages travel with them."""

from typing import Any, ClassVar

import trio
from msgspec import Raw

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, UnknownJob
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import partition_of
from tenure.scheduler.wire import Envelope
from tenure.simulation.histories import Findings, Sent, judge_sender
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Asking", "judge_answers"]


PATIENCE_S = 50.0
"""Longer than all that goes wrong takes, and all that is mended afterwards."""
ODD = (b"\x91" * 1300 + b"\x01", b"\x91" * 984 + b"\x01", b"\x81\x81\xa1x\x01\x01", b"\xc7\x02\xffxx")
"""Bodies that can't be read: lists within lists, a map as the key of a map, a time that is none."""


class Oracle(Job):
    """Answers with its place in the order of all questions."""

    asked: list[int] = []

    def on_message(self, ctx: Any, message: int) -> int:
        self.asked.append(message)
        return len(self.asked)


class Sphinx(Job):
    """Takes whatever it is sent."""

    heard: list[int] = []

    def on_message(self, ctx: Any, message: Any) -> None:
        self.heard.append(message)


def judge_answers(id: str, asked: list[int], answers: dict[int, int]) -> Findings:
    """Each answer named the place that its question still has."""
    found = Findings()
    for question, place in answers.items():
        if place > len(asked) or asked[place - 1] != question:
            found.wrong.append(f"{id} answered question {question} as its number {place}; its questions are {asked}")
    return found


class Asking(Workload):
    """Askers with and without ids, some who ask for what does not exist, and clients of an older version, which send
    what nobody can read."""

    types: ClassVar = (JobType("oracle", Oracle), JobType("sphinx", Sphinx))

    async def prepare(self, client: GridClient) -> None:
        self.jobs = [f"oracle{n}" for n in range(3)]
        self.sent = {id: Sent() for id in self.jobs}
        self.answers: dict[str, dict[int, int]] = {id: {} for id in self.jobs}
        for id in self.jobs:
            await client.defining.schedule("oracle", id, {})
        self.sphinxes = {f"sphinx{n}": Sent() for n in range(2)}
        for id in self.sphinxes:
            await client.defining.schedule("sphinx", id, {})

    def drives(self) -> list[Drive]:
        return [self._ask, self._ask, self._ask_nobody, self._ask_patiently]

    async def _send_oddly(self, client: GridClient) -> None:
        """Messages that travel beside ones that nobody can read: those harm themselves alone."""
        job = self.random.choice(list(self.sphinxes))
        sent = self.sphinxes[job]
        numbers = [sent.next(), sent.next()]
        bodies = [Raw(bytes((n % 128,))) for n in numbers]
        bodies.insert(self.random.randrange(3), Raw(self.random.choice(ODD)))
        # Past the checks that clients of this version make.
        envelopes = [(partition_of(job, client.partition_count), Envelope(job, body)) for body in bodies]
        pairs = [(job, bytes(body)) for body in bodies]
        outcome = await self.world.attempt(
            len(pairs),
            lambda pairs=pairs, envelopes=envelopes: client._send(pairs, envelopes, None),  # type: ignore[misc]
        )
        if outcome.done:
            sent.acknowledged.update(numbers)

    async def _ask_patiently(self, client: GridClient) -> None:
        """Who does not give up is told: an answer that is committed does not go with the owner that has it in hand."""
        while self.world.working:
            job = self.random.choice(self.jobs)
            question, begun_s = self.sent[job].next(), trio.current_time()
            try:
                answer = await client.ask(job, question, deadline_s=PATIENCE_S)
            except NotDone as error:
                if trio.current_time() < begun_s + PATIENCE_S:
                    continue  # its lane became too old to try on: nobody knows whether it was stored
                self.world.violate(f"{job} did not answer question {question} within {PATIENCE_S} s: {error}")
                return
            self.answers[job][question] = answer
            self.sent[job].acknowledged.add(question)
            await self.pause(0.1, 0.6)

    async def _ask(self, client: GridClient) -> None:
        while self.world.working:
            job = self.random.choice(self.jobs)
            question = self.sent[job].next()
            id = f"{job} {question}" if self.random.random() < 0.5 else ""
            for _ in range(2 if id else 1):
                outcome = await self.world.attempt(
                    1,
                    lambda job=job, question=question, id=id: client.ask(job, question, id=id, deadline_s=3.0),  # type: ignore[misc]
                )
                if outcome.done:
                    answer: Any = outcome.result
                    before = self.answers[job].setdefault(question, answer)
                    if before != answer:
                        self.world.violate(f"{job} answered {id!r} with {before}, and asked again with {answer}")
                    self.sent[job].acknowledged.add(question)
            await self.pause(0.5, 1.5)

    async def _ask_nobody(self, client: GridClient) -> None:
        while self.world.working:
            try:
                outcome = await self.world.attempt(1, lambda: client.ask("nobody", 1, deadline_s=3.0))
            except UnknownJob:
                pass
            else:
                if outcome.done:
                    self.world.violate(f"a job that does not exist answered {outcome.result!r}")
            await self.pause(1.0, 3.0)
            await self._send_oddly(client)
            await self.pause(1.0, 3.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_sender(id, job.asked, self.sent[id], ordered=False))
            found.add(judge_answers(id, job.asked, self.answers[id]))
        for id, job in (await states(client, self.sphinxes, found)).items():
            found.add(judge_sender(id, job.heard, self.sphinxes[id], ordered=False))
        return found
