"""The command line on clusters in memory: each command gets a new one, and runs in virtual time."""

import importlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import tenure
from tenure.application import Source
from tenure.cli import connection as cli_connection
from tenure.cli import main
from tenure.cli.app import COMMANDS
from tenure.cli.options import Connection
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.memory_cluster import open_memory

__all__ = ["Shell"]

_LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")
COMMAND_MODULES = [importlib.import_module(f"tenure.cli.{place.split(':')[0]}") for _, place, *_ in COMMANDS]
"""All of them, now: one that is first imported while a test replaces how commands connect would keep that for good."""
Before = Callable[[tenure.Client], Awaitable[Any]]


class Shell:
    """Runs commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.nodes, self.partitions = 1, 4
        self.app: Source = None
        self.before: Before | None = None
        """What is done on the cluster before the command."""
        self.after: Before | None = None
        """And after it, however it ends."""
        self.others: list[Registry] = []
        """What further nodes know."""
        self.silences = False
        """The members answer no more, when the command begins."""
        self.out = self.err = ""
        self._capsys, self._monkeypatch = capsys, monkeypatch
        for module in (cli_connection, *COMMAND_MODULES):
            if hasattr(module, "connected_grid"):
                monkeypatch.setattr(module, "connected_grid", self._connected_grid)
        in_real_time = trio.run

        def run(work: Any, *arguments: Any) -> Any:
            return in_real_time(partial(work, *arguments), clock=MockClock(autojump_threshold=0))

        async def at_once(work: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
            # A thread takes real time, while hours of the other kind go by.
            await trio.lowlevel.checkpoint()
            return work(*arguments)

        monkeypatch.setattr(trio, "run", run)
        monkeypatch.setattr(trio.to_thread, "run_sync", at_once)

    def __call__(self, *arguments: str, code: int = 0) -> list[Any]:
        """The JSON that it prints; what else there is to read is in `out` and `err`."""
        self._capsys.readouterr()
        ended = main(arguments)
        self.out, self.err = self._capsys.readouterr()
        assert ended == code, self.err
        # Its nodes live in this process, and log to where it prints.
        lines = [line for line in self.out.splitlines() if not _LOGGED.match(line)]
        return [json.loads(line) for line in lines] if "--json" in arguments else []

    @asynccontextmanager
    async def _connected_grid(self, connection: Connection) -> AsyncIterator[Grid]:
        plan = Plan(
            nodes=self.nodes,
            members=1,
            grid="memory",
            app=self.app,
            partitions=self.partitions,
            backups=0,
            settings=NodeSettings(),
            seed=0,
            start=None,
            faults=None,
        )
        async with open_memory(plan) as backend:
            for other in self.others:
                await backend.add_node(other)
            grid = backend.grid_cluster.connect()
            if self.before is not None:
                async with tenure.Client(grid=grid, registry=backend.registry) as client:
                    await self.before(client)
            if self.silences:
                self._monkeypatch.setattr(grid, "get", _never)
            try:
                yield grid
            finally:
                if self.after is not None:
                    async with tenure.Client(grid=grid, registry=backend.registry) as client:
                        await self.after(client)


async def _never(*_: Any, **__: Any) -> None:
    await trio.sleep_forever()
