"""The lifecycle controller: a job that instructs the cluster to snapshot, load, scale up, scale down, upgrade, shut
down. `import tenure.jobs.lifecycle` (or `from tenure.jobs import Lifecycle`) in an application lets its nodes run it.
Without it no node does: who may send to it may run any program, and end all nodes.

    await client.schedule(Lifecycle, id="lifecycle")
    await client.publish("lifecycle", {"do": "snapshot", "url": "s3://backups/shop"})

    instruction ──► activity: the command `tenure …`, once ──► how it ended: kept, published, told to followers

It is a job like others: it survives its owner, its instructions come from any job or client, one waits for the other,
and what is under way goes on when the node that it was on has gone. What a command says at its end is final. One that
was killed, or whose machine has gone, has said nothing: it is run again (`attempts_max`), the same, but to shut down,
load or undeploy is not.
"""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from tenure.jobs.activity_job import QUEUED_MAX, ActivityJob, Overlap
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake, WrongType
from tenure.scheduler.jobtype import job
from tenure.scheduler.quiet import CONTROLLERS

__all__ = [
    "Done",
    "GiveUp",
    "Instruction",
    "Lifecycle",
    "Load",
    "ScaleDown",
    "ScaleUp",
    "Shutdown",
    "Snapshot",
    "Undeploy",
    "Upgrade",
    "arguments_of",
]

KEPT_MAX = 20
ONCE = ("restore", "shutdown", "undeploy")
"""Commands that are not to be repeated by themselves: later, they may no longer be what was meant."""


