"""A job that keeps the number of nodes where the load wants it: `import tenure.jobs.autoscaler` (or `from tenure.jobs
import Autoscaler`) in an application lets its nodes run it. Without it no node does: who may schedule it may run any
program.

    await client.schedule(Autoscaler, id="autoscaler", spawn=["tenure", "node", "/srv/app.py", "--name", "{name}"],
                          nodes_max=8)

    look ──► decide (pure) ──► start or cancel activities ──commit──► the state, and what was decided, together

As all jobs it survives its owner. The nodes that it has started are activities of it: each is started once, outlives
the node that the autoscaler happens to be on, is started again if it fails, and drains when it is cancelled.
"""

from copy import copy
from typing import Any, NamedTuple, get_type_hints

from msgspec import Struct, ValidationError, convert

from tenure.jobs.autoscaling import Decision, Marks, Memory, Seen, decide
from tenure.jobs.spawning import SPAWNED_BY, filled_in
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Job, Retry, job
from tenure.scheduler.quiet import CONTROLLERS

__all__ = ["Autoscaler", "Change"]

CHANGES_KEPT_MAX = 20
NAME = "{name}"
NODES = "{nodes}"
STARTING = ("spawn", "command", "cwd", "env")


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that an autoscaler has done, or that has become of it."""

    at_ms: int
    nodes: int
    """So many there were to be."""
    why: str


class _Own(NamedTuple):
    """The nodes that it has started, by name."""

    there: list[str]
    coming: list[str]
    leaving: list[str]
    """They were told to go, and may be seen for a while yet."""


@job("autoscaler", misfire="run_once", application=CONTROLLERS)
class Autoscaler(Job, kw_only=True):
    """Looks at the load of all nodes, and has more or fewer of them. Give it `spawn` or `command`.

    It ends only nodes that it has started. Removed, it ends all of these. While all nodes are shut down it changes
    nothing; with the next node it goes on.

    A message `{"nodes_max": 12}` changes a mark, or several; or, for nodes that are started from then on, `spawn`,
    `command`, `cwd` and `env`. What makes no sense is answered `{"refused": …}`, and changes nothing.
    """

    spawn: list[str] = []
    """A command that starts a node, on the machine of whatever node this job is on. It has `{name}` for the name of the
    node, and finds the cluster in TENURE_CLUSTER."""
    command: list[str] = []
    """Instead: a command to be run at each change, with `{nodes}` for the number that is wanted, like
    `["kubectl", "scale", "statefulset/tenure-node", "--replicas={nodes}"]`."""
    cwd: str = ""
    """Where these run: an absolute path."""
    env: dict[str, str] = {}
    """Set for them in addition to the node's own environment."""

    nodes_min: int = 1
    nodes_max: int
    lag_high: int = 1_000
    """With more messages waiting for each node, there are to be more nodes."""
    lag_low: int = 100
    """With fewer, and busy time below its low mark, there may be one less."""
    busy_high: float = 0.8
    busy_low: float = 0.3
    rise_s: float = 1.0
    """The load must be high for so long, without a break, before nodes are added,"""
    fall_s: float = 60.0
    """and low for so long before one is removed: a load that swings faster than that changes nothing."""
    settle_s: float = 3.0
    """After each change, when all nodes that were asked for are there, nothing is changed for so long."""
    catch_up_s: float = 20.0
    """Lag that falls fast enough to be gone within so long asks for nothing more."""
    look_every_s: float = 0.5
    start_s: float = 60.0
    """A node that has not come for so long after it was asked for is given up: it is ended, if it comes after all."""
    drain_s: float = 60.0
    """A node that is to go has so long to hand over; then it is ended by force."""

    wanted: int = 0
    """So many nodes there are to be."""
    started: int = 0
    """So many commands were run, in all; the number of the last one."""
    awaited: dict[str, float] = {}
    """Nodes that it has started and that are yet to come, and since when."""
    memory: Memory = Memory()
    changes: list[Change] = []
    """The latest."""

    # -- turns ------------------------------------------------------------------------------------

    def on_start(self, ctx: Context) -> None:
        self._check()
        ctx.wake_in(self.look_every_s)

    def on_message(self, ctx: Context, message: dict[str, Any]) -> dict[str, Any]:
        """Whoever sent a mistake hears of it, and the autoscaler goes on."""
        try:
            wanted = self._wanted(message)
        except (Mistake, ValidationError) as error:
            return {"refused": str(error)}
        for name, value in wanted.items():
            setattr(self, name, value)
        told = (*Marks.__struct_fields__, *(name for name in STARTING if name in wanted))
        return {name: getattr(self, name) for name in told}

    def _wanted(self, message: dict[str, Any]) -> dict[str, Any]:
        known = (*Marks.__struct_fields__, *STARTING)
        if unknown := message.keys() - set(known):
            raise Mistake(f"an autoscaler has no mark {min(unknown)!r}; there are {', '.join(known)}")
        types = get_type_hints(type(self))
        wanted = {name: convert(value, types[name]) for name, value in message.items()}
        tried = copy(self)
        for name, value in wanted.items():
            setattr(tried, name, value)
        tried._check()
        return wanted

    def on_timeout(self, ctx: Context) -> None:
        ctx.wake_in(self.look_every_s)
        own = self._own(ctx)
        if any(node.holds for node in ctx.nodes):
            self.memory = Memory(changed_s=ctx.now.timestamp())
            return
        nodes = [node for node in ctx.nodes if not node.draining and node.name not in own.leaving]
        seen = self._seen(ctx, nodes, own)
        self.memory, decision = decide(self._marks(), self.memory, seen)
        there = seen.nodes + seen.coming
        if decision.nodes != there:
            self._change(ctx, decision, there, own)
        elif decision.why:
            self._note(ctx, decision.why)

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        if event.status == "failed":
            self._note(ctx, f"{event.name} has failed: {event.error}")

    # -- seeing -----------------------------------------------------------------------------------

    def _seen(self, ctx: Context, nodes: list[NodeInfo], own: _Own) -> Seen:
        now_s, count = ctx.now.timestamp(), len(nodes)
        coming = len(own.coming)
        if self.command and self.wanted and now_s - self.memory.changed_s <= self.start_s:
            # The command knows who comes and who goes: for so long there are as many as it was told.
            count, coming = min(count, self.wanted), max(0, self.wanted - count)
        waiting = sum(node.load.waiting for node in nodes)
        busy = sum(node.load.busy for node in nodes) / max(1, len(nodes))
        turns_per_s = sum(node.load.turns_per_s for node in nodes)
        endable = len(own.there) + len(own.coming) if self.spawn else None
        return Seen(now_s, count, coming, waiting, busy, turns_per_s, endable)

    def _own(self, ctx: Context) -> _Own:
        """Who is where."""
        if not self.spawn:
            return _Own([], [], [])
        names = {node.name for node in ctx.nodes if not node.draining}
        self._await(ctx, names)
        there = [name for name, status in ctx.activities.items() if status in ("wanted", "running") and name in names]
        coming = [name for name in self.awaited if name not in names]
        leaving = [name for name, status in ctx.activities.items() if status in ("cancelling", "cancelled")]
        return _Own(there, coming, leaving)

    def _await(self, ctx: Context, names: set[str]) -> None:
        """One that is wanted (again: it has failed) is yet to come. One that was there, is not seen and runs no less is
        not waited for: it may be frozen, or its machine gone. One that has not come for long is given up."""
        now_s = ctx.now.timestamp()
        self.awaited = {
            name: min(now_s, self.awaited.get(name, now_s))
            for name, status in ctx.activities.items()
            if (status == "wanted" and name.startswith(f"{ctx.id}-"))  # no run of a `command` that it had before
            or (status == "running" and name in self.awaited and name not in names)
        }
        for name, since_s in list(self.awaited.items()):
            if name not in names and now_s - since_s > self.start_s:
                self._give_up(ctx, name)

    def _give_up(self, ctx: Context, name: str) -> None:
        del self.awaited[name]
        ctx.cancel_activity(name)
        self._note(ctx, f"given up {name}: it has not come for {self.start_s:g} s")

    # -- changing ---------------------------------------------------------------------------------

    def _change(self, ctx: Context, decision: Decision, there: int, own: _Own) -> None:
        self.wanted = decision.nodes
        if self.command:
            done = self._run(ctx, decision.nodes)
        elif decision.nodes > there:
            done = self._add(ctx, decision.nodes - there)
        else:
            done = self._remove(ctx, there - decision.nodes, own)
        self._note(ctx, f"{done}: {decision.why}")

    def _run(self, ctx: Context, nodes: int) -> str:
        self.started += 1
        work = self._work(ctx, filled_in(self.command, {"nodes": str(nodes)}))
        ctx.start_activity(f"change-{self.started}", work, timeout_s=self.start_s)
        return f"to {nodes} nodes"

    def _add(self, ctx: Context, count: int) -> str:
        names = []
        for _ in range(count):
            self.started += 1
            name = f"{ctx.id}-{self.started}"
            work = self._work(ctx, filled_in(self.spawn, {"name": name}))
            retry = Retry(attempts_max=5, first_delay_s=1.0)
            ctx.start_activity(name, work, retry=retry, cancel_deadline_s=self.drain_s)
            self.awaited[name] = ctx.now.timestamp()
            names.append(name)
        return f"started {', '.join(names)}"

    def _remove(self, ctx: Context, count: int, own: _Own) -> str:
        leaving = sorted([*own.coming, *own.there], key=lambda name: int(name.rpartition("-")[2]))[-count:]
        for name in leaving:
            ctx.cancel_activity(name)
        return f"ended {', '.join(leaving)}"

    def _work(self, ctx: Context, argv: list[str]) -> dict[str, Any]:
        # An upgrade that goes on meanwhile takes no node for its own that says so.
        return {"argv": argv, "cwd": self.cwd, "env": {**self.env, SPAWNED_BY: f"autoscaler {ctx.id}"}}

    def _note(self, ctx: Context, why: str) -> None:
        """Once, as long as it is so."""
        if self.changes and (self.changes[-1].nodes, self.changes[-1].why) == (self.wanted, why):
            return
        self.changes = [
            *self.changes[1 - CHANGES_KEPT_MAX :],
            Change(at_ms=round(ctx.now.timestamp() * 1000), nodes=self.wanted, why=why),
        ]
        ctx.log.info("autoscaler", nodes=self.wanted, why=why)

    # -- checking ---------------------------------------------------------------------------------

    def _marks(self) -> Marks:
        return Marks(**{name: getattr(self, name) for name in Marks.__struct_fields__})

    def _check(self) -> None:
        self._marks()
        if bool(self.spawn) == bool(self.command):
            raise Mistake("an autoscaler has either a `spawn` or a `command`")
        place = NAME if self.spawn else NODES
        if not any(place in argument for argument in self.spawn or self.command):
            raise Mistake(f"{self.spawn or self.command!r} must have {place} in it")
        if not self.look_every_s > 0:
            raise Mistake(f"look_every_s is more than 0, not {self.look_every_s:g}")
