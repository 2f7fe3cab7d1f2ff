"""An outside ledger with fencing tokens: a node that was paused can't overwrite what its successor wrote."""

from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings, judge_all, judge_increasing
from tenure.simulation.stage import current_world
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Fencing", "Register", "judge_register"]


class Register:
    """Keeps a value for each job, and refuses whoever comes with a lower token than the highest it has seen."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[tuple[int, int]]] = {}
        self.refused = 0

    def write(self, job: str, fence: int, value: int) -> bool:
        """False: refused."""
        history = self.accepted.setdefault(job, [])
        if history and fence < history[-1][0]:
            self.refused += 1
            return False
        history.append((fence, value))
        return True


class Clerk(Job):
    """Writes outside what it will remember inside."""

    seen: dict[str, list[int]] = {}
    wrote: list[tuple[str, int]] = []
    """(token, value); tokens are longer than the integers of MessagePack."""

    async def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        register: Register = current_world().outside(Register)
        fence = ctx.fence
        await trio.sleep(0.1)
        value = sum(map(len, self.seen.values()))
        if not register.write(ctx.id, fence, value):
            raise RuntimeError("another owner has written already")
        await trio.sleep(0.1)
        self.seen.setdefault(message[0], []).append(message[1])
        self.wrote.append((str(fence), value))


def judge_register(id: str, wrote: list[tuple[int, int]], accepted: list[tuple[int, int]]) -> Findings:
    """Tokens grow with the turns that count, and the last value outside is that of the last turn that counts."""
    found = judge_increasing(id, "its fencing token", (fence for fence, _ in wrote))
    for entry in wrote:
        if entry not in accepted:
            found.wrong.append(f"{id} remembers that it wrote {entry}, which was never accepted")
    if wrote and accepted and accepted[-1] != wrote[-1]:
        found.waiting.append(f"{id} last wrote {wrote[-1]}, and outside there is {accepted[-1]}")
    return found


class Fencing(Workload):
    """Turns that write outside and are interrupted before and after."""

    types: ClassVar = (JobType("clerk", Clerk),)

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.jobs = [f"clerk{n}" for n in range(3)]
        for id in self.jobs:
            await client.defining.schedule("clerk", id, {})

    def drives(self) -> list[Drive]:
        return [self._publish]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("author")
        while self.world.working:
            batch = [self.sendings.message(self.random.choice(self.jobs), sender) for _ in range(2)]
            outcome = await self.world.attempt(2, lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            self.sendings.told(batch, outcome)
            await self.pause(0.3, 1.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        register: Register = self.world.outside(Register)
        for id, job in (await states(client, self.jobs, found)).items():
            found.add(judge_all(id, job.seen, self.sendings.to[id]))
            wrote = [(int(fence), value) for fence, value in job.wrote]
            found.add(judge_register(id, wrote, register.accepted.get(id, [])))
        return found
