"""What a client is told of jobs, partitions and dead letters: plain dicts, with types. Times are milliseconds."""

from typing import Any, NotRequired, TypedDict

__all__ = [
    "ActivityView",
    "DeadLetter",
    "FailureView",
    "JobDescription",
    "JobSummary",
    "NodeStatus",
    "PartitionStatus",
    "Quiet",
    "Restored",
    "ScaleStatus",
    "Shutdown",
    "Snapshot",
    "TimerView",
    "UpgradeStatus",
    "Verified",
    "WaitingView",
    "WorkerView",
]


class TimerView(TypedDict):
    """When a job wakes."""

    due_ms: int
    """0: no single wake is set."""
    cron: str
    """Empty: no recurring wake is set."""
    tz: str
    cron_due_ms: int


class FailureView(TypedDict):
    """Why a turn failed."""

    error: str
    traceback: str
    event: str
    """The id of the turn."""
    attempts: int
    at_ms: int
    retry_ms: int
    """When it is tried again; 0: not by itself."""


class WaitingView(TypedDict):
    """What is first in a job's queue."""

    kind: int
    message: Any
    id: str
    source: str
    attempts: int


class ActivityView(TypedDict):
    """Long work of a job that goes on outside its turns (see `Context.start_activity`)."""

    name: str
    id: str
    kind: str
    status: str
    """wanted, running, cancelling; or how it ended: succeeded, failed, cancelled."""
    attempt: int
    attempts_max: int
    tag: str
    """Names this attempt; its folder on the machine where it runs is called so."""
    place: str
    """The machine (and state folder) where it runs."""
    pid: int
    """There: the process around it."""
    at_ms: int
    """When it was asked for,"""
    started_ms: int
    """when this attempt began,"""
    heard_ms: int
    """when its owner last heard of it (0: since it took over, not yet),"""
    due_ms: int
    """wanted: when it is to be launched; cancelling: when it is ended by force."""
    ended_ms: int
    waits_for: str
    """Why it isn't launched."""
    progress: list[int] | None
    details: dict[str, Any]
    """What it shows of itself: stage, metrics, info."""
    notes: dict[str, Any]
    """What it leaves for the next attempt."""
    result: Any
    """If it has one, and it is small."""
    error: str
    """Of the last attempt that failed."""


class WorkerView(ActivityView):
    """An activity that is wanted or under way, and whose it is."""

    job: str
    application: str
    nodes: list[str]
    """The nodes on the machine where it runs."""


class Quiet(TypedDict):
    """An application with nothing to do."""

    application: str
    jobs: int
    timers: int
    """Those that are set and not due yet."""
    first_due_ms: int
    """When the first of them is; 0: there is none."""
    rounds: int
    """So often were all partitions asked."""


class UpgradeStatus(TypedDict):
    """How an upgrade stands, and what could be declared."""

    declared: int
    """The format that the cluster writes."""
    newest: int
    """The newest that any node reads."""
    behind: list[str]
    """Nodes that don't read that."""
    under_way: bool
    """Or stopped before its end."""
    replaced: dict[str, str]
    """old -> new"""
    left: list[str]
    """Nodes that are yet to be replaced."""
    nodes: list[dict[str, Any]]
    """Those that live: id, name, version, reads (formats), types, left."""


class JobSummary(TypedDict):
    """One line of `jobs`."""

    id: str
    type: str
    version: int
    generation: int
    application: str
    status: str
    """running, paused, failed, finishing or stopping."""
    stuck: str
    """Why its node can't run it; empty: it can."""
    running: bool
    """Is a turn under way?"""
    waiting: int
    """Messages in its queue."""
    due_ms: int
    """When it wakes next; 0: no timer is set."""
    error: str
    node: str
    node_name: str
    """What its node is called; empty: it has no name."""
    partition: int


class JobDescription(JobSummary):
    """All that is known of one job."""

    revision: int
    turns: int
    """Committed turns."""
    timer: TimerView | None
    failure: FailureView | None
    first_waiting: WaitingView | None
    topics: list[str]
    progress: list[int] | None
    activities: list[ActivityView]
    state: Any


class PartitionStatus(TypedDict):
    """How a partition stands, from its owner."""

    partition: int
    node: str
    epoch: int
    slot: int
    jobs: int
    waiting: int
    failed: int
    """Jobs that have failed,"""
    stuck: int
    """or can't run where they are."""
    dead_letters: int
    dead_letters_bytes: int
    dead_letters_full: bool
    """Are there too many? Then who would send more waits."""
    dead_letters_dropped: int
    """So many that jobs and topics brought found no place, ever;"""
    dead_letters_expired: int
    """and so many were kept for long enough."""
    full: int
    """Jobs that take no more messages for now."""
    outbox: int
    lanes: int
    near: list[dict[str, Any]]
    """What holds four fifths or more of what it may: what, held, limit, and the setting that says so."""


class NodeStatus(TypedDict):
    """A node, and how much it has to do."""

    id: str
    name: str
    pid: int
    member: str
    """The member that it is paired with, as host:port."""
    draining: bool
    partitions: int
    waiting: int
    """Its lag: messages that wait for their turn."""
    busy: float
    """Its busy time, as a share of 1."""


class ScaleStatus(TypedDict):
    """How large a cluster is, and how much it has to do."""

    members: int
    nodes: list[NodeStatus]
    """Those that live."""
    waiting: int
    """The lag of all nodes together."""
    busy: float
    """Their mean busy time."""


class DeadLetter(TypedDict):
    """A message that no job could take. `partition` and `n` name it."""

    partition: int
    n: int
    to: str
    message: Any
    reason: str
    """The error's name."""
    detail: str
    at_ms: int
    source: str
    id: str


class Snapshot(TypedDict):
    """A consistent cut of all jobs, kept outside the grid."""

    name: str
    """When it was begun, in UTC; later ones sort behind."""
    taken_ms: int
    """What clients had been told is stored by then is in it."""
    jobs: int
    size_bytes: int
    """All that is needed to restore it."""
    written_bytes: int
    """Of these: what was written for it. The rest was there from snapshots before."""
    partition_count: int
    incarnation: int
    duration_s: float
    not_deleted: NotRequired[str]
    """Of one just taken: why older ones stay that were not to be kept; empty: nothing was in the way."""
    problem: NotRequired[str]
    """Of one in a list that can't be read: why. It has nothing but this and its name."""


class Shutdown(TypedDict):
    """A shutdown with a snapshot, to its end."""

    nodes: list[str]
    """Those that ended."""
    snapshot: Snapshot
    """All that was ever acknowledged is in it."""


class Verified(TypedDict):
    """What was found of a snapshot that was read to its end."""

    name: str
    jobs: int
    size_bytes: int
    problems: list[str]
    """What is missing, damaged or contradicts itself; empty: nothing."""
    whole: bool
    """There are none."""


class Restored(TypedDict):
    """What was restored."""

    name: str
    jobs: int
    incarnation: int
    """Fencing tokens of this cluster are higher than all those of before."""
    formation: str
    partition_count: int
    duration_s: float
    letters_kept: int
    """Dead letters of the cluster that was there before, beside those of the snapshot."""
    letters_unread: tuple[int, ...]
    """Partitions whose dead letters could not be read: they were lost, or damaged."""
    snapshots_resumed: tuple[str, ...]
    """The jobs that take snapshots every so often, and go on."""
    snapshots_stopped: tuple[str, ...]
    """Those that take no more: schedule snapshots anew."""
