"""One partition, and machines on which its activities run (fakes, in virtual time)."""

from typing import Any

import msgspec
import trio

from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.activities_wire import Activity, ActivityEvent, Report
from tenure.scheduler.context import Context
from tenure.scheduler.errors import NotDone
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import reply_key, slot_key
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Answer, Batch, Kind, decode, encode
from tenure.testing.fake_runs import FakeRuns
from tests.pure.core.bench import Bench, Opened, P

JOB = "importer"
SENDER = b"\x01runs..."


class Importer(Job):
    """Starts and cancels what it is told, and keeps what it hears of it."""

    heard: list[dict[str, Any]] = []
    stopped: bool = False

    def on_message(self, ctx: Context, message: dict[str, Any]) -> dict[str, str]:
        if "start" in message:
            retry = Retry(attempts_max=message.get("attempts_max", 3), first_delay_s=message.get("delay_s", 1.0))
            options = {name: message[name] for name in message.keys() & OPTIONS}
            ctx.start_activity(message["start"], message.get("work", {}), retry=retry, **options)
        if "cancel" in message:
            ctx.cancel_activity(message["cancel"])
        if "finish" in message:
            ctx.finish()
        if "raise" in message:
            raise ValueError(message["raise"])
        return ctx.activities

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        self.heard.append(
            {"name": event.name, "status": event.status, "attempt": event.attempt, "result": event.result}
        )
        if event.error:
            self.heard[-1]["error"] = event.error

    def on_stop(self, ctx: Context) -> None:
        self.stopped = True


class Deaf(Job):
    """Doesn't want to know."""

    def on_message(self, ctx: Context, message: dict[str, Any]) -> None:
        ctx.start_activity(message["start"], {})


OPTIONS = {
    "kind",
    "heartbeat_s",
    "cancel_deadline_s",
    "orphan_after_s",
    "timeout_s",
    "stall_after_s",
    "tells_progress",
}
TYPES = (JobType("importer", Importer), JobType("deaf", Deaf))


class Machines:
    """A bench, the machines of its nodes, and a way for runs to report."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.one = FakeRuns(self.send, bench.nursery, place="one")
        self.two = FakeRuns(self.send, bench.nursery, place="two")
        self._lane, self._sent, self._asked = trio.Lock(), 0, 0

    async def send(self, job: str, report: Report) -> str:
        """A report, by the client's lane."""
        self._asked += 1
        n, grid = self._asked, self.bench.grid()
        async with self._lane:
            slot = encode(Batch([self.bench.message(job, report, kind=Kind.REPORT, reply=n)]))
            await grid.set(Map.INBOX, P, slot_key(SENDER, self.bench.lane, self._sent), slot)
            self._sent += 1
        pause_s = 0.01
        with trio.move_on_after(10):
            while (stored := await grid.get(Map.REPLIES, P, reply_key(SENDER, n))) is None:
                await trio.sleep(pause_s)
                pause_s = min(1.0, 1.5 * pause_s)
            (answer,) = decode(stored, list[Answer])
            assert answer.ok, answer
            return str(msgspec.msgpack.decode(answer.body)["verdict"])
        raise NotDone("nobody answered")

    async def open(self, machine: FakeRuns | None = None, *types: JobType, **settings: Any) -> Opened:
        """A node on a machine takes over the partition, by force if need be."""
        launcher: Launcher = machine or self.one

        def make(host: Host, journal: Journal) -> Tenure:
            host.launchers = {"process": launcher}
            return Tenure(host, journal)

        return await self.bench.open(*(types or TYPES), make=make, **settings)

    async def begin(self, machine: FakeRuns | None = None, type: str = "importer") -> Opened:
        """A node, and the job."""
        opened = await self.open(machine)
        await self.bench.define(JOB, type)
        return opened

    async def ask(self, **message: Any) -> Any:
        """A message to the job, and what its handler returns."""
        answer: Answer = await self.bench.ask(JOB, message)
        assert answer.ok, answer
        return msgspec.msgpack.decode(answer.body)

    async def heard(self) -> list[dict[str, Any]]:
        """What the job's handler was told."""
        found: list[dict[str, Any]] = (await self.bench.state_of(JOB))["heard"]
        return found

    async def described(self, job: str = JOB) -> list[dict[str, Any]]:
        """The activities, as `describe` shows them."""
        answer = await self.bench.command("describe", job)
        assert answer.ok, answer
        found: list[dict[str, Any]] = msgspec.msgpack.decode(answer.body)["activities"]
        return found

    def working(self) -> int:
        """Runs at work on all machines."""
        return len(self.one.working) + len(self.two.working)


def committed(opened: Opened, job: str = JOB) -> tuple[Activity, ...]:
    """What is journaled of a job's activities."""
    return opened.state.jobs[job].activities
