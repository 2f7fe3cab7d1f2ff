"""The client for code that blocks, usable from any number of threads.


Made from client.py by tests/api/shells.py: edit that one.
"""

from collections.abc import Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, overload

from tenure.clients import draining, ending, operations, quiescing, scaling, selecting, upgrading
from tenure.clients.homes import SyncHome
from tenure.clients.operations import JobSpec, JobTarget
from tenure.clients.quiescing import Tell, Timers
from tenure.clients.selecting import Action
from tenure.clients.views import (
    DeadLetter,
    JobDescription,
    JobSummary,
    PartitionStatus,
    Quiet,
    Restored,
    ScaleStatus,
    Shutdown,
    Snapshot,
    UpgradeStatus,
    Verified,
    WorkerView,
)
from tenure.connect import opening, opening_embedded
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.topic import Topic

__all__ = ["SyncClient"]


class SyncClient:
    """A client of a Tenure cluster, for code that blocks:

        with tenure.SyncClient("10.0.0.1:5701,10.0.0.2:5701") as client:
            client.publish("clicks", {"n": 1})

    Many threads may use it at once. Every `timeout_s` is a deadline of 30 s unless given; what it leaves
    unknown is raised as `NotDone`, or as `Backlogged` by what publishes.
    """

    def __init__(
        self,
        cluster: str | None = None,
        *,
        grid: Grid | None = None,
        registry: Registry | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        """`cluster`: members' addresses, `host:port,host:port`, after `name@` where the cluster is not called
        tenure; by default what the environment variable TENURE_CLUSTER says, in a handler its own cluster, else the
        embedded cluster of a node on this machine (`tenure dev`), else tenure@127.0.0.1:5701: as commands find it.
        `grid` is a connection that the caller keeps. `registry` holds the job types whose messages and states
        this client knows, by default all that this process has registered.
        """
        self._home: SyncHome[GridClient] = SyncHome(opening(cluster, grid, registry, settings))

    @classmethod
    def embedded(cls, *, registry: Registry | None = None, settings: ClientSettings | None = None) -> "SyncClient":
        """A client with a cluster of its own, for trying things out: a member is started, and a node in this process
        that runs the jobs of `registry`, by default all that are registered. All of it is in memory, and ends with
        this client."""
        return cls._in(SyncHome(opening_embedded(registry, settings)))

    @classmethod
    def _in(cls, home: SyncHome[GridClient]) -> "SyncClient":
        client = cls.__new__(cls)
        client._home = home
        return client

    def __enter__(self) -> "SyncClient":
        self._home.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.close(kind, raised, trace)

    # -- jobs -------------------------------------------------------------------------------------

    def schedule(self, job_type: JobTarget, /, *, id: str, timeout_s: float | None = None, **parameters: Any) -> None:
        """Make a job. The same again is fine; raises `DuplicateJob` if the id has another definition. Where its type
        has topics, this returns when the job has subscribed: what is published to them from then on reaches it. (Not
        waited for: one that fails as it starts, is paused, has finished, or that no node can run.)

        `parameters` are the first values of its fields. (`schedule_many` takes those named id or timeout_s.)
        """
        self._home.run(operations.schedule, job_type, id, parameters, timeout_s)

    def schedule_many(self, jobs: Iterable[JobSpec], *, timeout_s: float | None = None) -> None:
        """Make many jobs: tuples of a job type, an id and a dict of parameters. Raises the first error, after all
        others are made."""
        self._home.run(operations.schedule_many, jobs, timeout_s)

    def unschedule(
        self, id: str, *, now: bool = False, missing_ok: bool = False, timeout_s: float | None = None
    ) -> int:
        """Remove a job: what it has accepted is finished, `on_stop` runs, then it is gone. Raises `UnknownJob` if
        there is none, unless `missing_ok`.

        With `now`, its running turn is cancelled (its message becomes a dead letter), what waits is dropped, and
        `on_stop` is tried once. Returns how many messages were dropped: none without `now`.
        """
        return self._home.run(operations.unschedule, id, missing_ok, timeout_s, now)

    def purge(self, id: str, *, timeout_s: float | None = None) -> int:
        """Drop the messages that wait for a job; whoever asked hears `Purged`. The running turn goes on. Returns how
        many there were."""
        return self._home.run(operations.purge, id, timeout_s)

    def pause(self, id: str, *, timeout_s: float | None = None) -> None:
        """No new turns; messages wait, timers too. The running turn may finish."""
        self._home.run(operations.pause, id, timeout_s)

    def resume(self, id: str, *, timeout_s: float | None = None) -> None:
        """Go on after `pause`, `cancel` or a failure."""
        self._home.run(operations.resume, id, timeout_s)

    def cancel(self, id: str, *, timeout_s: float | None = None) -> None:
        """Pause the job, end its running turn, which stays first in its queue, and its activities: they are asked to
        end, and later made to. A job that is being removed goes on to its end, and the turn becomes a dead letter."""
        self._home.run(operations.cancel, id, timeout_s)

    def retry(self, id: str, *, skip: bool = False, timeout_s: float | None = None) -> bool:
        """Try again what made the job fail; with `skip`, make a dead letter of it and go on with the next.
        False: the job has not failed."""
        return self._home.run(operations.retry, id, skip, timeout_s)

    def do_to_all(self, action: Action, selector: str, *, timeout_s: float | None = None) -> list[str]:
        """Pause, resume, cancel, retry, purge or unschedule all jobs that a selector names (see `jobs`); "skip" is to
        retry with `skip`, "end" to unschedule with `now`. Returns their ids. Raises the first error, after all others
        are done; `UnknownJob` if it is an id of none."""
        return self._home.run(selecting.do_to_all, action, selector, timeout_s)

    # -- messages ---------------------------------------------------------------------------------

    def publish(
        self, to: str | Topic, message: Any, *, id: str = "", timeout_s: float | None = None, strict: bool = False
    ) -> None:
        """A message to a job (its id) or to every subscriber of a `Topic`. Returns once it is stored with its
        backups: it will take effect exactly once. Raises `Backlogged` after the deadline.

        With an `id`, a repetition has no effect, also after a crash of the publisher. With `strict`, raises
        `UnknownJob` if there is no such job, and stores nothing then; otherwise it would become a dead letter.
        """
        self._home.run(operations.publish, to, message, id, timeout_s, strict)

    def publish_many(
        self,
        messages: Iterable[tuple[str | Topic, Any]],
        *,
        ids: Iterable[str] | None = None,
        timeout_s: float | None = None,
        strict: bool = False,
    ) -> None:
        """Many messages at once: pairs of a job's id or a `Topic`, and a message. In order for each address. All are
        checked before the first is sent; the `unstored` of `Backlogged` lists what is not known to be stored. With
        `strict`, raises `UnknownJob` if one of the jobs is not there, and stores nothing then."""
        self._home.run(operations.publish_many, messages, ids, timeout_s, strict)

    def broadcast(self, job_type: JobTarget, message: Any, *, id: str = "", timeout_s: float | None = None) -> None:
        """A message to every job of a type."""
        self._home.run(operations.broadcast, job_type, message, id, timeout_s)

    def ask(self, to: str, message: Any, *, id: str = "", timeout_s: float | None = None) -> Any:
        """A message that wants the handler's result: returns it once the turn is committed. Raises `UnknownJob`,
        `JobFailed`, or `NotDone` after the deadline (the turn may still run). A job that runs nothing for now refuses
        it at once (`JobFailed`, `JobPaused`, `JobStuck`): it has no effect then, also not later."""
        return self._home.run(operations.ask, to, message, id, timeout_s)

    # -- looking ----------------------------------------------------------------------------------

    def state(self, id: str, *, timeout_s: float | None = None) -> Any:
        """The job's committed state, from its owner: an instance of its class, or a dict where that is unknown."""
        return self._home.run(operations.state, id, timeout_s)

    def describe(self, id: str, *, timeout_s: float | None = None) -> JobDescription:
        """All that is known of one job."""
        return self._home.run(operations.describe, id, timeout_s)

    def jobs(self, selector: str = "", *, timeout_s: float | None = None) -> list[JobSummary]:
        """The jobs that a selector names, by id: "type=counter and state=failed", as `tenure jobs` takes it. All, if
        none is given. Raises `BadSelector`."""
        return self._home.run(selecting.jobs, selector, timeout_s)

    def nodes(self, selector: str = "") -> list[NodeInfo]:
        """The nodes that a selector names: "state=running and type=counter", as `tenure nodes` takes it. All that have
        lately said that they are there, if none is given. Raises `BadSelector`."""
        return self._home.run(selecting.nodes, selector)

    def partitions(self, *, timeout_s: float | None = None) -> list[PartitionStatus]:
        """How each partition stands, from its owner."""
        return self._home.run(operations.partitions, timeout_s)

    def topics(self, *, timeout_s: float | None = None) -> dict[str, int]:
        """Topics, and how many jobs subscribe to each."""
        return self._home.run(operations.topics, timeout_s)

    # -- how large it is --------------------------------------------------------------------------

    def scale(self) -> ScaleStatus:
        """How many members and nodes there are, and how much each node has to do."""
        return self._home.run(scaling.scale)

    def add_nodes(
        self,
        count: int = 1,
        *,
        spawn: str | Sequence[str],
        log_folder: str | PathLike[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[str]:
        """Start nodes on this machine, each by running `spawn` (like "tenure node app.py"; it finds the cluster in
        TENURE_CLUSTER, and may use `{name}`). They outlive this process. Returns their ids when they serve their share;
        raises `NotSpawned` if one ends instead. Here `timeout_s` is 120 unless given."""
        return self._home.run(scaling.add_nodes, count, spawn, log_folder, timeout_s)

    def remove_node(self, node: str, *, timeout_s: float | None = None) -> str:
        """Let a node (its id, or its name) hand over what it has, and end: returns its id when it has. Raises
        `UnknownNode`, and `Mistake` if it is the last one. Here `timeout_s` is 120 unless given."""
        return self._home.run(scaling.remove_node, node, timeout_s)

    def scale_to(
        self,
        count: int,
        *,
        spawn: str | Sequence[str] | None = None,
        run: str | Sequence[str] | None = None,
        log_folder: str | PathLike[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[str]:
        """Have so many nodes: started with `spawn` (see `add_nodes`), or told to leave, the last names first. Or `run`
        a command once that sees to it, with `{nodes}` for the number. Returns the ids of those that came or went."""
        return self._home.run(scaling.scale_to, count, spawn, run, log_folder, timeout_s)

    # -- the phases of shutdown --------------------------------------------------------------------

    def wait(
        self,
        application: str,
        *,
        timers: Timers = "keep",
        refuse_inputs: bool = False,
        on_wait: Tell | None = None,
        timeout_s: float | None = None,
    ) -> Quiet:
        """Wait until the jobs of an application are quiet: nothing that was accepted waits, runs, is on its way, is to
        be tried again, or goes on as an activity, on any node; the cluster knows. Timers that are due have rung; others
        are kept, or, with timers="fire", ring now, once (recurring ones don't). With `refuse_inputs`, what clients
        publish to its jobs meanwhile becomes a dead letter (`ApplicationClosed`).

        `on_wait` is told again and again what is waited for. Give it up by cancelling; raises `NotFinished` after
        `timeout_s` (never, unless given). The application of job types that name none is "default".
        """
        return self._home.run(quiescing.wait_quiet, application, timers, refuse_inputs, on_wait, timeout_s)

    def undeploy(
        self,
        application: str,
        *,
        timers: Timers = "keep",
        now: bool = False,
        on_wait: Tell | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Remove all jobs of an application when it has finished: its inputs are refused, what was accepted is waited
        for as by `wait`, then its jobs are removed. With `now`, without waiting. Given up (cancelled, or after
        `timeout_s` in all), jobs that are not removed yet stay as they are, and inputs are let in again. Returns how
        many jobs were removed."""
        return self._home.run(quiescing.undeploy, application, timers, now, on_wait, timeout_s)

    def drain(self, node: str, *, on_wait: Tell | None = None, timeout_s: float | None = None) -> str:
        """Let a node (its id or name) hand over all its partitions; it stays, and owns nothing. Given up, it takes part
        again. Raises `NodeSilent` if nothing is heard of it, `Mistake` if no other node stays,
        `NotFinished` if somebody else has told it to take part again. Returns its id."""
        return self._home.run(draining.drain, node, on_wait, timeout_s)

    def undrain(self, node: str) -> str:
        """Let a drained node take part again. Returns its id."""
        return self._home.run(draining.undrain, node)

    def stop(
        self, node: str, *, drain: bool = False, on_wait: Tell | None = None, timeout_s: float | None = None
    ) -> str:
        """End a node, if nothing runs on it; with `drain`, drain it first. Raises `NotFinished` if something does, and
        `NodeSilent` if nothing is heard of it. One that was told to end does so, also when nobody waits for it any
        more. Returns its id."""
        return self._home.run(draining.stop, node, drain, on_wait, timeout_s)

    @overload
    def shutdown(
        self,
        *,
        snapshot: None = None,
        timers: Timers = "keep",
        on_wait: Tell | None = None,
        timeout_s: float | None = None,
    ) -> list[str]: ...

    @overload
    def shutdown(
        self,
        *,
        snapshot: str,
        timers: Timers = "keep",
        on_wait: Tell | None = None,
        timeout_s: float | None = None,
    ) -> Shutdown: ...

    def shutdown(
        self,
        *,
        snapshot: str | None = None,
        timers: Timers = "keep",
        on_wait: Tell | None = None,
        timeout_s: float | None = None,
    ) -> list[str] | Shutdown:
        """End all nodes, in phases: inputs of all applications are refused, what was accepted is waited for as by
        `wait`, then the nodes go. Members stay, and keep all jobs for the nodes that come next. Given up before that,
        all goes on. Returns the nodes that ended.

        With a place for a `snapshot` it is taken before any node is told to leave, behind all that was acknowledged:
        from its cut on nothing is acknowledged any more (`Backlogged` names what was not), and the cluster goes on
        where it is restored, not here. If it can't be taken, nothing ends, and `NotFinished` says why. Returns the
        nodes and the snapshot.
        """
        if snapshot is None:
            return self._home.run(ending.shutdown, timers, on_wait, timeout_s)
        return self._home.run(ending.shutdown_with_snapshot, snapshot, timers, on_wait, timeout_s)

    def workers(self, application: str = "", *, node: str = "", timeout_s: float | None = None) -> list[WorkerView]:
        """The activities of an application (of all, if none is named) that are wanted or under way; with `node`, those
        that run on its machine."""
        return self._home.run(quiescing.workers, application, node, timeout_s)

    # -- upgrades ---------------------------------------------------------------------------------

    def upgrade(
        self,
        spawn: str | Sequence[str],
        *,
        nodes: Sequence[str] | None = None,
        at_once: int = 1,
        watch_s: float = 3.0,
        log_folder: str | PathLike[str] | None = None,
        on_step: Tell | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, str]:
        """Replace nodes (these, or those that an upgrade that was stopped has left, or all), `at_once` at a time: start
        new ones by the command `spawn`, wait until they serve their share, answer, and for `watch_s` no more jobs fail
        than before; then drain the old ones. Raises `UpgradeStopped` at the first that is not well; each step may take
        `timeout_s` (120 s unless given). Returns which node came for which. See `add_nodes` for `spawn`.
        """
        return self._home.run(upgrading.upgrade, spawn, nodes, at_once, watch_s, log_folder, on_step, timeout_s)

    def plan_upgrade(self, *, nodes: Sequence[str] | None = None, spawn: str | Sequence[str] = ()) -> list[str]:
        """The ids of the nodes that `upgrade` with the same arguments would replace, in order."""
        return self._home.run(upgrading.plan_upgrade, nodes, spawn)

    def upgrade_status(self) -> UpgradeStatus:
        """What an upgrade has done and has left, which versions run, and what could be declared."""
        return self._home.run(upgrading.upgrade_status)

    def finalize(self, *, timeout_s: float | None = None) -> int:
        """End an upgrade: all write the newest format that the nodes read, from now on; there is no way back to a
        version that can't read it. Raises `UpgradeUnfinished` if a node does not. Returns the format."""
        return self._home.run(upgrading.finalize, timeout_s)

    # -- dead letters -----------------------------------------------------------------------------

    def dead_letters(self, *, timeout_s: float | None = None) -> list[DeadLetter]:
        """Messages that no job could take, oldest first."""
        return self._home.run(operations.dead_letters, timeout_s)

    def replay(self, letters: Iterable[DeadLetter], *, timeout_s: float | None = None) -> int:
        """Deliver dead letters again; returns how many were still there."""
        return self._home.run(operations.exhume, letters, True, timeout_s)

    def discard(self, letters: Iterable[DeadLetter], *, timeout_s: float | None = None) -> int:
        """Throw dead letters away; returns how many were still there."""
        return self._home.run(operations.exhume, letters, False, timeout_s)

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self, url: str, *, keep: int = 0, timeout_s: float | None = None) -> Snapshot:
        """Take a snapshot of all jobs, while they go on. What was acknowledged before this call is in it.

        `url` is a directory that all nodes see under this path, or an object store (`s3://…`, with the extra
        `tenure[snapshots]`). With `keep`, only so many snapshots are kept there, the newest; `not_deleted` says what
        was in the way of that. Raises `TryAgain` errors that say why there is none; those before are then as they
        were. The deadline is 10 minutes unless given.
        """
        return self._home.run(operations.snapshot, url, keep, timeout_s)

    def schedule_snapshots(
        self,
        url: str,
        *,
        every_s: float,
        keep: int = 0,
        within_s: float | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Take a snapshot every so often, from now on, whichever nodes come and go. Returns the id of the job that does
        it: `describe` shows its last one, or its last error. The same again changes nothing; other numbers do. Each may
        take `within_s`: 10 minutes unless given; one that takes longer is given up."""
        return self._home.run(operations.schedule_snapshots, url, every_s, keep, within_s, timeout_s)

    def unschedule_snapshots(self, url: str, *, timeout_s: float | None = None) -> None:
        """Take no more of them. Those that are there stay."""
        self._home.run(operations.unschedule_snapshots, url, timeout_s)

    def snapshots(self, url: str) -> list[Snapshot]:
        """The snapshots at this place, oldest first. One that can't be read has a `problem` beside its name, and no
        more."""
        return self._home.run(operations.snapshots, url)

    def verify_snapshot(self, url: str, *, name: str = "") -> Verified:
        """Read a snapshot (the newest, unless named), and compare every checksum."""
        return self._home.run(operations.verify_snapshot, url, name)

    def export_snapshot(self, url: str, to: str | PathLike[str], *, name: str = "") -> int:
        """Write a snapshot (the newest, unless named) to a file as lines of JSON: jobs with their states, topics, dead
        letters, messages on their way. Returns how many."""
        return self._home.run(operations.export_snapshot, url, to, name)

    def restore(
        self,
        url: str,
        *,
        name: str = "",
        replace: bool = False,
        keep_dead_letters: bool = True,
        resume_snapshots: bool = False,
        timeout_s: float | None = None,
    ) -> Restored:
        """Restore a snapshot (the newest, unless named) into this cluster, of whatever size and partition count.

        Where there are jobs, this is refused unless they are to be replaced. Nodes that run go on with what was
        restored. If it is interrupted when it has begun to write, nodes keep out until it is run again.

        Dead letters of the cluster that is replaced are kept, unless told otherwise. Schedules of snapshots go on
        where that is the cluster that was snapshotted; elsewhere they stop, as it may still write to the same place,
        unless they are to be resumed. The result names both.

        Members that don't say what is there are waited for, `timeout_s` at most; what follows takes as long as it does.
        """
        return self._home.run(operations.restore, url, name, replace, keep_dead_letters, resume_snapshots, timeout_s)
