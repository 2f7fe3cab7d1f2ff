"""What `tenure node` does from its start to its end.

signals ─┐
         ├─► [embedded member] ─► connect ─► check members ─► join ─► run, guarded ─► drain ─► end
another signal: quit at once
"""

import gc
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog
import trio

from tenure.about import tenure_version
from tenure.connect import exported, parse_cluster, wall_clock_ms
from tenure.jobs.spawning import SPAWNED_BY
from tenure.listeners import listening
from tenure.members import Progress, Standard, Verdict, check_members
from tenure.members.health import keep_health_file
from tenure.nodes.application import Application
from tenure.nodes.embedded import open_embedded
from tenure.nodes.errors import NotDrained, UnsafeMembers
from tenure.nodes.footprint import Footprint
from tenure.nodes.guard import guard, join_cluster
from tenure.nodes.launching import open_launchers
from tenure.nodes.memory import Memory, nodes_memory
from tenure.nodes.neighbours import Neighbours
from tenure.nodes.warden import Beside, fork_warden
from tenure.nodes.watchdog import Watchdog, look_at_main
from tenure.nodes.whereabouts import announced, embedded_clusters
from tenure.nodes.word import Word
from tenure.scheduler.activities_port import Launcher
from tenure.scheduler.assignment import assign
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.hazelcast.ownership import is_within
from tenure.scheduler.grid.port import Grid, OwnershipEvent
from tenure.scheduler.host import Host
from tenure.scheduler.node import Listening, Node
from tenure.scheduler.settings import NodeSettings
from tenure.signals import told_to_stop

__all__ = ["NodeOptions", "Ready", "run_node", "watched"]

QUIT_EXIT_CODE = 1
COLLECT_AFTER = (2_000, 50, 1_000)
PARTITIONS_WITHIN_S = 5.0
WARNED_FROM_MEMBERS = 3
"""With fewer, a cluster is one for development: what it lacks is known, and would be said at each start."""
READY_POLL_S = 0.02
WELL_S = 10.0
"""A node that could not say for so long that it is there is not well."""
READY_AFTER_S_MAX = 15.0
"""A node whose partitions are still held by another is ready all the same."""


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """How a node is run; what it does with jobs is in `settings`."""

    cluster: str | None = None
    """`NAME@host:port,…`. None: an embedded member."""

    name: str = ""
    prefer_network: str | None = None
    allow_unsafe_members: bool = False

    begin_anew: bool = False
    """Go on with an empty cluster where everything was lost, or with one that has taken the place of the one before."""

    state: Path | None = None
    """The folder of the notes which cluster was here before; by default in the user's state folder."""

    connect_timeout_s: float = 30.0
    gone_after_s: float = 60.0
    """How long no member may answer before the node gives up."""

    drain_deadline_s: float = 30.0
    """How long handing over may take. (How long running turns may go on is `settings.drain_deadline_s`.)"""

    listen: bool = True
    """False: no events, everything is found by sweeps. For tests of just that."""

    health_file: Path | None = None
    """Touched as long as the grid takes the node's heartbeats."""

    settings: NodeSettings = field(default_factory=NodeSettings)


@dataclass(frozen=True)
class Ready:
    """What a node says when it runs jobs."""

    node: str
    pid: int
    cluster: str
    formation: str
    partitions: int
    start_s: float


