"""A testing cluster of processes: nodes are `tenure node`, members are JVMs. All end with it, or with its process."""

import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import trio

from tenure.application import Source, load_application
from tenure.connect import parse_cluster, wall_clock_ms
from tenure.members import Member, MemberSettings, free_port, half_of_the_processors, settle, start_member
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import Mistake, TryAgain
from tenure.scheduler.grid.hazelcast import HazelcastGrid
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import ClientSettings, NodeSettings
from tenure.testing.backend import Backend, Plan, known_to_clients, pick
from tenure.testing.node_process import NodeProcess

__all__ = ["open_hazelcast"]


class MemberNotRemoved(TryAgain):
    """A member was to leave in peace, and did not."""


class HazelcastBackend(Backend):
    """Real processes, real faults."""

    node_options: tuple[str, ...] = ()
    """Further arguments of every `tenure node`."""
    member_settings: Mapping[str, Any] = {}
    """Settings of every member that a plan does not name."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        if plan.start is not None or plan.faults is not None:
            raise Mistake('start and faults are for grid="memory": real clocks and members are what they are')
        self.now_ms = wall_clock_ms
        self._plan, self._folder = plan, folder
        self._app = _app_name(plan.app)
        self._registry = load_application(self._app, apart=True)
        self._nodes: dict[int, NodeProcess] = {}
        self._nodes_ever = 0
        self._members: dict[int, Member] = {}
        self._members_ever = 0
        self._settings = MemberSettings(
            cluster_name=f"testing-{secrets.token_hex(4)}",
            member_count=plan.members,
            backups=plan.backups,
            partition_count=plan.partitions or MemberSettings.partition_count,
            heap_max_mib=plan.heap_mib or MemberSettings.heap_max_mib,
            processors=half_of_the_processors(),
            **self.member_settings,
        )

    @property
    def address(self) -> str:
        """The cluster, as `--cluster` takes it."""
        members = ",".join(f"{host}:{port}" for host, port in self._addresses())
        return f"{self._settings.cluster_name}@{members}"

    @asynccontextmanager
    async def open_client(
        self, registry: Registry | None, settings: ClientSettings | None
    ) -> AsyncIterator[GridClient]:
        registry = known_to_clients(None, self._registry) if registry is None else registry
        async with (
            HazelcastGrid.connect(parse_cluster(self.address)) as grid,
            open_client(grid, settings=settings, registry=registry, now_ms=self.now_ms) as client,
        ):
            yield client

    # -- nodes ------------------------------------------------------------------------------------

    async def nodes(self) -> list[int]:
        self._tidy()
        return sorted(self._nodes)

    async def add_node(self, app: Source = None, python: str | PathLike[str] | None = None) -> int:
        number, node = self._start_node(self._app if app is None else _app_name(app), python)
        await node.ready()
        return number

    async def add_nodes(self, count: int) -> None:
        """The first ones, all at once."""
        started = [self._start_node(self._app)[1] for _ in range(count)]
        for node in started:
            await node.ready()

    def _start_node(self, app: str, python: str | PathLike[str] | None = None) -> tuple[int, NodeProcess]:
        number = self._nodes_ever
        self._nodes_ever += 1
        name = f"node-{number}"
        options = [part for pair in _changed(self._plan.settings) for part in ("--set", pair)]
        if len(self._members) > self._plan.members + 1:
            # A node refuses so many more than were meant to be, as a split could leave two majorities. These are
            # processes of one machine, and will be as many as the test likes.
            options.append("--allow-unsafe-members")
        node = NodeProcess(
            name, app, self.address, [*options, *self.node_options], self._folder / f"{name}.log", python
        )
        self._nodes[number] = node
        return number, node

    async def kill(self, node: int) -> None:
        self._node(node).kill()
        del self._nodes[node]
        await trio.lowlevel.checkpoint()

    async def pause(self, node: int) -> None:
        await trio.to_thread.run_sync(self._node(node).pause)

    async def unpause(self, node: int) -> None:
        self._node(node).unpause()
        await trio.lowlevel.checkpoint()

    async def drain(self, node: int) -> None:
        await self._node(node).drain()
        self._nodes.pop(node, None)

    def _node(self, number: int) -> NodeProcess:
        self._tidy()
        found = pick(self._nodes, number, "node")
        assert isinstance(found, NodeProcess)
        return found

    # -- members ----------------------------------------------------------------------------------

    async def members(self) -> list[int]:
        self._tidy()
        return sorted(self._members)

    async def add_member(self) -> int:
        number = self._members_ever
        self._members_ever += 1
        port = free_port(self._settings.host)
        joined = (*self._addresses(), (self._settings.host, port))
        log_file = self._folder / f"member-{number}.log"
        self._members[number] = await start_member(replace(self._settings, port=port, join=joined, log_file=log_file))
        return number

    async def kill_member(self, member: int) -> None:
        self._tidy()
        await trio.to_thread.run_sync(pick(self._members, member, "member").kill)
        self._members.pop(member, None)

    async def remove_member(self, member: int) -> None:
        self._tidy()
        leaving: Member = pick(self._members, member, "member")
        if not await leaving.stop():
            raise MemberNotRemoved(f"member {member} could not hand over its data in time, and was ended without")
        self._members.pop(member, None)

    async def settle_members(self) -> None:
        """Return when all partitions and backups are in place again."""
        self._tidy()
        await settle(list(self._members.values()))

    def _addresses(self) -> list[tuple[str, int]]:
        return [member.address for member in self._members.values()]

    # -- the end ----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        self._nodes = {number: node for number, node in self._nodes.items() if node.running}
        self._members = {number: member for number, member in self._members.items() if member.running}

    def end(self) -> None:
        """What is left ends at once: nodes first, as they would complain."""
        for node in self._nodes.values():
            node.kill()
        for member in self._members.values():
            member.kill()


def _app_name(app: Source) -> str:
    """What `tenure node` is told to run."""
    if isinstance(app, Registry) or app is None:
        raise Mistake('with grid="hazelcast" nodes are processes of their own: name a file or module as their app')
    if isinstance(app, ModuleType):
        return str(app.__file__) if app.__file__ else app.__name__
    return str(app)


def _changed(settings: NodeSettings) -> list[str]:
    """The settings that differ from the defaults, as NAME=VALUE."""
    usual = msgspec.structs.asdict(NodeSettings())
    return [f"{name}={value}" for name, value in msgspec.structs.asdict(settings).items() if value != usual[name]]


@asynccontextmanager
async def open_hazelcast(plan: Plan) -> AsyncIterator[HazelcastBackend]:
    """A running cluster of processes; what is left of it ends at once."""
    with tempfile.TemporaryDirectory(prefix="tenure-testing-") as folder:
        backend = HazelcastBackend(plan, Path(folder))
        try:
            for _ in range(plan.members):
                await backend.add_member()
            await backend.add_nodes(plan.nodes)
            yield backend
        finally:
            backend.end()
