"""Heavy work: few messages from which much comes, as states, copies, answers, sendings and pages of dead letters."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import TenureError
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Heavy"]

BIG = 1_000_000
READERS = 40
JOBS = 36
SENDINGS = 14


class Hauler(Job):
    """Keeps, sends or answers much, as it is told."""

    load: bytes = b""
    heard: list[int] = []

    def on_start(self, ctx: Any) -> None:
        ctx.subscribe("freight")

    def on_message(self, ctx: Any, message: dict[str, Any]) -> Any:
        self.heard.append(message["n"])
        what = message["what"]
        if what == "keep":
            self.load = bytes(message["size"])
        elif what == "send":
            ctx.send("depot", {"n": message["n"], "what": "note", "load": bytes(message["size"])})
        elif what == "answer":
            return bytes(message["size"])
        return None


class Heavy(Workload):
    """One kind of heavy work in each seed. The journal's checker says how large a record may be."""

    types: ClassVar = (JobType("hauler", Hauler),)
    # Nobody takes its dead letters away.
    settings: ClassVar = {"dead_letters_max": 10_000, "dead_letters_bytes_max": 2**24}
    alone: ClassVar = True

    async def prepare(self, client: GridClient) -> None:
        self.kind = self.random.choice(("copies", "states", "sendings", "answers", "letters"))
        self.jobs = [f"hauler{n}" for n in range({"copies": READERS, "states": JOBS}.get(self.kind, 2))]
        self.stored: list[int] = []
        self.answered = 0
        for id in [*self.jobs, "depot"]:
            await client.defining.schedule("hauler", id, {})
        for id in self.jobs:
            await client.state(id)
        while self.kind == "copies" and (await client.directory.topics()).get("freight", 0) < READERS:  # noqa: ASYNC110
            await trio.sleep(0.1)

    def drives(self) -> list[Drive]:
        return [self._load]

    async def _load(self, client: GridClient) -> None:
        work: dict[str, Callable[[GridClient], Awaitable[None]]] = {
            "copies": self._copies,
            "states": self._states,
            "sendings": self._sendings,
            "answers": self._answers,
            "letters": self._letters,
        }
        if not self.stored:
            await work[self.kind](client)
        while self.world.working:
            await self.pause(1.0, 2.0)

    async def _insist(self, call: Callable[[], Awaitable[Any]]) -> None:
        while not (await self.world.attempt(1, call)).done:
            await self.pause(0.1, 0.5)

    async def _copies(self, client: GridClient) -> None:
        for n in range(2):
            message = {"n": n, "what": "note", "load": bytes(BIG // 2)}
            await self._insist(lambda message=message, n=n: client.publish_topic("freight", message, id=f"f{n}"))  # type: ignore[misc]
            self.stored.append(n)

    async def _states(self, client: GridClient) -> None:
        message = {"n": 0, "what": "keep", "size": BIG}
        await self._insist(lambda: client.broadcast("hauler", message, id="b0"))
        self.stored.append(0)

    async def _sendings(self, client: GridClient) -> None:
        batch = [(self.jobs[0], {"n": n, "what": "send", "size": BIG}) for n in range(SENDINGS)]
        ids = [f"s{n}" for n in range(SENDINGS)]
        await self._insist(lambda: client.publish_many(batch, ids=ids))
        self.stored += range(SENDINGS)

    async def _answers(self, client: GridClient) -> None:
        for size in (BIG, 20 * BIG):
            question = {"n": 0, "what": "answer", "size": size}
            try:
                await self.world.attempt(1, lambda question=question: client.ask("depot", question))  # type: ignore[misc]
            except TenureError:
                pass  # it may be refused, by name
            self.answered += 1

    async def _letters(self, client: GridClient) -> None:
        for n in range(SENDINGS):
            batch = [("nobody", {"n": n, "load": bytes(BIG - 1000)})]
            await self._insist(lambda batch=batch, n=n: client.publish_many(batch, ids=[f"l{n}"]))  # type: ignore[misc]
        self.stored += range(SENDINGS)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        if self.kind == "letters":
            await self._read_letters(client, found)
        elif self.kind == "sendings":
            depot = (await states(client, ["depot"], found)).get("depot")
            if depot is not None and sorted(depot.heard) != sorted(self.stored):
                self._note(found, "depot", depot.heard)
        elif self.kind in ("copies", "states"):
            for id, job in (await states(client, self.jobs, found)).items():
                if job.heard != self.stored:
                    self._note(found, id, job.heard)
        return found

    def _note(self, found: Findings, id: str, heard: list[int]) -> None:
        if len(set(heard)) < len(heard) or set(heard) - set(range(SENDINGS)):
            found.wrong.append(f"{id} has heard {heard}, and {self.stored} were stored")
        else:
            found.waiting.append(f"{id} has heard {heard} of {self.stored}")

    async def _read_letters(self, client: GridClient, found: Findings) -> None:
        try:
            letters = await client.directory.dead_letters(deadline_s=20.0)
        except TenureError as error:
            found.waiting.append(str(error))
            return
        # Stored again after a doubt, one may be two letters: there is no job to know its id by.
        if missing := set(self.stored) - {letter["message"]["n"] for letter in letters if letter["to"] == "nobody"}:
            found.waiting.append(f"messages to nobody that are no dead letters: {sorted(missing)}")
