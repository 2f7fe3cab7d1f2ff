"""Topics and broadcasts: every subscriber, or every job of a type, gets each message exactly once."""

from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.topic import Topic
from tenure.simulation.histories import Findings, judge_all
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.counters import Sendings

__all__ = ["Broadcasts", "Topics", "judge_alike"]


class Reader(Job):
    """Subscribes at its start."""

    seen: dict[str, list[int]] = {}

    def on_start(self, ctx: Any) -> None:
        ctx.subscribe("news")

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        self.seen.setdefault(message[0], []).append(message[1])


class Crowd(Job):
    """Hears what is said to all of its type."""

    seen: dict[str, list[int]] = {}

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        self.seen.setdefault(message[0], []).append(message[1])


class Herald(Job):
    """Tells everybody what it is told."""

    told: int = 0

    def on_message(self, ctx: Any, message: str) -> None:
        if message == "news":
            ctx.publish(Topic("news"), ("herald", self.told))
        else:
            ctx.broadcast("crowd", ("herald", self.told))
        self.told += 1


def judge_alike(what: str, seen: dict[str, dict[str, list[int]]]) -> Findings:
    """What one has got, all must get."""
    found = Findings()
    everything = {(sender, n) for senders in seen.values() for sender, numbers in senders.items() for n in numbers}
    for id, senders in seen.items():
        mine = {(sender, n) for sender, numbers in senders.items() for n in numbers}
        if missing := sorted(everything - mine):
            found.waiting.append(f"{id} has not got {what} that another got: {missing}")
    return found


class Topics(Workload):
    """One topic, a few subscribers, publishers outside and inside."""

    types: ClassVar = (JobType("reader", Reader), JobType("herald", Herald))

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.readers = [f"reader{n}" for n in range(4)]
        for id in self.readers:
            await client.defining.schedule("reader", id, {})
            await client.state(id)
        await client.defining.schedule("herald", "herald", {})
        # The answer is in the cluster, which has no event for us.
        while (await client.directory.topics()).get("news", 0) < len(self.readers):  # noqa: ASYNC110
            await trio.sleep(0.1)

    def drives(self) -> list[Drive]:
        return [self._publish]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("newspaper")
        while self.world.working:
            if self.random.random() < 0.3:
                await self.world.attempt(1, lambda: client.publish("herald", "news"))
            else:
                message = self.sendings.message("news", sender)
                outcome = await self.world.attempt(1, lambda message=message: client.publish_topic(*message))  # type: ignore[misc]
                self.sendings.told([message], outcome)
            await self.pause(0.5, 1.5)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        read = await states(client, [*self.readers, "herald"], found)
        herald = read.pop("herald", None)
        if herald is not None:
            _judge_fan(found, "news", {id: job.seen for id, job in read.items()}, self.sendings, herald.told)
        return found


class Broadcasts(Workload):
    """To every job of a type."""

    types: ClassVar = (JobType("crowd", Crowd), JobType("crier", Herald))

    async def prepare(self, client: GridClient) -> None:
        self.sendings = Sendings()
        self.crowd = [f"crowd{n}" for n in range(6)]
        for id in self.crowd:
            await client.defining.schedule("crowd", id, {})
            await client.state(id)
        await client.defining.schedule("crier", "crier", {})

    def drives(self) -> list[Drive]:
        return [self._publish]

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("shouter")
        while self.world.working:
            if self.random.random() < 0.3:
                await self.world.attempt(1, lambda: client.publish("crier", "all"))
            else:
                message = self.sendings.message("all", sender)
                outcome = await self.world.attempt(1, lambda body=message[1]: client.broadcast("crowd", body))  # type: ignore[misc]
                if outcome.done:
                    self.sendings.told([message], outcome)
            await self.pause(0.3, 1.5)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        read = await states(client, [*self.crowd, "crier"], found)
        crier = read.pop("crier", None)
        if crier is not None:
            _judge_fan(found, "all", {id: job.seen for id, job in read.items()}, self.sendings, crier.told, alike=False)
        return found


def _judge_fan(
    found: Findings,
    what: str,
    seen: dict[str, dict[str, list[int]]],
    sendings: Sendings,
    inside: int,
    *,
    alike: bool = True,
) -> None:
    for id, senders in seen.items():
        heard = senders.get("herald", [])
        if heard != list(range(len(heard))):
            found.wrong.append(f"{id} heard from inside, out of order, twice or with gaps: {heard}")
        elif len(heard) != inside:
            found.waiting.append(f"{id} has heard {len(heard)} of {inside} from inside")
        outside = {sender: numbers for sender, numbers in senders.items() if sender != "herald"}
        found.add(judge_all(id, outside, sendings.to[what]))
    if alike:
        # One message to the topic's partition: all subscribers get it, or none. A broadcast is one to each partition.
        found.add(judge_alike(what, seen))