async def run_node(
    options: NodeOptions,
    application: Application,
    on_ready: Callable[[Ready], None],
    *,
    progress: Progress | None = None,
    beside: Beside | None = None,
) -> None:
    """Run until a signal, then drain. Returns when all was handed over; raises what it failed of. `beside` is what this
    process has in common with its warden, if there is one (see `watched`)."""
    began_s = time.monotonic()
    stop, serving = trio.Event(), trio.Event()
    hung_after_s, memory_max_mib = _patience(options)
    watchdog = Watchdog(
        hung_after_s,
        options.drain_deadline_s,
        say=_say_of_hangs,
        look=look_at_main,
        footprint=Footprint(memory_max_mib),
        beside=beside,
    )
    async with trio.open_nursery() as signals:
        await signals.start(_heed_signals, stop, watchdog)
        with trio.CancelScope() as whole:
            signals.start_soon(_give_up_starting, stop, serving, whole)
            async with (
                _cluster(options, progress) as address,
                _connect(options, address) as grid,
                open_launchers(address, grid, ends_with_it=options.cluster is None) as launchers,
            ):
                await _check_members(grid, options)
                cluster, note = await _join(grid, options)
                node = _node(grid, cluster, options, application, launchers)
                if beside is not None:
                    node.host.board = beside.board
                    beside.named(node.host.node)
                node.host.formats.declare(cluster.format)
                watchdog.node = node.host.node
                watchdog.is_alone = node.host.threads.are_idle
                watchdog.leave_word = Word(_reached(options, address), node.host.node)
                async with trio.open_nursery() as nursery:
                    watch = partial(
                        guard,
                        grid,
                        cluster,
                        formats=node.host.formats,
                        gone_after_s=options.gone_after_s,
                        on_another=note,
                    )
                    nursery.start_soon(watch)
                    nursery.start_soon(_harmlessly, node, "watching the members", partial(_warn_of_members, grid))
                    ended = trio.Event()
                    await nursery.start(_serve, node, ended)
                    serving.set()  # from here on it has something to hand over
                    if await _settled(node, stop):
                        _calm_the_collector()
                        start_s = round(time.monotonic() - began_s, 3)
                        if options.health_file is not None:
                            keep = partial(keep_health_file, options.health_file, partial(_is_well, node))
                            nursery.start_soon(_harmlessly, node, "keeping the health file", keep)
                        owned = len(node.tenures)
                        on_ready(Ready(node.host.node, os.getpid(), address, cluster.formation, owned, start_s))
                        await _first_of(stop, node.told_to_leave)
                    await _drain(node, ended, options)
                    nursery.cancel_scope.cancel()
        signals.cancel_scope.cancel()


def _patience(options: NodeOptions) -> tuple[float, float | None]:
    """After how long, and from how much memory on, the node is ended. Not where it has a member of its own: nobody else
    could take over, and all data would end with it."""
    if options.cluster is None:
        return 0.0, 0.0
    return options.settings.hung_after_s, options.settings.memory_max_mib


def watched(options: NodeOptions) -> Beside:
    """Begin the warden of this process, which is to run such a node. To be called before any thread begins."""
    leave = None
    if options.cluster is not None:
        settings = _reached(options, options.cluster)
        leave = partial(Word, settings)
    hung_after_s, memory_max_mib = _patience(options)
    return fork_warden(hung_after_s, options.drain_deadline_s, memory_max_mib, leave, _say_of_hangs)


async def _join(grid: Grid, options: NodeOptions) -> tuple[Cluster, Callable[[Cluster], None]]:
    """The cluster, and how to note down what becomes of it."""
    memory = _memory(options)
    known = memory.recall() if memory is not None else None
    cluster, formed = await join_cluster(
        grid, known=known, begin_anew_if_lost=options.begin_anew, now_ms=wall_clock_ms()
    )
    if memory is None:
        _log().info("all data is in memory, in a member of this node's own: it is gone when this node ends")
    elif formed:
        if known:
            _log().warning("formed an empty cluster in the place of the one before", cluster=cluster.formation)
        else:
            _log().info("formed a new cluster: there was none", cluster=cluster.formation)

    def note(cluster: Cluster) -> None:
        if memory is not None:
            try:
                memory.note(cluster)
            except OSError as error:
                _log().warning(
                    f"which cluster this is can't be noted down ({error}): if all members and nodes are started anew, "
                    "nothing here knows that there was one",
                    next_step="Give the node a folder that it may write to, and that outlives it (--state).",
                )

    note(cluster)
    return cluster, note


def _memory(options: NodeOptions) -> Memory | None:
    """None: the cluster ends with this node, or with the `tenure dev` that has started it."""
    if options.cluster is None or options.cluster in embedded_clusters():
        return None
    settings = parse_cluster(options.cluster)
    return nodes_memory(settings.cluster_name, settings.addresses, options.state)


