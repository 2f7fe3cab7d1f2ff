"""One node's ownership of one partition: take, run, commit, release; again and again.

    hints ──► lanes ──► queues ──► turns ──► draft ──► record ──► journal ──► release: next slots, answers,
    timers ────────────────┘                                      (fenced)     deletions, sends to others

A single loop does this; only async turns and the courier run beside it. It ends when it is closed, or when
the journal says that another tenure has begun; then everything in memory is forgotten.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from tenure.scheduler.activities_changes import ActivityChanges
from tenure.scheduler.activities_supervisor import Supervisor
from tenure.scheduler.alarms import Alarms
from tenure.scheduler.bulkhead import Pauses
from tenure.scheduler.courier import Courier
from tenure.scheduler.credit import Credit
from tenure.scheduler.cutting import Cutting
from tenure.scheduler.dead_letters import DeadLetters
from tenure.scheduler.definitions import Definitions
from tenure.scheduler.draft import Draft
from tenure.scheduler.errors import Final
from tenure.scheduler.failing import Failing
from tenure.scheduler.forgetting import Forgetting
from tenure.scheduler.grid.port import Map
from tenure.scheduler.heard import Heard
from tenure.scheduler.holding import Holding
from tenure.scheduler.host import Host
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.inlanes import InLanes, is_passed
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.lives import Lives
from tenure.scheduler.purging import Purging
from tenure.scheduler.remembering import Remembering
from tenure.scheduler.running import Running
from tenure.scheduler.sightings import Sightings
from tenure.scheduler.stopping import Stopping
from tenure.scheduler.subscribing import Subscribing
from tenure.scheduler.suspicion import Suspicion
from tenure.scheduler.sweeping import Sweeping
from tenure.scheduler.taking import Taking
from tenure.scheduler.texts import told
from tenure.scheduler.tombstones import Tombstones
from tenure.scheduler.turns import Turns
from tenure.scheduler.wire import Envelope, Kind, Record, RecordKind, Status

__all__ = ["Tenure"]

RESUMED_A_SLICE = 5000
"""So many jobs are looked at, as a tenure begins, before the loop comes round."""
BROUGHT_A_SLICE = 2000
"""The same of those that are brought into memory."""


class Tenure:
    """Serve one partition. Hints come in by `hear_slot` and `offer_definition`; both may be called at any time."""

    def __init__(self, host: Host, journal: Journal) -> None:
        """`journal` must be open."""
        self.host, self.journal = host, journal
        self.settings, self.partition = host.settings, journal.partition
        self.state = journal.state
        self.holding = Holding(self)
        self.remembering = Remembering(self)
        self.credit = Credit(self)
        self.suspicion = Suspicion(self)
        self.turns: Turns = Turns(self)
        self.inlanes: InLanes = InLanes(self.state.cursors, self.state.watermark, host.incarnation)
        self.lives = Lives(self)
        self.taking: Taking = Taking(self)
        self.alarms = Alarms(self)
        self.tombstones = Tombstones(self)
        self.definitions = Definitions(self)
        self.forgetting = Forgetting(self)
        self.courier = Courier(self)
        self.sweeping = Sweeping(self)
        self.activity_changes = ActivityChanges(self)
        self.supervisor = Supervisor(self)
        self.cutting = Cutting(self)
        self.sightings = Sightings(self)
        self.running = Running(self)
        self.failing = Failing(self)
        self.dead_letters = DeadLetters(self)
        self.stopping = Stopping(self)
        self.subscribing = Subscribing(self)
        self.purging = Purging(self)
        self.images = Imaging(journal, lambda text, error: self.host.log_error(text, error))
        self._wake = trio.Event()
        self._closing: str | None = None
        self._draining = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    def hear_slot(self, key: bytes, value: bytes) -> None:
        """An event told of a lane slot."""
        self.sweeping.told(key)
        self.offer_slot(key, value)

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
        self.definitions.sweep_soon()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def close(self, successor: str) -> None:
        """Stop taking; end when running turns are done, or the drain deadline has passed. Said again before that, the
        newest successor counts."""
        is_news, self._closing = self._closing is None, successor
        if is_news:
            self._draining.deadline = trio.current_time() + self.settings.drain_deadline_s
            self.running.begin_no_more()
            self.wake()

    def is_closing(self) -> bool:
        """Running turns may finish; nothing new begins."""
        return self._closing is not None

    async def run(self, *, crashed: bool, heard: Heard | None = None) -> None:
        """Serve until closed. Raises `TenureOver` when another tenure has begun.

        `crashed`: the last tenure did not close. What was waiting then is run with care.
        `heard`: the first sweep, if it has been done.
        """
        await self._resume(crashed)
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
            nursery.start_soon(self._keep_on, "the sweep of the inbox", self.sweeping.run)
            nursery.start_soon(self._keep_on, "the sweep of the definitions", self.definitions.sweeps)
            self.supervisor.begin()
            self.cutting.begin()
            self.stopping.begin()
            await self._serve()
            await self._finish()
            nursery.cancel_scope.cancel()

    async def _resume(self, crashed: bool) -> None:
        """What the state says is to be done."""
        resumable = {type.name for type in self.host.registry if type.keeps_instance}
        versions = {type.name: type.version for type in self.host.registry}
        for n, (id, record) in enumerate(self.state.jobs.items(), 1):
            if n % RESUMED_A_SLICE == 0:
                await trio.lowlevel.checkpoint()
            if record.version > versions.get(record.type, 0):
                self.lives.meet_strange(record)
            self.alarms.resume(id, record)
            if record.activities:
                self.supervisor.resume(id, record)
            if record.status == Status.FINISHING:
                self.stopping.resume(id)
            if record.type in resumable and record.status == Status.RUNNING and record.turns:
                live = self.lives.of(id)
                if not live.queue or live.queue[0].kind != Kind.RESUMED:
                    epoch, origin = self.state.epoch, self.host.origin()
                    self.lives.put_first(live, Envelope(id, kind=Kind.RESUMED, index=epoch, origin=origin))
                self.lives.ready(live)
                if self.turns.is_full():
                    await self.commit()
        self.alarms.resumed()
        for n, id in enumerate(list(self.state.mail), 1):
            self.lives.ready(self.lives.of(id))
            if n % BROUGHT_A_SLICE == 0:
                await trio.lowlevel.checkpoint()
        self.courier.resume()
        if crashed:
            self.suspicion.begin()

    async def _serve(self) -> None:
        lives, images, fences = self.lives, self.images, self.turns.fences
        running, precedence, pace = self.running, self.host.precedence, self.host.pace
        while True:
            if precedence.first and self._closing is None and self.partition not in precedence.first:
                await precedence.let_pass()
            if self._wake.is_set():
                self._wake = trio.Event()
            if not pace.begins():
                await pace.begin()
            if running.begin_pass():
                self.definitions.reconcile()
                self.subscribing.answer()
                if self._closing is None:
                    self.taking.take()
                    self.alarms.ring()
                    self.sightings.answer()
            if fences.are_used_up():
                raise TenureOver(f"partition {self.partition}: opening anew for more fencing tokens")
            if running.rests():
                pace.end()
            else:
                await running.run_ready()  # in the same slice, as far as that goes
            if self.turns.draft.wanted:
                await self.commit()
                precedence.served(self.partition)
                if self._closing is None:
                    if images.is_due():
                        images.start(self.start)
                    if self._rests():
                        await self._wait()
            elif self._closing is not None and not self.running.is_at_work():
                return
            elif not lives.readied or self._closing is not None:  # who closes begins nothing that is ready, either
                precedence.served(self.partition)
                await self._wait()
            else:
                await trio.lowlevel.checkpoint()

    def _rests(self) -> bool:
        """Would a pass find nothing to do? Whatever comes, and what was left for the next pass, says so by `wake`, and
        timers have their time; each part knows what it has besides."""
        if self._wake.is_set() or self.turns.draft.wanted or not self.running.rests():
            return False
        is_known = self.definitions.rests() and self.subscribing.rests()
        return is_known and self.taking.rests() and self.sightings.rests()

    async def _wait(self) -> None:
        if self._closing is None:
            deadline = self._next_due_s()
        elif trio.current_time() < self._draining.deadline:
            # Whatever comes due now is not for us any more: looking at it again and again would only keep us busy.
            deadline = self._draining.deadline
        else:
            self.running.cancel()
            deadline = float("inf")
        if deadline == float("inf"):
            await self._wake.wait()
            return
        with trio.move_on_at(deadline):
            await self._wake.wait()

    def _next_due_s(self) -> float:
        """When, on trio's clock, there is something to do even if nobody says so."""
        return min(self.suspicion.wake_s(), self.alarms.next_s(), self.taking.gap_s())

    def outbox_is_full(self) -> bool:
        """Is more unsent than a partition may hold, with what is about to be committed?"""
        turns = self.turns
        unsent = self.courier.unsent_bytes + turns.draft.sent_bytes
        if turns.in_flight is not None:
            unsent += turns.in_flight.sent_bytes
        return unsent > self.settings.outbox_bytes_max

    def want_commit(self) -> None:
        """Commit the draft soon."""
        self.turns.draft.wanted = True
        self.wake()

    async def commit(self, kind: int = RecordKind.TURNS, successor: str = "") -> None:
        """Journal the draft; then, and only then, let its effects out."""
        turns, state = self.turns, self.state
        draft = turns.begin_draft()
        record = Record(self.host.new_id(), "", kind, state.epoch, self.host.node, self.host.now_ms(), successor)
        draft.freeze(record, state, self.host.formats.encode)
        record.arrived, record.answered = self.courier.confirmed()
        record.cut = self.cutting.due() if kind == RecordKind.TURNS else 0
        await self.journal.commit(record)
        turns.in_flight = None
        if record.cut:
            self.cutting.committed(record.cut)
        self._release(draft, record)

    def _release(self, draft: Draft, record: Record) -> None:
        self.host.grid.discard(Map.INBOX, self.partition, draft.consumed)
        self.courier.send(record.outbox, record.answers)
        draft.tell_committed()
        if draft.remembered:
            self.remembering.added()
        if draft.acted:
            self.supervisor.committed(draft.acted)
        readied, by_id, settle = self.lives.readied, self.lives.by_id, self.running.settle
        for id in (*draft.changed, *draft.done, *draft.gone):
            if id not in readied and (live := by_id.get(id)) is not None:
                settle(live)

    async def _finish(self) -> None:
        """The end of a tenure that was closed: nothing runs, all is committed; say who may go on."""
        assert self._closing is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.ring)  # sent behind the closing record, not after its acknowledgement
            await self.commit(RecordKind.CLOSING, self._closing)

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

    async def _keep_on(self, what: str, task: Callable[[], Awaitable[Any]]) -> None:
        """What only looks for what was missed may fail, and goes on after a pause: nobody else need stop for that."""
        pauses, told_of = Pauses(), ""
        while True:
            try:
                await task()
                return
            except (TenureOver, Final):
                raise
            except Exception as error:  # noqa: BLE001
                pause_s = pauses.next_s()
                if told_of != (told_of := told(error)):
                    text = f"partition {self.partition}: {what} failed, and goes on in {pause_s:g} s: {told_of}"
                    self.host.log_error(text, error)
                await trio.sleep(pause_s)

    def start(self, task: Callable[..., Any], *args: Any) -> None:
        """Run beside the loop, for as long as this tenure."""
        assert self._nursery is not None
        self._nursery.start_soon(task, *args)
