"""What runs activities for a testing cluster on the memory grid: fakes, told by the test what to do, or real processes,
whose wrappers are tasks here, as nobody outside can reach such a grid.

Runs outlive the nodes that launch them, as they do elsewhere; they end with the cluster.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from tenure.jobs.folders import RunFolder
from tenure.jobs.local import LocalLauncher
from tenure.jobs.uplink import ClientUplink
from tenure.jobs.wrapper import live
from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import Mistake
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.jobtype import Registry
from tenure.testing.fake_runs import FakeRun, FakeRuns

__all__ = ["MemoryActivities", "open_activities"]


class _AnyKind(Mapping[str, Launcher]):
    """The same launcher for all kinds."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def __getitem__(self, kind: str) -> Launcher:
        return self._launcher

    def __iter__(self) -> Iterator[str]:
        return iter(("process",))

    def __len__(self) -> int:
        return 1


class MemoryActivities:
    """The launchers of all nodes of one cluster."""

    def __init__(self, cluster: MemoryCluster, now_ms: Callable[[], int], nursery: trio.Nursery) -> None:
        self._cluster, self._now_ms, self._nursery = cluster, now_ms, nursery
        self._uplink = ClientUplink()
        self._is_connecting = False
        self.fakes: FakeRuns | None = None
        self.launchers: Mapping[str, Launcher] = {}

    def use_fakes(self) -> None:
        """All kinds are fakes."""
        self.fakes = FakeRuns(self._report, self._nursery)
        self.launchers = _AnyKind(self.fakes)

    def use_processes(self, state: Path) -> None:
        """Real ones."""
        launcher = LocalLauncher({}, state=state, start=self._start_wrapper)
        self.launchers = _AnyKind(launcher)

    async def launched(self) -> FakeRun:
        """The next run that is at work."""
        if self.fakes is None:
            raise Mistake("this cluster runs real processes: look at its jobs with `describe`")
        return await self.fakes.launched()

    async def _report(self, job: str, report: Any) -> str:
        self._connect()
        return await self._uplink.report(job, report)

    def _start_wrapper(self, folder: RunFolder) -> None:
        trio.from_thread.run_sync(self._start, folder)  # launchers work in threads

    def _start(self, folder: RunFolder) -> None:
        self._connect()
        self._nursery.start_soon(self._live, folder)

    async def _live(self, folder: RunFolder) -> None:
        with suppress(Exception):  # as of a process: it is in the folder, and the attempt's error
            await live(folder, self._open_uplink)

    @asynccontextmanager
    async def _open_uplink(self, cluster: dict[str, Any]) -> AsyncIterator[ClientUplink]:
        yield self._uplink

    def _connect(self) -> None:
        # When the first one is launched: most tests have no activities.
        if not self._is_connecting:
            self._is_connecting = True
            self._nursery.start_soon(self._stay_connected)

    async def _stay_connected(self) -> None:
        grid = self._cluster.connect()
        client: GridClient
        async with open_client(grid, registry=Registry(), now_ms=self._now_ms) as client:
            self._uplink.client = client
            self._uplink.connected.set()
            await trio.sleep_forever()


@asynccontextmanager
async def open_activities(
    cluster: MemoryCluster, now_ms: Callable[[], int], *, fake: bool
) -> AsyncIterator[MemoryActivities]:
    """Fakes or processes for as long as this is open; none is left behind."""
    async with trio.open_nursery() as nursery:
        activities = MemoryActivities(cluster, now_ms, nursery)
        if fake:
            activities.use_fakes()
            yield activities
        else:
            with tempfile.TemporaryDirectory(prefix="tenure-testing-", ignore_cleanup_errors=True) as state:
                activities.use_processes(Path(state))
                yield activities
                nursery.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
