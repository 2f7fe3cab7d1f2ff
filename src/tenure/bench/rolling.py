"""A rolling upgrade of three nodes under load, from an older version to this one: how long jobs stand still.

The older version is the commit that `tests/upgrade/FROM` names, taken from the history; where there is none, both are
this version, and `rolling_mixed` says so.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import tenure
from tenure.bench.clusters import APPLICATION
from tenure.bench.older import NoHistory, interpreter_of, oldest
from tenure.bench.pauses import measure_pause
from tenure.clients.upgrading import upgrade
from tenure.scheduler.nodes_seen import said_nodes
from tenure.testing.hazelcast_cluster import HazelcastBackend

__all__ = ["measure"]

NODES, MEMBERS = 3, 2
MESSAGES_PER_S = 2_000


async def measure() -> dict[str, Any]:
    """The part of `tenure bench operations`."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        rolling = _Rolling(Path(folder))
        try:
            figures = await measure_pause(
                "rolling", MEMBERS, rolling.upgrade, begin=rolling.begin, per_second=MESSAGES_PER_S
            )
        finally:
            rolling.end()
    return figures | {"rolling_nodes": rolling.replaced, "rolling_mixed": rolling.older is not None}


class _Steps:
    """Says on standard error when each step began: the figure `rolling_worst_after_s` is of the same clock."""

    def __init__(self) -> None:
        self._began_s, self._last = time.perf_counter(), ""

    def tell(self, step: str) -> None:
        if step != self._last:
            self._last = step
            print(f"{time.perf_counter() - self._began_s:6.2f} s  {step}", file=sys.stderr, flush=True)  # noqa: T201


class _Rolling:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replaced = 0
        self.older: Path | None = None
        self._pids: set[int] = set()

    async def begin(self, cluster: HazelcastBackend) -> None:
        """Three nodes of the older version."""
        try:
            self.older = interpreter_of(oldest(), self.folder / "older")
        except NoHistory as error:
            print(f"both versions are this one: {error}", file=sys.stderr)  # noqa: T201
        for _ in range(NODES):
            await cluster.add_node(python=self.older)

    async def upgrade(self, cluster: HazelcastBackend, random: Random) -> None:
        """What `tenure upgrade` does."""
        path = f"PYTHONPATH={Path(tenure.__file__).parents[1]}"
        command = ["env", path, sys.executable, "-m", "tenure.cli", "node", str(APPLICATION), "--name", "{name}"]
        async with cluster.open_client(None, None) as client:
            try:
                done = await upgrade(client, command, watch_s=1.0, log_folder=self.folder, on_step=_Steps().tell)
                self.replaced = len(done)
            finally:
                self._pids = {info.pid for info in await said_nodes(client.grid)}

    def end(self) -> None:
        """Nodes that an upgrade has started outlive it, and their members."""
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
