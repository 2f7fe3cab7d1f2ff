"""One node's ownership of one partition: take, run, commit, release; again and again.

    hints ──► lanes ──► queues ──► turns ──► draft ──► record ──► journal ──► release: next slots, answers,
    timers ────────────────┘                                      (fenced)     deletions, sends to others

A single loop does this; only async turns and the courier run beside it. It ends when it is closed, or when
the journal says that another tenure has begun; then everything in memory is forgotten.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import trio

from tenure.scheduler.activities_supervisor import Supervisor
from tenure.scheduler.alarms import Alarms
from tenure.scheduler.assignment import PICKLED
from tenure.scheduler.courier import Courier
from tenure.scheduler.cutting import Cutting
from tenure.scheduler.definitions import Definitions
from tenure.scheduler.draft import Draft
from tenure.scheduler.errors import Undecodable
from tenure.scheduler.forgetting import Forgetting
from tenure.scheduler.grid.port import Map
from tenure.scheduler.heard import Heard
from tenure.scheduler.host import Host
from tenure.scheduler.inlanes import InLanes, is_passed
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.live import Live
from tenure.scheduler.sightings import Sightings
from tenure.scheduler.suspicion import Suspicion
from tenure.scheduler.sweeping import Sweeping
from tenure.scheduler.taking import Taking
from tenure.scheduler.turns import Turns
from tenure.scheduler.wire import Envelope, JobRecord, Kind, Record, RecordKind, Status

__all__ = ["Tenure"]



class Tenure:
    """Serve one partition. Hints come in by `offer_slot` and `offer_definition`; both may be called at any time."""

    def __init__(self, host: Host, journal: Journal) -> None:
        """`journal` must be open."""
        self.host, self.journal = host, journal
        self.settings, self.partition = host.settings, journal.partition
        self.state = journal.state
        self.turns: Turns = Turns(host, self.partition, self.state.epoch, self.state, self)
        self.inlanes: InLanes = InLanes(self.state.cursors, self.state.watermark, host.incarnation)
        self.lives: dict[str, Live] = {}
        self.readied: dict[str, Live] = {}
        """Jobs that may have something to run."""
        self.taking: Taking = Taking(self)
        self.alarms = Alarms(self)
        self.definitions = Definitions(self)
        self.forgetting = Forgetting(self)
        self.courier = Courier(self)
        self.sweeping = Sweeping(self)
        self.supervisor = Supervisor(self)
        self.cutting = Cutting(self)
        self.suspicion = Suspicion(self)
        self.sightings = Sightings(self)
        self.turns.suspicion = self.suspicion
        self._unfinished: list[str] = []
        self._over_outbox: dict[str, Live] = {}
        self._wake = trio.Event()
        self._closing: str | None = None
        self._draining = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._run_scopes: set[trio.CancelScope] = set()
        self._queued_scopes: set[trio.CancelScope] = set()
        """Of run loops that wait until their node may run one more turn."""
        self._image_running = False
        self.last_turns = 0
        self.strange: dict[str, int] = {}
        """Job types, with their versions, that jobs of this partition have and this node can't run."""

    # -- hints from outside -----------------------------------------------------------------------

    def offer_slot(self, key: bytes, value: bytes) -> bool:
        """A lane slot was seen. False: it is below the cursors and may be deleted."""
        wanted = self.inlanes.offer(key, value)
        if wanted:
            self.wake()
        return wanted

    def offer_definition(self, id: str, value: bytes) -> None:
        """A job's definition was seen."""
        self.definitions.offer(id, value)

    def sweep_soon(self) -> None:
        """Events may have been lost, or the partition itself: look now."""
        self.sweeping.soon()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def close(self, successor: str) -> None:
        """Stop taking; end when running turns are done, or the drain deadline has passed."""
        if self._closing is None:
            self._closing = successor
            self._draining.deadline = trio.current_time() + self.settings.drain_deadline_s
            for scope in self._queued_scopes:
                scope.cancel()
            self.wake()

    def is_closing(self) -> bool:
        """Running turns may finish; nothing new begins."""
        return self._closing is not None

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, *, crashed: bool, heard: Heard | None = None) -> None:
        """Serve until closed. Raises `TenureOver` when another tenure has begun.

        `crashed`: the last tenure did not close. What was waiting then is run with care.
        `heard`: the first sweep, if it has been done.
        """
        self._resume(crashed)
        if heard is None:
            heard = Heard()
            await heard.sweep(self.host.grid, self.partition, self.journal.pause)
        self._listen_to(heard)
        try:
            await self._run()
        except BaseExceptionGroup as group:
            over, others = group.split(TenureOver)
            if over is None:
                raise
            if others is not None:
                raise others from None  # it was being cancelled too, which comes to the same
            raise TenureOver(f"partition {self.partition}: another tenure has begun") from group

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.courier.run)
            nursery.start_soon(self.sweeping.run)
            nursery.start_soon(self.definitions.sweeps)
            self.supervisor.begin()
            self.cutting.begin()
            for id in self._unfinished:
                self.definitions.remove(self.live(id))
            await self._serve()
            await self._finish()
            nursery.cancel_scope.cancel()

    def _resume(self, crashed: bool) -> None:
        """What the state says is to be done."""
        resumable = {type.name for type in self.host.registry if type.keeps_instance}
        versions = {type.name: type.version for type in self.host.registry}
        for id, record in self.state.jobs.items():
            if record.version > versions.get(record.type, 0):
                self._meet_strange(record)
            self.alarms.resume(id, record)
            if record.activities:
                self.supervisor.resume(id, record)
            if record.status == Status.FINISHING:
                self._unfinished.append(id)
            if record.type in resumable and record.status == Status.RUNNING and record.turns:
                live = self.live(id)
                if not live.queue or live.queue[0].kind != Kind.RESUMED:
                    self.put_first(live, Envelope(id, kind=Kind.RESUMED, index=self.state.epoch))
                self.ready(live)
        self.alarms.resumed()
        for id in self.state.mail:
            self.ready(self.live(id))
        self.courier.resume()
        if crashed:
            self.suspicion.begin()

    async def _serve(self) -> None:
        while True:
            self._wake = trio.Event()
            self.definitions.reconcile()
            if self._closing is None:
                self.taking.take()
                self.alarms.ring()
                self.sightings.answer()
            if self.turns.are_fences_used_up():
                raise TenureOver(f"partition {self.partition}: opening anew for more fencing tokens")
            await self._run_ready()
            if self.turns.draft.wanted:
                await self.commit()
                if self._closing is None and self.journal.image_is_due():
                    self._start_image()
            elif self._closing is not None and not self._is_running():
                return
            elif not self.readied:
                await self._wait()

    async def _wait(self) -> None:
        if self._closing is None:
            deadline = self._next_due_s()
        elif trio.current_time() < self._draining.deadline:
            # Whatever comes due now is not for us any more: looking at it again and again would only keep us busy.
            deadline = self._draining.deadline
        else:
            self._cancel_running()
            deadline = float("inf")
        with trio.move_on_at(deadline):
            await self._wake.wait()

    def _next_due_s(self) -> float:
        """When, on trio's clock, there is something to do even if nobody says so."""
        return min(self.suspicion.wake_s(), self.alarms.next_s(), self.taking.gap_s())

    def _is_running(self) -> bool:
        return any(live.running for live in self.lives.values())

    def _cancel_running(self) -> None:
        for scope in self._run_scopes:
            scope.cancel()

    def deliver(self, envelope: Envelope) -> None:
        """One message, to whom it is for."""
        self.taking.deliver(envelope)

    # -- jobs in memory ---------------------------------------------------------------------------

    def records(self) -> Iterator[tuple[str, JobRecord]]:
        """The jobs as they are with this draft."""
        for id, record in self.state.jobs.items():
            if id not in self.lives:
                yield id, record
        for id, live in self.lives.items():
            if live.exists():
                yield id, live.record()

    def live(self, id: str) -> Live:
        """The job as it is in memory, brought there from its record if need be. It may not exist (yet)."""
        live = self.lives.get(id)
        if live is None:
            live = self.lives[id] = Live(id)
            if (mail := self.state.mail.get(id)) is not None:
                live.queue.extend(mail)
                live.carried = len(mail)
            if (record := self.state.jobs.get(id)) is not None:
                self.adopt(live, record)
        return live

    def adopt(self, live: Live, record: JobRecord) -> None:
        """This is what the job is now."""
        live.load(record)
        type, reason = self.host.type_of(record)
        if type is None:
            live.stuck = reason
            self._meet_strange(record)
            self.host.report(f"job {live.id!r} is parked on this node: {reason}")
            return
        live.stuck, live.type = "", type
        try:
            type.load(live.state, live.version)
        except Undecodable as error:
            live.stuck = f"Undecodable: {error}"
            self.host.report(f"job {live.id!r} is parked: {error}; its bytes are kept")

    def _meet_strange(self, record: JobRecord) -> None:
        """This node can't run it, perhaps; others may."""
        if self.host.type_of(record)[0] is None:
            name, version = (PICKLED, 1) if record.pickled else (record.type, record.version)
            self.strange[name] = max(version, self.strange.get(name, 0))

    def ready(self, live: Live) -> None:
        """Its queue may have something to run."""
        if (current := self.lives.get(live.id)) is not None:
            self.readied[live.id] = current
            self.wake()

    def removed(self, live: Live) -> None:
        """The job is gone; what still waits for it is dealt with like messages to a job that never was."""
        rest = Live(live.id)
        rest.queue, rest.carried, rest.precounted = live.queue, live.carried, live.precounted
        live.queue, live.carried, live.precounted = deque(), 0, 0
        live.type_name = ""
        self.turns.draft.recounted.pop(live.id, None)
        self.lives[live.id] = rest
        self.definitions.after_removal(live.id)
        if rest.queue:
            self.turns.draft.uncarried[live.id] = rest
            self.ready(rest)
        else:
            self.turns.draft.uncarried.pop(live.id, None)

    def finish_wanted(self, live: Live) -> None:
        """A job has asked for its own end: its definition must say so first, lest it be made again."""
        live.status = Status.FINISHING
        live.timer = None
        self.definitions.remove(live)

    def stop(self, live: Live) -> None:
        """Removal is wanted: what was accepted is finished first, then `on_stop` runs."""
        if live.status == Status.STOPPING:
            return
        is_stuck = live.stuck and live.id not in self._over_outbox
        was_running = live.status in (Status.RUNNING, Status.FINISHING) and not is_stuck
        live.status = Status.STOPPING
        live.timer, live.failure = None, None
        stop = Envelope(live.id, kind=Kind.STOP)
        if was_running:
            live.queue.append(stop)
        else:
            # A job that was stopped in its tracks goes at once; its messages are dead letters.
            self.put_first(live, stop)
        self.turns.draft.changed[live.id] = self.turns.draft.uncarried[live.id] = live
        self.turns.draft.wanted = True
        self.supervisor.cancel_all(live)
        if is_stuck:
            self.activity_ended(live)
        else:
            self.ready(live)

    def activity_ended(self, live: Live) -> None:
        """A job that can't run on this node goes when the last of its activities has ended."""
        is_stuck = live.stuck and live.id not in self._over_outbox
        is_last = live.queue and live.queue[0].kind == Kind.STOP and not live.awaits_activities()
        if is_stuck and is_last and live.exists():
            self.turns.done(live, live.queue[0])
            self.turns.remove(live)
        else:
            self.ready(live)

    def put_first(self, live: Live, envelope: Envelope) -> None:
        """Ahead of all that waits, but behind the turn that runs."""
        # The mailbox only grows at its end, so all of it is written anew behind the new first entry.
        draft = self.turns.draft
        if live.carried:
            draft.done[live.id] = draft.done.get(live.id, 0) + live.carried
            steps = self.state.steps.get(live.id, {})  # they would go with the mailbox
            draft.steps[:0] = [(live.id, turn, name, result) for (turn, name), result in steps.items()]
        live.uncount(1 if live.running else 0)
        live.carried = 0
        live.queue.insert(1 if live.running else 0, envelope)
        draft.uncarried[live.id] = live

    def set_timer(self, live: Live) -> None:
        """Its timer was set (or taken away)."""
        self.alarms.set_timer(live)

    def retry_at(self, live: Live, at_ms: int) -> None:
        """Its first event failed and is due again at this time."""
        self.alarms.retry_at(live, at_ms)

    def outbox_is_full(self) -> bool:
        """Is more unsent than a partition may hold?"""
        return self.courier.unsent_bytes > self.settings.outbox_bytes_max

    def park_sender(self, live: Live) -> None:
        """Its messages don't fit into the outbox: it goes on when there is room."""
        self._over_outbox[live.id] = live

    def want_commit(self) -> None:
        """Commit the draft soon."""
        self.turns.draft.wanted = True
        self.wake()

    # -- running ----------------------------------------------------------------------------------

    async def _run_ready(self) -> None:
        """Run what can be run: plain turns to their end, async ones in tasks of their own."""
        if self._over_outbox and not self.outbox_is_full():
            self._unpark_senders()
        if self.suspicion.is_on():
            await self.suspicion.count(self.readied)
        ready, self.readied = self.readied, {}
        tasks = 0
        for live in ready.values():
            if not live.queue:
                self._settle(live)
            elif not live.exists():
                self.definitions.look_up(live)
            elif live.may_run():
                if self.suspicion.holds(live):
                    self.suspicion.hold(live)
                elif live.type.is_async:
                    tasks += self._start_run_loop(live)
                else:
                    self.turns.run_plain(live)
                    if live.may_run() and live.queue:
                        self.ready(live)
                    else:
                        self._settle(live)
        if self.suspicion.wants_more():
            self.wake()
        if tasks:
            # Handlers that don't really wait are done after a tick or two: let them into this record.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()

    def _start_run_loop(self, live: Live) -> int:
        if self._closing is not None:
            return 0  # the next owner has it in the mailbox
        live.running = True
        self.start(self._run_loop, live)
        return 1

    async def _run_loop(self, live: Live) -> None:
        with trio.CancelScope() as scope:
            self._queued_scopes.add(scope)
            try:
                async with self.host.turns:
                    self._queued_scopes.discard(scope)
                    self._run_scopes.add(scope)
                    await self.turns.run_loop(live)
            finally:
                self._queued_scopes.discard(scope)
                self._run_scopes.discard(scope)
                live.running = False
                self.ready(live)

    def _settle(self, live: Live) -> None:
        """Nothing more to do for this job now: forget it, unless its object is worth keeping."""
        self.taking.settled(live)
        if not live.is_idle() or self._is_yet_to_commit(live.id):
            return
        if live.instance is not None and (live.type.keeps_instance or len(self.lives) <= self._lives_max()):
            return
        self.lives.pop(live.id, None)

    def _is_yet_to_commit(self, id: str) -> bool:
        # Brought back from what is committed, it would have again what was done since.
        turns = self.turns
        drafts = (turns.draft,) if turns.in_flight is None else (turns.draft, turns.in_flight)
        return any(id in draft.changed or id in draft.done or id in draft.gone for draft in drafts)

    def _lives_max(self) -> int:
        return max(16, self.settings.instances_max // max(1, self.host.grid.partition_count))

    def _unpark_senders(self) -> None:
        for live in self._over_outbox.values():
            live.stuck = ""
            self.ready(live)
        self._over_outbox.clear()

    # -- committing -------------------------------------------------------------------------------

    async def commit(self, kind: int = RecordKind.TURNS, successor: str = "") -> None:
        """Journal the draft; then, and only then, let its effects out."""
        turns, state = self.turns, self.state
        draft, turns.draft = turns.draft, Draft()
        turns.in_flight = draft
        record = Record(self.host.new_id(), "", kind, state.epoch, self.host.node, self.host.now_ms(), successor)
        draft.freeze(record, state, self.host.formats.encode)
        record.arrived, record.answered = self.courier.confirmed()
        record.cut = self.cutting.due() if kind == RecordKind.TURNS else 0
        await self.journal.commit(record)
        turns.in_flight = None
        if record.cut:
            self.cutting.committed(record.cut)
        self.last_turns += len(draft.changed)
        self._release(draft, record)

    def _release(self, draft: Draft, record: Record) -> None:
        self.host.grid.discard(Map.INBOX, self.partition, draft.consumed)
        self.courier.send(record.outbox, record.answers)
        draft.committed.set()
        if draft.acted:
            self.supervisor.committed(draft.acted)
        for id in (*draft.changed, *draft.done, *draft.gone):
            if id not in self.readied and (live := self.lives.get(id)) is not None:
                self._settle(live)

    def _start_image(self) -> None:
        if not self._image_running:
            self._image_running = True
            self.start(self._write_image)

    async def _write_image(self) -> None:
        try:
            await self.journal.write_image()
        finally:
            self._image_running = False

    async def _finish(self) -> None:
        """The end of a tenure that was closed: nothing runs, all is committed; say who may go on."""
        assert self._closing is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.ring)  # sent behind the closing record, not after its acknowledgement
            await self.commit(RecordKind.CLOSING, self._closing)

    # -- what others do beside the loop -------------------------------------------------------------

    def _listen_to(self, heard: Heard) -> None:
        if heard.again:
            self.sweep_soon()
        for key, value in heard.slots.items():
            self.offer_slot(key, value)
        self.host.grid.discard(Map.INBOX, self.partition, [key for key in heard.slots if self.is_passed(key)])
        for id, value in heard.definitions.items():
            self.offer_definition(id, value)

    def is_passed(self, key: bytes) -> bool:
        """Is this slot below the committed cursors?"""
        return is_passed(key, self.state.cursors, self.state.watermark, self.host.incarnation)

    def start(self, task: Callable[..., Any], *args: Any) -> None:
        """Run beside the loop, for as long as this tenure."""
        assert self._nursery is not None
        self._nursery.start_soon(task, *args)