class _Instruction(Struct, tag_field="do", kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Its `do` is its name."""

    options: list[str] = []
    """Further options of the command, as `tenure … --help` lists them."""
    tell: str = ""
    """A job that is sent a `Done` at the end."""


class Snapshot(_Instruction, tag="snapshot", kw_only=True):
    """Write all jobs to `url`."""

    url: str


class Load(_Instruction, tag="load", kw_only=True):
    """Put the jobs of a snapshot into this cluster."""

    url: str
    name: str = ""
    """Which one; the newest, if none is given."""
    replace: bool = False
    """Also where there are jobs: they are gone then, and the controller with them."""


class ScaleUp(_Instruction, tag="scale_up", kw_only=True):
    """Start so many nodes more than there are when this is begun, by `spawn` (see `tenure scale`), on the machine that
    the controller is on."""

    nodes: int = 1
    spawn: str


class ScaleDown(_Instruction, tag="scale_down", kw_only=True):
    """Let so many leave of the nodes that there are when this is begun."""

    nodes: int = 1


class Upgrade(_Instruction, tag="upgrade", kw_only=True):
    """Replace all nodes, by `spawn`, some at a time."""

    spawn: str
    at_once: int = 1


class Undeploy(_Instruction, tag="undeploy", kw_only=True):
    """Take an application away when it has finished."""

    application: str
    timers: Literal["keep", "fire"] = "keep"


class Shutdown(_Instruction, tag="shutdown", kw_only=True):
    """Refuse inputs, finish what was accepted, and end all nodes. Members keep all jobs."""

    timers: Literal["keep", "fire"] = "keep"


class GiveUp(_Instruction, tag="give_up", kw_only=True):
    """End what is under way, and forget what waits."""


Instruction = Snapshot | Load | ScaleUp | ScaleDown | Upgrade | Undeploy | Shutdown | GiveUp
"""A message to the controller."""


class Done(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an instruction ended."""

    do: str
    status: str
    """succeeded, failed, cancelled, or refused: it was not begun"""
    error: str = ""
    at_ms: int


def _check(instruction: Instruction) -> None:
    """Raises `Mistake` for what can never be done. Pure."""
    match instruction:
        case ScaleUp(nodes=nodes) | ScaleDown(nodes=nodes) | Upgrade(at_once=nodes):
            if nodes < 1:
                raise Mistake(f"a number of nodes is positive, not {nodes}")
        case Undeploy(application=application):
            if application == CONTROLLERS:
                raise Mistake("a controller can't undeploy itself: unschedule it")
        case _:
            pass


def arguments_of(instruction: Instruction, nodes: int) -> list[str]:
    """The command that does it; `nodes` take part now. Pure."""
    _check(instruction)
    match instruction:
        case Snapshot(url=url):
            does = ["snapshot", url]
        case Load(url=url, name=name, replace=replace):
            does = ["restore", url, *(["--name", name] if name else []), *(["--replace"] if replace else [])]
        case ScaleUp(nodes=more, spawn=spawn):
            does = ["scale", "--to", str(nodes + more), "--spawn", spawn]
        case ScaleDown(nodes=fewer):
            if nodes - fewer < 1:
                raise Mistake(f"{nodes} nodes take part, and one must stay: {fewer} can't leave. To end all: shutdown")
            does = ["scale", "--to", str(nodes - fewer)]
        case Upgrade(spawn=spawn, at_once=at_once):
            does = ["upgrade", "--spawn", spawn, "--at-once", str(at_once)]
        case Undeploy(application=application, timers=timers):
            does = ["undeploy", application, "--timers", timers]
        case Shutdown(timers=timers):
            does = ["shutdown", "--timers", timers]
        case _:
            raise Mistake(f"{_name(instruction)!r} is no command")
    return [*does, *instruction.options]


@job("tenure.lifecycle", application=CONTROLLERS)
class Lifecycle(ActivityJob, kw_only=True):
    """Takes instructions (see the top of this module), carries out one after another, and keeps how they ended."""

    kind: ClassVar[str] = "tenure"

    on_demand: bool = True
    overlap: Overlap = "queue"
    attempts_max: int = 2
    """So often is a command run, should its runs be killed, or their machines go."""
    orphan_after_s: float = 600.0
    """What it does may take all nodes away for a while."""

    doing: list[str] = []
    """The names of the instruction that is under way, and of those that wait."""
    tell: list[str] = []
    """Whom to tell of each of these; empty: nobody."""
    done: list[Done] = []
    """How the latest ended."""

    def on_message(self, ctx: Context, message: Instruction) -> Any:  # type: ignore[override]  # no order, but these
        if isinstance(message, GiveUp):
            self.doing, self.tell = self.doing[:1], self.tell[:1]
            return self._cancel(ctx)
        try:
            _check(message)
            if self.current and len(self.queued) >= QUEUED_MAX:
                raise Mistake(f"{QUEUED_MAX} instructions wait already")
        except Mistake as error:
            return self._refuse(ctx, message, error)
        self.doing.append(_name(message))
        self.tell.append(message.tell)
        return self.start(ctx, {"instruction": msgspec.to_builtins(message)})

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        if event.has_ended and event.name == self.current and self.doing:
            ended = Done(do=self.doing.pop(0), status=event.status, error=event.error, at_ms=_ms(ctx))
            self._keep(ctx, ended, self.tell.pop(0))
        super().on_activity(ctx, event)
        while self.queued and not self.current:  # that one was refused
            self._begin(ctx, self.queued.pop(0))

    def _begin(self, ctx: Context, start: dict[str, Any]) -> dict[str, Any]:
        """Here its numbers become absolute: it is committed with them, and is the same however often it is run."""
        instruction: Instruction = msgspec.convert(start["instruction"], Instruction)
        try:
            arguments = arguments_of(instruction, sum(not node.draining for node in ctx.nodes))
        except Mistake as error:
            del self.doing[0], self.tell[0]
            return self._refuse(ctx, instruction, error)
        return super()._begin(ctx, {"arguments": arguments})

    def _refuse(self, ctx: Context, instruction: Instruction, error: Mistake) -> dict[str, Any]:
        """The controller itself goes on: whoever sent this hears of it."""
        refused = Done(do=_name(instruction), status="refused", error=str(error), at_ms=_ms(ctx))
        self._keep(ctx, refused, instruction.tell)
        return {"refused": str(error)}

    def _keep(self, ctx: Context, ended: Done, listener: str) -> None:
        self.done = [*self.done[1 - KEPT_MAX :], ended]
        if listener:
            ctx.send(listener, ended)

    def work(self, start: dict[str, Any]) -> Any:
        arguments = start.get("arguments", [])
        if not all(isinstance(argument, str) for argument in arguments):
            raise WrongType(f"arguments of a command are texts, not {arguments!r}")
        return {"arguments": arguments}

    def attempts(self, start: dict[str, Any]) -> int:
        return 1 if start["arguments"][0] in ONCE else self.attempts_max


def _name(instruction: Instruction) -> str:
    return str(type(instruction).__struct_config__.tag)


def _ms(ctx: Context) -> int:
    return round(ctx.now.timestamp() * 1000)
