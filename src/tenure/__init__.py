"""Tenure: durable, keyed, stateful Python objects that wake on start, on time and on messages.

    import tenure

    @tenure.job("counter")
    class Counter(tenure.Job):
        total: int = 0

        def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
            self.total += message["n"]
            return self.total

Everything public is here, and is imported when it is first used: `import tenure` itself costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.application import BadApplication, load_application
    from tenure.clients.client import Client
    from tenure.clients.selector import BadSelector
    from tenure.clients.sync_client import SyncClient
    from tenure.clients.views import (
        ActivityView,
        DeadLetter,
        FailureView,
        JobDescription,
        JobSummary,
        NodeStatus,
        PartitionStatus,
        Quiet,
        Restored,
        ScaleStatus,
        Shutdown,
        Snapshot,
        TimerView,
        UpgradeStatus,
        Verified,
        WaitingView,
        WorkerView,
    )
    from tenure.scheduler.activities_wire import ActivityEvent
    from tenure.scheduler.assignment import NodeInfo
    from tenure.scheduler.context import Context, MessageInfo
    from tenure.scheduler.errors import (
        ApplicationClosed,
        AskFailed,
        Backlogged,
        BadSchedule,
        ClientClosed,
        ClusterReplaced,
        DuplicateJob,
        Final,
        HookFailed,
        JobFailed,
        JobPaused,
        JobRemoved,
        JobStuck,
        Mistake,
        NodeSilent,
        NotDone,
        NotFinished,
        NotPicklable,
        NotSpawned,
        PartitionLost,
        PickledJobsRefused,
        Purged,
        Reject,
        Rejected,
        StateTooLarge,
        TenureError,
        TooLarge,
        TryAgain,
        TurnTooLarge,
        Undecodable,
        UnknownJob,
        UnknownJobType,
        UnknownNode,
        UnreadableFormat,
        UpgradeStopped,
        UpgradeUnderWay,
        UpgradeUnfinished,
        WrongType,
    )
    from tenure.scheduler.jobtype import Job, JobType, Registry, Retry, job, registry
    from tenure.scheduler.settings import ClientSettings, NodeSettings
    from tenure.scheduler.snapshots.errors import (
        BadLocation,
        NotRestorable,
        SnapshotDamaged,
        SnapshotFailed,
        SnapshotUnderWay,
        StoreFailed,
        UnknownSnapshot,
    )
    from tenure.scheduler.topic import Topic
    from tenure.scheduler.wire import Failure

__all__ = [
    "ActivityEvent",
    "ActivityView",
    "ApplicationClosed",
    "AskFailed",
    "Backlogged",
    "BadApplication",
    "BadLocation",
    "BadSchedule",
    "BadSelector",
    "Client",
    "ClientClosed",
    "ClientSettings",
    "ClusterReplaced",
    "Context",
    "DeadLetter",
    "DuplicateJob",
    "Failure",
    "FailureView",
    "Final",
    "HookFailed",
    "Job",
    "JobDescription",
    "JobFailed",
    "JobPaused",
    "JobRemoved",
    "JobStuck",
    "JobSummary",
    "JobType",
    "MessageInfo",
    "Mistake",
    "NodeInfo",
    "NodeSettings",
    "NodeSilent",
    "NodeStatus",
    "NotDone",
    "NotFinished",
    "NotPicklable",
    "NotRestorable",
    "NotSpawned",
    "PartitionLost",
    "PartitionStatus",
    "PickledJobsRefused",
    "Purged",
    "Quiet",
    "Registry",
    "Reject",
    "Rejected",
    "Restored",
    "Retry",
    "ScaleStatus",
    "Shutdown",
    "Snapshot",
    "SnapshotDamaged",
    "SnapshotFailed",
    "SnapshotUnderWay",
    "StateTooLarge",
    "StoreFailed",
    "SyncClient",
    "TenureError",
    "TimerView",
    "TooLarge",
    "Topic",
    "TryAgain",
    "TurnTooLarge",
    "Undecodable",
    "UnknownJob",
    "UnknownJobType",
    "UnknownNode",
    "UnknownSnapshot",
    "UnreadableFormat",
    "UpgradeStatus",
    "UpgradeStopped",
    "UpgradeUnderWay",
    "UpgradeUnfinished",
    "Verified",
    "WaitingView",
    "WorkerView",
    "WrongType",
    "job",
    "load_application",
    "registry",
]

_HOMES = {
    "application": ("BadApplication", "load_application"),
    "clients.client": ("Client",),
    "clients.selector": ("BadSelector",),
    "clients.sync_client": ("SyncClient",),
    "clients.views": (
        "ActivityView",
        "DeadLetter",
        "FailureView",
        "JobDescription",
        "JobSummary",
        "NodeStatus",
        "PartitionStatus",
        "Quiet",
        "ScaleStatus",
        "Shutdown",
        "Restored",
        "Snapshot",
        "TimerView",
        "UpgradeStatus",
        "Verified",
        "WaitingView",
        "WorkerView",
    ),
    "scheduler.activities_wire": ("ActivityEvent",),
    "scheduler.assignment": ("NodeInfo",),
    "scheduler.context": ("Context", "MessageInfo"),
    "scheduler.jobtype": ("Job", "JobType", "Registry", "Retry", "job", "registry"),
    "scheduler.settings": ("ClientSettings", "NodeSettings"),
    "scheduler.snapshots.errors": (
        "BadLocation",
        "NotRestorable",
        "SnapshotDamaged",
        "SnapshotFailed",
        "SnapshotUnderWay",
        "StoreFailed",
        "UnknownSnapshot",
    ),
    "scheduler.topic": ("Topic",),
    "scheduler.wire": ("Failure",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = _MODULE_OF.get(name, "scheduler.errors")
        found = getattr(importlib.import_module(f"tenure.{module}"), name)
        globals()[name] = found
        return found
    if name == "testing":
        return importlib.import_module("tenure.testing")
    raise AttributeError(f"module 'tenure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
