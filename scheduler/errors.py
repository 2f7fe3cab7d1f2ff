"""Everything that Tenure refuses or reports, in three families: try again, final, caller's mistake.

`TryAgain`: the same call may succeed later, and repeating it is safe where its docstring says so.
`Final`: repeating changes nothing; somebody has to look. `Mistake`: the caller must change the call.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.scheduler.topic import Topic

__all__ = [
    "ApplicationClosed",
    "AskFailed",
    "Backlogged",
    "BadSchedule",
    "ClientClosed",
    "ClusterReplaced",
    "DuplicateJob",
    "Final",
    "HookFailed",
    "JobFailed",
    "JobPaused",
    "JobRemoved",
    "JobStuck",
    "Mistake",
    "NodeSilent",
    "NotDone",
    "NotFinished",
    "NotPicklable",
    "NotSpawned",
    "PartitionLost",
    "PickledJobsRefused",
    "Purged",
    "Reject",
    "Rejected",
    "StateTooLarge",
    "TenureError",
    "TooLarge",
    "TryAgain",
    "TurnTooLarge",
    "Undecodable",
    "UnknownJob",
    "UnknownJobType",
    "UnknownNode",
    "UnreadableFormat",
    "UpgradeStopped",
    "UpgradeUnderWay",
    "UpgradeUnfinished",
    "WrongType",
]


class TenureError(Exception):
    """The root of all errors that Tenure raises on purpose."""


class TryAgain(TenureError):
    """It did not work now; it may later."""


class Final(TenureError):
    """It will not work, however often it is tried."""


class Mistake(TenureError, ValueError):
    """The call itself is wrong; nothing was done."""


class NotDone(TryAgain):
    """A deadline passed before the outcome was known: it may have been done, or be done later."""


class Backlogged(TryAgain):
    """Publishing waited as long as it was allowed to. `unstored` holds the messages that are not known to be stored.

    They may still be stored later: publish again under an `id` to be safe from doubles. What was held back for a job
    that takes no more will not be.
    """

    def __init__(
        self, what: str, unstored: "list[tuple[str | Topic, Any]]", full: "dict[str, str] | None" = None
    ) -> None:
        super().__init__(what)
        self.unstored = unstored
        self.full = full or {}
        """Jobs among them that take no more for now, and why: their mailboxes are full."""


class ClientClosed(Final):
    """The client was closed before this was done; or its connection is closed for good, as another cluster has come in
    the place of the one that it knew. Open another client."""


class ClusterReplaced(Final):
    """The cluster that was known here is gone: its members hold another one, or have come back empty. `unstored` holds
    the messages of this call: none of them is known to be stored.

    Each call looks again: after a snapshot of the cluster was restored, the same client goes on.
    """

    def __init__(self, what: str, unstored: "list[tuple[str | Topic, Any]] | None" = None) -> None:
        super().__init__(what)
        self.unstored: list[tuple[str | Topic, Any]] = unstored or []


class UnknownJob(Final):
    """There is no job of this id."""


class UnknownNode(Final):
    """There is no node of this id or name."""


class ApplicationClosed(Final):
    """The job's application is being shut down, and takes nothing from clients any more."""


class NotFinished(TryAgain):
    """What was to be taken away is still at work; the text says with what."""


class NodeSilent(TryAgain):
    """Nothing is heard of this node, so it can't be told anything: it is frozen, or has ended."""


class NotSpawned(TryAgain):
    """A command that was to start a node has ended without one."""


class HookFailed(TryAgain):
    """A command that was to change the number of nodes has failed."""


class JobRemoved(UnknownJob):
    """The job was removed before it got to this message."""


class Purged(Final):
    """Somebody dropped what waited for the job, and this message was among it."""


class JobFailed(Final):
    """The handler raised, each time that it was tried. A question changed nothing then, and its job goes on; a job that
    failed at something else is parked with its error and the message that did it: see `describe`, then `retry`. A
    question to such a job is refused, and has no effect."""


class JobPaused(TryAgain):
    """The job is paused, so the question was refused: it has no effect. Ask again when it was resumed."""


class JobStuck(TryAgain):
    """No node that is there can run the job, so what was asked has no effect: a question is refused, and nothing is
    retried. The text has the cause."""


class Rejected(Final):
    """The job's handler refused the message (it raised `Reject`); the text is the handler's own. Nothing was changed,
    and the job goes on."""


class Reject(Final):
    """To be raised by a handler that refuses a message: nothing of the turn takes effect, it is not tried again, and
    the job goes on. The one who asked hears `Rejected`, with this text; what was published becomes a dead letter."""


class AskFailed(Final):
    """The question reached its job, and can't be answered; the reason is in the text."""


class PartitionLost(Final):
    """A partition's head is gone: all copies of its data were lost. It stops; the other partitions go on."""


class UnreadableFormat(Final):
    """A stored value has a format or key that this version does not read. It is left alone; nodes that can are named
    where they are known."""

    def __init__(self, what: str, *, format: int = 0) -> None:
        super().__init__(what)
        self.format = format
        """The format; 0: it is not for want of that."""


class UpgradeUnfinished(Final):
    """The newest format can't be declared, as long as nodes are there that don't read it."""


class UpgradeUnderWay(TryAgain):
    """Another process is at an upgrade."""


class UpgradeStopped(Final):
    """An upgrade has stopped before its end; the text says why, what is left, and what to do."""


class Undecodable(Final):
    """A stored value can't be decoded; its bytes are kept."""


class DuplicateJob(Mistake):
    """The id is taken by a job with another definition."""


class UnknownJobType(Mistake):
    """No job type of this name is registered here."""


class WrongType(Mistake):
    """A message or parameter does not fit its annotation; the text has the path of the field."""


class TooLarge(Mistake):
    """A message, an answer or a definition is larger than the cluster's limit."""


class StateTooLarge(Mistake):
    """A job's state has grown past the limit; the turn that did it has failed."""


class TurnTooLarge(Mistake):
    """A turn leaves more in all than one may: its state, what it sends, its answer, its activities. It has failed."""


class BadSchedule(Mistake):
    """A time that can't be: a naive datetime, a bad cron expression or time zone, a negative delay."""


class PickledJobsRefused(Mistake):
    """The job is a pickled callable, and this node does not run those (`allow_pickled_jobs`)."""


class NotPicklable(Mistake):
    """This callable can't be sent to the nodes."""