def _calm_the_collector() -> None:
    """Let Python look for cycles rarely: a full look stops the node for a tenth of a second and more.

    What is here by now stays. Of what comes, cycles are rare: states are bytes, records are not tracked.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


# -- getting there --------------------------------------------------------------------------------


@asynccontextmanager
async def _cluster(options: NodeOptions, progress: Progress | None) -> AsyncIterator[str]:
    if options.cluster is not None:
        with exported(options.cluster):
            yield options.cluster
        return
    if others := embedded_clusters():
        _log().warning(
            f"no cluster was named, and this node starts one of its own, beside {', '.join(others)}",
            next_step="To join that one instead, name it: --cluster, or TENURE_CLUSTER.",
        )
    async with open_embedded(progress=progress) as address:
        with announced(address), exported(address):
            yield address


def _connect(options: NodeOptions, address: str) -> AbstractAsyncContextManager[HazelcastGrid]:
    return HazelcastGrid.connect(_reached(options, address))


def _reached(options: NodeOptions, address: str) -> HazelcastSettings:
    return replace(
        parse_cluster(address),
        prefer_network=options.prefer_network,
        connect_timeout_s=options.connect_timeout_s,
    )


async def _check_members(grid: HazelcastGrid, options: NodeOptions) -> None:
    bad = []
    with trio.move_on_after(PARTITIONS_WITHIN_S):
        # Partitions may be without a member for a moment; nothing else gets better by waiting.
        while (bad := _bad(grid)) and {verdict.about for verdict in bad} == {"partitions"}:  # noqa: ASYNC110  # no event tells
            await trio.sleep(READY_POLL_S)
    if len(grid.members_seen()) >= WARNED_FROM_MEMBERS:
        for verdict in _concerns(grid):
            if verdict.standard is Standard.WARNING:
                _log().warning(f"members: {verdict.about}: {verdict.finding}", next_step=verdict.next_step)
    if _prefers_in_vain(grid, options.prefer_network):
        _log().warning(
            f"no member has an address in {options.prefer_network}: paired with the nearest of all",
            next_step="`tenure doctor` shows the members' addresses.",
        )
    if not bad:
        return
    findings = "; ".join(f"{verdict.about}: {verdict.finding}" for verdict in bad)
    if not options.allow_unsafe_members:
        raise UnsafeMembers(
            f"The members lack what the promises rest on ({findings}). {bad[0].next_step} "
            "Or run with --allow-unsafe-members, and without the promises."
        )
    _log().error("running on unsafe members: promises may be broken", findings=findings)


def _prefers_in_vain(grid: HazelcastGrid, network: str | None) -> bool:
    preferring = HazelcastSettings(prefer_network=network)
    return network is not None and not any(is_within(member.host, preferring) for member in grid.ownership().members)


def _bad(grid: HazelcastGrid) -> list[Verdict]:
    return [verdict for verdict in check_members(grid) if verdict.standard is Standard.BAD]


def _concerns(grid: HazelcastGrid) -> list[Verdict]:
    """What is to be said of the members. (Partitions may be without one for a moment.)"""
    verdicts = check_members(grid)
    return [found for found in verdicts if found.standard is not Standard.GOOD and found.about != "partitions"]


async def _warn_of_members(grid: HazelcastGrid) -> None:
    """Say it when a member joins later that is not set up as the others are, or is one too many, or one too few."""
    changed = trio.Event()
    known = {(verdict.about, verdict.standard) for verdict in _concerns(grid)}

    def on_change(event: OwnershipEvent) -> None:
        if event is OwnershipEvent.MEMBERS:
            changed.set()

    async with grid.watch_ownership(on_change):
        while True:
            await changed.wait()
            changed = trio.Event()
            if not grid.ownership().members:
                continue  # cut off: nothing is known of them
            found = _concerns(grid)
            for verdict in found:
                if (verdict.about, verdict.standard) in known:
                    continue
                if verdict.standard is Standard.BAD:
                    _log().error(f"a change of members has made them unsafe: {verdict.about}: {verdict.finding}")
                else:
                    _log().warning(f"members have changed: {verdict.about}: {verdict.finding}")
            known = {(verdict.about, verdict.standard) for verdict in found}


async def _settled(node: Node, stop: trio.Event) -> bool:
    """Return when the node serves what it was assigned, or can be expected to take its time. False: it is to go."""
    with trio.move_on_after(READY_AFTER_S_MAX):
        # Nothing sets an event when a tenure opens.
        while not (_is_to_go(node, stop) or _serves_its_share(node)):  # noqa: ASYNC110
            await trio.sleep(READY_POLL_S)
    return not _is_to_go(node, stop)


def _is_to_go(node: Node, stop: trio.Event) -> bool:
    return stop.is_set() or node.told_to_leave.is_set()


def _serves_its_share(node: Node) -> bool:
    me = node.host.node
    mine = {partition for partition, owner in enumerate(node.assignment.owners) if owner == me}
    if mine:
        stand_still = node.lost.keys() | node.bulkhead.parked.keys() | node.host.unfit.keys()
        return mine <= node.tenures.keys() | stand_still
    # Nothing yet. It may stay so: others know more job types, or there are more nodes than partitions.
    wanted = assign(node.assignment.owners, node.grid.ownership(), node.nodes.values())
    return me in node.nodes and bool(node.assignment.version) and me not in wanted


def _node(
    grid: Grid, cluster: Cluster, options: NodeOptions, application: Application, launchers: Mapping[str, Launcher]
) -> Node:
    host = Host(
        grid,
        f"{options.name or socket.gethostname()}-{secrets.token_hex(4)}",
        application.registry,
        wall_clock_ms,
        cluster.formation,
        cluster.incarnation,
        options.settings,
        launchers=launchers,
        cpu_s=time.process_time,
        version=tenure_version(),
        spawned_by=os.environ.pop(SPAWNED_BY, ""),
    )
    hear: Listening = listening if options.listen else _deaf
    return Node(host, hear, name=options.name, pid=os.getpid(), neighbours=Neighbours())


# -- leaving --------------------------------------------------------------------------------------


async def _drain(node: Node, ended: trio.Event, options: NodeOptions) -> None:
    _log().info("draining", partitions=len(node.tenures), deadline_s=options.drain_deadline_s)
    with trio.move_on_after(options.drain_deadline_s) as waiting:
        await node.drain()
        await ended.wait()
    if waiting.cancelled_caught:
        raise NotDrained(
            f"{len(node.tenures)} partitions were not handed over within {options.drain_deadline_s:g} s; others take "
            "them over as after a crash, and lose nothing. Look for long turns, or allow more time (--drain-deadline)."
        )
    _log().info("drained" if options.cluster is not None else "drained; all jobs end with this node's own member")


async def _serve(node: Node, ended: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    await node.run(task_status=task_status)
    ended.set()


async def _heed_signals(stop: trio.Event, watchdog: Watchdog, *, task_status: trio.TaskStatus[None]) -> None:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received, watchdog.watching():
            nursery.start_soon(watchdog.beats)
            task_status.started()
            await _heed(received, stop)


async def _heed(received: AsyncIterator[int], stop: trio.Event) -> None:
    async for number, again in told_to_stop(received):
        if again:
            _log().warning(f"quitting at once ({signal.Signals(number).name}): others take over as after a crash")
            os._exit(QUIT_EXIT_CODE)  # its embedded member ends with it
        stop.set()


async def _harmlessly(node: Node, what: str, task: Callable[[], Awaitable[object]]) -> None:
    """What only looks on must not end what it looks at."""
    while True:
        try:
            await task()
        except Exception as error:  # noqa: BLE001
            await trio.sleep(node.bulkhead.met(what, error))


def _say_of_hangs(level: str, text: str, stack: str) -> None:
    getattr(_log(), level)(text, **({"stack": stack} if stack else {}))


async def _give_up_starting(stop: trio.Event, serving: trio.Event, whole: trio.CancelScope) -> None:
    """While nothing is served there is nothing to hand over either; later a signal drains, ready or not."""
    await stop.wait()
    if not serving.is_set():
        _log().info("stopped before it was ready")
        whole.cancel()


async def _is_well(node: Node) -> bool:
    await trio.lowlevel.checkpoint()
    return trio.current_time() - node.presence.beaten_s < WELL_S


async def _first_of(*events: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)


# -- small things ---------------------------------------------------------------------------------


@asynccontextmanager
async def _deaf(node: Node) -> AsyncIterator[None]:
    yield


def _log() -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("tenure")
    return logger
