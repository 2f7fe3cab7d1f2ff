"""The testing cluster for plain tests: it lives in a thread of its own.


Made from cluster.py by tests/api/shells.py: edit that one.
"""

from collections.abc import Callable
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any

from tenure.application import Source
from tenure.clients import client as async_clients
from tenure.clients.homes import SyncHome
from tenure.clients.sync_client import SyncClient
from tenure.scheduler.grid.memory.faults import Faults
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import ClientSettings, NodeSettings
from tenure.testing.backend import ActivitiesName, Backend, GridName, Plan, calling_file
from tenure.testing.fake_runs import FakeRun

__all__ = ["SyncCluster"]


class SyncCluster:
    """A Tenure cluster for tests, whose nodes and members can be killed, paused and added:

        with tenure.testing.SyncCluster(nodes=2) as cluster, cluster.client() as client:
            ...

    Nodes and members are named by numbers that begin at 0 and are never used again.
    """

    _made = 0
    """So many in this process, ever: the pytest plugin asks whether a test had one."""

    def __init__(
        self,
        nodes: int = 2,
        members: int = 2,
        grid: GridName = "memory",
        app: Source = None,
        *,
        partitions: int | None = None,
        backups: int = 1,
        settings: NodeSettings | None = None,
        seed: int = 0,
        start: datetime | None = None,
        faults: Faults | None = None,
        activities: ActivitiesName | None = None,
    ) -> None:
        """`app` is what its nodes run: a file (`app.py`), a module, a registry, or what this process has registered
        (with grid="hazelcast", where nodes are processes of their own: the file that calls this). On the memory
        grid, `seed` decides what chance decides, `start` is what the clocks show at first (now, by default; they
        go on with trio's clock), `faults` make the grid as bad as a real one, and `activities` are fakes that do what
        the test says (see `launched`) unless they are to be "real": processes, which know nothing of virtual time.
        """
        SyncCluster._made += 1
        if app is None and grid == "hazelcast":
            app = calling_file()
        plan = Plan(
            nodes=nodes,
            members=members,
            grid=grid,
            app=app,
            partitions=partitions,
            backups=backups,
            settings=settings or NodeSettings(),
            seed=seed,
            start=start,
            faults=faults,
            activities=activities,
        )
        self._home: SyncHome[Backend] = SyncHome(plan.opening())

    def __enter__(self) -> "SyncCluster":
        self._home.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.close(kind, raised, trace)

    def client(self, *, registry: Registry | None = None, settings: ClientSettings | None = None) -> SyncClient:
        """A client, with a connection of its own; to be opened with `with`. It knows the nodes' job types, unless
        it gets a `registry`."""
        return SyncClient._in(self._home.inside(lambda backend: backend.open_client(registry, settings)))

    def async_client(
        self, *, registry: Registry | None = None, settings: ClientSettings | None = None
    ) -> async_clients.Client:
        """The same for async code, of a blocking cluster too (then for asyncio only)."""
        home = self._home.inside_async(lambda backend: backend.open_client(registry, settings))
        return async_clients.Client._in(home)

    def address(self) -> str:
        """What `--cluster` and `TENURE_CLUSTER` take to reach it, with grid="hazelcast"."""
        return self._home.run(lambda backend: backend.tell_address())

    def now(self) -> datetime:
        """What the clocks of its nodes show."""
        return self._home.run(lambda backend: backend.now())

    def advance(self, seconds: float) -> None:
        """Let the clocks of its nodes go on by so much, stopping at every timer and retry that comes due on the way."""
        self._home.run(lambda backend: backend.advance(seconds))

    def launched(self) -> "LaunchedRun":
        """The next activity that is launched and at work (a fake): waits for it."""
        run = self._home.run(lambda backend: backend.launched())
        return LaunchedRun(self._home, run)

    # -- nodes ------------------------------------------------------------------------------------

    def nodes(self) -> list[int]:
        """The nodes that live, paused ones too."""
        return self._home.run(lambda backend: backend.nodes())

    def add_node(self, app: Source = None, *, python: str | PathLike[str] | None = None) -> int:
        """A node more, of another application if one is given; returns its number when it serves its share. With
        grid="hazelcast", `python` may be the interpreter of another environment, with another version of Tenure."""
        return self._home.run(lambda backend: backend.add_node(app, python))

    def kill(self, node: int) -> None:
        """End a node at once, as kill -9 does: nothing is closed."""
        self._home.run(lambda backend: backend.kill(node))

    def pause(self, node: int) -> None:
        """Freeze a node, as SIGSTOP does: others take over, and it knows nothing of that when it wakes up."""
        self._home.run(lambda backend: backend.pause(node))

    def unpause(self, node: int) -> None:
        """Let a paused node go on."""
        self._home.run(lambda backend: backend.unpause(node))

    def drain(self, node: int) -> None:
        """Let a node hand over its partitions; returns when it has ended."""
        self._home.run(lambda backend: backend.drain(node))

    # -- members ----------------------------------------------------------------------------------

    def members(self) -> list[int]:
        """The members that live."""
        return self._home.run(lambda backend: backend.members())

    def add_member(self) -> int:
        """A member more; returns its number when it has joined."""
        return self._home.run(lambda backend: backend.add_member())

    def kill_member(self, member: int) -> None:
        """End a member at once, as kill -9 does, with all that it holds."""
        self._home.run(lambda backend: backend.kill_member(member))

    def remove_member(self, member: int) -> None:
        """Let a member hand over its data to the others; returns when it has ended."""
        self._home.run(lambda backend: backend.remove_member(member))


class LaunchedRun:
    """An attempt at an activity that is not done by any process: the test says what becomes of it."""

    def __init__(self, home: SyncHome[Backend], fake: FakeRun) -> None:
        self._home, self._fake = home, fake
        run = fake.run
        self.job, self.activity, self.attempt, self.kind = run.job, run.activity, run.attempt, run.kind
        self.work: Any = run.work
        """The specification that the job gave."""
        self.notes = run.notes
        """What earlier attempts left for this one."""

    def succeed(self, result: Any = None) -> None:
        """The work is done; returns when the job knows."""
        self._end(lambda: self._fake.succeed(result))

    def fail(self, error: str, *, final: bool = False) -> None:
        """The work has failed (`final`: it is no use to try again); returns when the job knows."""
        self._end(lambda: self._fake.fail(error, final=final))

    def die(self) -> None:
        """Its processes end at once and without a word, as by kill -9. The job finds out."""
        self._end(self._fake.die)

    def report(self, **line: Any) -> None:
        """Say how it goes, as `Reporter` does: progress=[1, 2], metrics={"rows": 3}, stage={"name": "parse"}."""
        self._act(lambda: self._fake.tell(**line))

    def note(self, name: str, value: Any) -> None:
        """Leave something for the next attempt, as `Reporter.note`."""
        self._home.run(lambda backend: self._fake.note(name, value))

    def told_to_end(self) -> None:
        """Wait until it is told to end (by `cancel`, for one). It ends at once, unless it `ignores_cancel`."""
        self._home.run(lambda backend: self._fake.told_to_end.wait())

    def over(self) -> None:
        """Wait until nothing is left of it."""
        self._home.run(lambda backend: self._fake.over.wait())

    def ignores_cancel(self) -> None:
        """From now on it ends by force only, after its `cancel_deadline_s`."""
        self._fake.is_stubborn = True

    def _end(self, act: Callable[[], None]) -> None:
        self._act(act)
        self.over()

    def _act(self, act: Callable[[], None]) -> None:
        self._home.run(lambda backend: self._fake.do(act))
