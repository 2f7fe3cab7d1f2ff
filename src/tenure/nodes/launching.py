"""What a node runs activities with: processes on its machine, which outlive it, and report to its cluster."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from tenure.connect import reach
from tenure.jobs.kinds import KINDS
from tenure.jobs.local import LocalLauncher
from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.grid.port import Grid

__all__ = ["open_launchers"]


@asynccontextmanager
async def open_launchers(
    cluster: str, grid: Grid | None = None, *, ends_with_it: bool
) -> AsyncIterator[Mapping[str, Launcher]]:
    """A launcher for each kind. `cluster` names the cluster as it was; the `grid` knows the members of now.
    `ends_with_it`: the cluster is gone when this is left, and so are its runs."""
    launcher = LocalLauncher(reach(cluster), reach=lambda: reach((grid.address if grid else "") or cluster))
    try:
        yield dict.fromkeys(KINDS, launcher)
    finally:
        if ends_with_it:
            with trio.CancelScope(shield=True):
                await launcher.end_all()
