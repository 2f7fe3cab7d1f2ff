"""Activities without processes: a launcher whose runs do what a test says, in virtual time too.

What a real run does around its work (asking to be admitted, heartbeats, deadlines) is done by the same code.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from tenure.jobs.attempt import Attempt
from tenure.scheduler.activities_port import Found, Outcome, Run, Untold
from tenure.scheduler.activities_wire import Report
from tenure.scheduler.errors import NotDone

__all__ = ["FakeRun", "FakeRuns"]

Send = Callable[[str, Report], Awaitable[str]]


class FakeRun:
    """One attempt, under a test's control."""

    def __init__(self, runs: "FakeRuns", run: Run, nonce: str) -> None:
        self.run, self._runs = run, runs
        self.working = trio.Event()
        """It was admitted, and is at work."""
        self.told_to_end = trio.Event()
        self.over = trio.Event()
        """Nothing is left of it."""
        self.said: list[dict[str, Any]] = []
        """What it was told (see `tenure.jobs.reporting`)."""
        self.cut_off = False
        """It can't reach its job."""
        self.is_stubborn = False
        """It ends by force only."""
        self.outcome: Outcome | None = None
        self.untold = Untold()
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._end = Outcome(status="failed", error="Killed: it was ended by force")
        self._on_line: Callable[[dict[str, Any]], None] = lambda line: None
        self._said_something = trio.Event()
        self._asked = 0
        self._attempt = Attempt(run, self, self, place=runs.place, pid=runs.next_pid(), nonce=nonce, keep=self._keep)

    # -- what a test makes it do ------------------------------------------------------------------

    def tell(self, **line: Any) -> None:
        """Say something, as `Reporter` would: progress=[1, 2], metrics={…}, stage={…}, beat=True."""
        self._on_line(line)

    def succeed(self, result: Any = None) -> None:
        """The work is done."""
        self._finish(Outcome(status="succeeded", result=result))

    def fail(self, error: str, *, final: bool = False) -> None:
        """The work has failed."""
        self._finish(Outcome(status="failed", error=error, final=final))

    def die(self) -> None:
        """All of it ends at once, without a word."""
        self._scope.cancel()

    def end(self) -> None:
        """As if somebody had asked its wrapper to end."""
        self._attempt.interrupt()

    async def do(self, act: Callable[[], None]) -> None:
        """Have something done in the thread where it lives."""
        await trio.lowlevel.checkpoint()
        act()

    async def note(self, name: str, value: Any) -> str:
        """As `Reporter.note`: returns the job's verdict."""
        return await self._ask({"note": {name: value}})

    async def confirm(self) -> str:
        """As `Reporter.confirm`: returns the job's verdict."""
        return await self._ask({"confirm": True})

    async def _ask(self, line: dict[str, Any]) -> str:
        self._asked += 1
        asked = self._asked
        self._on_line({**line, "ask": asked})
        while True:
            self._said_something = trio.Event()
            if self.over.is_set():
                return "fenced"  # nobody is left who would answer
            for said in self.said:
                if said.get("answer") == asked:
                    return str(said["verdict"])
            await self._said_something.wait()

    def _finish(self, outcome: Outcome) -> None:
        if not self._ended.is_set():
            self._end = outcome
            self._ended.set()

    # -- a run's life -----------------------------------------------------------------------------

    async def live(self) -> None:
        """From its launch to its end."""
        try:
            with self._scope:
                await self._attempt.live()
        finally:
            self._runs.stopped(self)
            self.over.set()
            self._said_something.set()

    def ask_to_end(self) -> None:
        """As the launcher does."""
        self._attempt.cancel()

    def _keep(self, outcome: Outcome, untold: Untold) -> None:
        self.outcome, self.untold = outcome, untold

    async def start(self, on_line: Callable[[dict[str, Any]], None]) -> None:
        self._on_line = on_line
        self._runs.started(self)
        self.working.set()

    async def wait(self) -> Outcome:
        await self._ended.wait()
        return self._end

    def say(self, line: dict[str, Any]) -> None:
        self.said.append(line)
        self._said_something.set()
        if line.get("cancel"):
            self.told_to_end.set()

    def terminate(self) -> None:
        if not self.is_stubborn:
            self._finish(Outcome(status="failed", error="Terminated: SIGTERM"))

    async def kill(self) -> None:
        self._finish(self._end)
        self._runs.stopped(self)

    async def report(self, job: str, report: Report) -> str:
        if self.cut_off:
            await trio.sleep(1)
            raise NotDone("cut off")
        return await self._runs.send(job, report)


class FakeRuns:
    """A launcher, for as many kinds and nodes as you like: one machine."""

    def __init__(self, send: Send, nursery: trio.Nursery, *, place: str = "testing") -> None:
        """`send` takes a report to its job and returns the verdict. Runs live in `nursery`, whatever becomes of
        the nodes."""
        self.place, self.send = place, send
        self.runs: dict[str, FakeRun] = {}
        """By tag, in the order of their launches."""
        self.launches = 0
        self.working: list[FakeRun] = []
        self._nursery = nursery
        self._pid = 0
        self._launched = trio.Event()
        self._seen = 0

    async def launched(self) -> FakeRun:
        """The next run that was launched and is at work; waits for it."""
        while True:
            self._launched = trio.Event()
            for n, run in enumerate(list(self.runs.values())[self._seen :], self._seen + 1):
                if run.working.is_set():
                    self._seen = n
                    return run
                if not run.over.is_set():
                    break
            await self._launched.wait()

    def next_pid(self) -> int:
        """A number for a process."""
        self._pid += 1
        return self._pid

    def started(self, run: FakeRun) -> None:
        """It is at work."""
        self.working.append(run)
        self._launched.set()

    def stopped(self, run: FakeRun) -> None:
        """Nothing of its work is left."""
        if run in self.working:
            self.working.remove(run)
        self._launched.set()

    # -- a launcher -------------------------------------------------------------------------------

    async def find(self, tag: str) -> Found:
        """See `Launcher`."""
        await trio.lowlevel.checkpoint()
        run = self.runs.get(tag)
        if run is None:
            return Found(state="absent")
        if not run.over.is_set() and run.outcome is None:
            return Found(state="running", pid=run._attempt.pid)
        return Found(state="over", outcome=run.outcome, untold=run.untold)

    async def launch(self, run: Run) -> None:
        """See `Launcher`."""
        self.launches += 1
        await trio.lowlevel.checkpoint()
        if run.tag not in self.runs:
            fake = self.runs[run.tag] = FakeRun(self, run, f"{self.place}/{self.launches}")
            self._nursery.start_soon(fake.live)

    async def cancel(self, tag: str, *, force: bool) -> None:
        """See `Launcher`."""
        await trio.lowlevel.checkpoint()
        run = self.runs.get(tag)
        if run is None or run.over.is_set():
            return
        if force:
            run.die()
            await run.over.wait()
        else:
            run.ask_to_end()
