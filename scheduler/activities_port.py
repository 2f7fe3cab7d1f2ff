"""The port to whatever runs activities: processes on this machine, or a fake in tests.

A node has one launcher for each kind of activity that it can run. The core knows no kind.

    turn ──commit──► tag in the job's record ──► find(tag) ──absent──► launch(run)
                                                     └──there──► nothing: it is this very attempt
"""

from typing import Any, Literal, Protocol

from msgspec import Struct

from tenure.scheduler.errors import Final

__all__ = ["Found", "LaunchRefused", "Launcher", "Outcome", "Run", "Untold"]


class LaunchRefused(Final):
    """This work can't be launched, however often it is tried; the text says why, and what to do."""


class Run(Struct, frozen=True, kw_only=True):
    """One attempt at an activity, as it is given to a launcher and, through it, to the process that does the work."""

    tag: str
    """Names this attempt: the same from every node that asks for it, and no other attempt's. Safe as a file name."""
    job: str
    """The job's id, which reports go to."""
    generation: int
    activity: str
    """The activity's name within its job."""
    id: str
    """The activity's own id: the same for all its attempts."""
    attempt: int
    """Counts from 1. An attempt that was given up is fenced: the job refuses what it says."""
    kind: str
    work: Any
    """The specification: whatever the kind takes, made of what JSON can hold."""
    notes: dict[str, Any] = {}
    """What earlier attempts wanted this one to know (see `Reporter.note`)."""
    heartbeat_s: float = 5.0
    cancel_deadline_s: float = 10.0
    """A polite request to end, and so much later the end."""
    orphan_after_s: float = 120.0
    """A run that has heard nothing from its job for so long ends by itself. Only later than that is the next
    attempt launched on another machine."""
    timeout_s: float | None = None
    """An attempt that takes longer has failed."""
    stall_after_s: float | None = None
    """An attempt that reports nothing of itself for so long has failed."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    status: Literal["succeeded", "failed", "cancelled"]
    result: Any = None
    error: str = ""
    """`Name: what happened`, in one sentence."""
    traceback: str = ""
    final: bool = False
    """Trying again would not help."""


class Untold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt had to say besides, and is not known to have told, when it ended (see `Report`)."""

    progress: tuple[int, int] | None = None
    details: dict[str, Any] = {}
    notes: dict[str, Any] = {}


class Found(Struct, frozen=True, kw_only=True):
    """What a launcher knows of a tag on its own machine."""

    state: Literal["absent", "running", "over"]
    """absent: it has not begun here (or was never heard of), and may be launched. running: it lives, or one of the
    processes that it started does. over: it has begun here and no process of it is left; it never begins again."""
    pid: int = 0
    outcome: Outcome | None = None
    """Of a run that is over, if it lived to say how it ended."""
    untold: Untold = Untold()
    """Of the same."""
    detail: str = ""
    """For people: the last words of one that could not begin, or died."""


class Launcher(Protocol):
    """Runs attempts of one kind. Every method may be called again after a crash, and by several nodes at once."""

    place: str
    """The machine (more exactly: the scope within which `find` sees everything that was launched). Two launchers
    with the same place see the same runs."""

    async def find(self, tag: str) -> Found:
        """What is there of this run. Cheap: it is asked once a second for each one that runs here."""
        ...

    async def launch(self, run: Run) -> None:
        """Start it, unless a run of this tag has begun here before: of any number of calls from any number of
        nodes at most one starts the work, also if callers die half way. Returns when it is under way or could not
        be; whether it began, `find` tells. It outlives the caller. Raises `LaunchRefused`.
        """
        ...

    async def cancel(self, tag: str, *, force: bool) -> None:
        """Ask it to end within its `cancel_deadline_s`; with `force`, end every process of it at once, the ones
        that it started included. Returns when it is asked, or (with `force`) when nothing is left. No such run: fine.
        """
        ...
