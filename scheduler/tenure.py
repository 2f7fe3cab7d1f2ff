"""One node's ownership of one partition: take, run, commit, release; again and again.

    hints ──► lanes ──► queues ──► turns ──► draft ──► record ──► journal ──► release: next slots, answers,
    timers ────────────────┘                                      (fenced)     deletions, sends to others

A single loop does this; only async turns and the courier run beside it. It ends when it is closed, or when
the journal says that another tenure has begun; then everything in memory is forgotten.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

import trio
from msgspec import structs

from tenure.scheduler import commands
from tenure.scheduler.courier import Courier
from tenure.scheduler.definitions import Definitions
from tenure.scheduler.draft import Draft
from tenure.scheduler.errors import BadSchedule, Undecodable, UnreadableFormat
from tenure.scheduler.forgetting import Forgetting
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.host import Host
from tenure.scheduler.inlanes import InLanes, Slot, is_passed
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.keys import is_partition_sender
from tenure.scheduler.live import Live
from tenure.scheduler.suspicion import Suspicion
from tenure.scheduler.timers import ring
from tenure.scheduler.turns import Turns
from tenure.scheduler.wire import Batch, Envelope, JobRecord, Kind, Record, RecordKind, Status, decode

__all__ = ["Tenure"]

GAP_PATIENCE_S = 0.01
TIMERS_SPARE = 1000
SWEEPS_A_CLEARING = 30
"""What deletions left behind is looked for in the second sweep (not amid a handoff), and then this rarely."""


class Tenure:
    """Serve one partition. Hints come in by `offer_slot` and `offer_definition`; both may be called at any time."""

    def __init__(self, host: Host, journal: Journal) -> None:
        """`journal` must be open."""
        self.host, self.journal = host, journal
        self.settings, self.partition = host.settings, journal.partition
        self.state = journal.state
        self.turns = Turns(host, self.partition, self.state.epoch, self.state, self)
        self.inlanes = InLanes(self.state.cursors, self.state.watermark)
        self.definitions = Definitions(self)
        self.forgetting = Forgetting(self)
        self.courier = Courier(self)
        self.suspicion = Suspicion(self)
        self.turns.suspicion = self.suspicion
        self.lives: dict[str, Live] = {}
        self._ready: dict[str, Live] = {}
        self._timers: list[tuple[int, str]] = []
        self._retries: list[tuple[int, str]] = []
        self._full: set[str] = set()
        """Jobs whose mailbox is full: client lanes that feed them are not taken from."""
        self._held_back: dict[bytes, None] = {}
        self._unfinished: list[str] = []
        self._over_outbox: dict[str, Live] = {}
        self._wake = trio.Event()
        self._sweep = trio.Event()
        self._closing: str | None = None
        self._draining = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._run_scopes: set[trio.CancelScope] = set()
        self._image_running = False
        self._gap_since_s, self._gap_patience_s = 0.0, GAP_PATIENCE_S
        self.last_turns = 0

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
        self._sweep.set()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def close(self, successor: str) -> None:
        """Stop taking; end when running turns are done, or the drain deadline has passed."""
        if self._closing is None:
            self._closing = successor
            self._draining.deadline = trio.current_time() + self.settings.drain_deadline_s
            self.wake()

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, *, crashed: bool) -> None:
        """Serve until closed. Raises `TenureOver` when another tenure has begun.

        `crashed`: the last tenure did not close. What was waiting then is run with care.
        """
        self._resume(crashed)
        await self._first_sweep()
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
            nursery.start_soon(self._sweeps)
            nursery.start_soon(self.definitions.sweeps)
            for id in self._unfinished:
                self.definitions.remove(self.live(id))
            await self._serve()
            await self._finish()
            nursery.cancel_scope.cancel()

    def _resume(self, crashed: bool) -> None:
        """What the state says is to be done."""
        resumable = {type.name for type in self.host.registry if type.keeps_instance}
        for id, record in self.state.jobs.items():
            if record.timer is not None and record.status == Status.RUNNING:
                self._timers.append((record.timer.first_ms(), id))
            if record.failure is not None and record.failure.retry_ms:
                self._retries.append((record.failure.retry_ms, id))
            if record.status == Status.FINISHING:
                self._unfinished.append(id)
            if record.type in resumable and record.status == Status.RUNNING and record.turns:
                live = self.live(id)
                if not live.queue or live.queue[0].kind != Kind.RESUMED:
                    self.put_first(live, Envelope(id, kind=Kind.RESUMED, index=self.state.epoch))
                self.ready(live)
        heapq.heapify(self._timers)
        heapq.heapify(self._retries)
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
                self._take()
                self._ring()
            if self.turns.are_fences_used_up():
                raise TenureOver(f"partition {self.partition}: opening anew for more fencing tokens")
            await self._run_ready()
            if self.turns.draft.wanted:
                await self.commit()
                if self._closing is None and self.journal.image_is_due():
                    self._start_image()
            elif self._closing is not None and not self._is_running():
                return
            elif not self._ready:
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
        """When, on trio's clock, a timer or retry comes due; wall clocks may jump, so never sleep long."""
        due_ms = min((heap[0][0] for heap in (self._timers, self._retries) if heap), default=None)
        now_s = trio.current_time()
        at_s = self.suspicion.wake_s()
        if due_ms is not None:
            at_s = min(at_s, now_s + min(1.0, max(0.0, (due_ms - self.host.now_ms()) / 1000)))
        if self._gap_since_s:
            at_s = min(at_s, self._gap_since_s + self._gap_patience_s)
        return at_s

    def _is_running(self) -> bool:
        return any(live.running for live in self.lives.values())

    def _cancel_running(self) -> None:
        for scope in self._run_scopes:
            scope.cancel()

    # -- taking -----------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take what is next in each lane, up to a group."""
        lanes, draft = self.inlanes, self.turns.draft
        messages = size_bytes = 0
        senders, lanes.fresh = lanes.fresh, {}
        last: bytes | None = None
        for sender in senders:
            while messages < self.settings.group_messages_max and size_bytes < self.settings.group_bytes_max:
                slot = lanes.next_slot(sender)
                if slot is None:
                    break
                batch = self._read(slot)
                if self._is_held_back(sender, batch):
                    self._held_back[sender] = None
                    break
                lanes.take(slot)
                draft.cursors[slot.sender] = (slot.lane, slot.n + 1)
                draft.consumed.append(slot.key)
                draft.wanted = True
                self.forgetting.heard(sender)
                messages += len(batch)
                size_bytes += len(slot.value)
                for index, envelope in enumerate(batch):
                    envelope.slot, envelope.index = slot.key, index
                    self.deliver(envelope)
            else:
                if last is None:
                    last = sender
                else:
                    lanes.fresh[sender] = None
        if last is not None:
            lanes.fresh[last] = None  # whoever was served goes to the end
            self.wake()
        self._mind_gaps()

    def _read(self, slot: Slot) -> list[Envelope]:
        try:
            return decode(slot.value, Batch).envelopes
        except (Undecodable, UnreadableFormat) as error:
            # Its bytes are kept; whoever sent it sent nothing that we could do.
            from msgspec import Raw, msgpack

            envelope = Envelope(f"slot {slot.key.hex()}", Raw(msgpack.encode(slot.value)), slot=slot.key)
            self.turns.bury(envelope, type(error).__name__, str(error))
            return []

    def _is_held_back(self, sender: bytes, batch: list[Envelope]) -> bool:
        # Partitions are never held back: they could wait for each other in a circle. Nor are questions and
        # commands: they may be what the job needs to go on.
        if not self._full or is_partition_sender(sender):
            return False
        return any(envelope.to in self._full and envelope.kind == Kind.MESSAGE for envelope in batch)

    def _mind_gaps(self) -> None:
        """Slots that wait for one that has not come: its event may have been lost, so read it."""
        if not self.inlanes.waiting:
            self._gap_since_s = 0.0
            return
        gaps = list(self.inlanes.gaps())
        now_s = trio.current_time()
        if not gaps:
            self._gap_since_s = 0.0
        elif not self._gap_since_s:
            self._gap_since_s, self._gap_patience_s = now_s, GAP_PATIENCE_S
        elif now_s >= self._gap_since_s + self._gap_patience_s:
            self._gap_since_s = now_s
            self._gap_patience_s = min(2 * self._gap_patience_s, self.settings.sweep_s)
            self.start(self._read_slots, gaps)

    async def _read_slots(self, keys: list[bytes]) -> None:
        try:
            for key, value in (await self.host.grid.get_all(Map.INBOX, self.partition, keys)).items():
                self.offer_slot(key, value)
        except GridError:
            pass

    def deliver(self, envelope: Envelope) -> None:
        """One message that was taken, to whom it is for."""
        kind = envelope.kind
        if kind == Kind.MESSAGE:
            live = self.lives.get(envelope.to) or self.live(envelope.to)
            live.queue.append(envelope)
            if len(live.queue) >= self.settings.mailbox_messages_max:
                self._full.add(live.id)
            self._ready[live.id] = live
            self.turns.draft.uncarried[live.id] = live
        elif kind == Kind.STATE:
            self._ask_state(envelope)
        elif kind == Kind.TOPIC:
            self._fan_out(envelope)
        elif kind == Kind.TYPE:
            self._to_type(envelope)
        elif kind == Kind.SUBSCRIBE:
            self.turns.draft.subscribed.append((envelope.to, envelope.source, commands.body_of(envelope) is True))
        elif kind == Kind.COMMAND:
            commands.run(self, envelope)
        else:
            self.turns.bury(envelope, "Undecodable", f"no such kind of message: {kind}")

    def _ask_state(self, envelope: Envelope) -> None:
        live = self.live(envelope.to)
        if live.exists() and (not live.queue or not live.may_run()):
            self.turns.answer_state(live, envelope)
            return
        # Behind what was sent before; or its definition must be looked up first.
        live.queue.append(envelope)
        self.turns.draft.uncarried[live.id] = live
        self.ready(live)

    def _fan_out(self, envelope: Envelope) -> None:
        for job in self._subscribers(envelope.to):
            sent = Envelope(job, envelope.body.copy(), Kind.MESSAGE, envelope.id, 0, envelope.source, topic=envelope.to)
            self.turns.draft.sends.setdefault(self.host.partition_of(job), []).append(sent)
        self.turns.answer_value(envelope, None)

    def _subscribers(self, topic: str) -> list[str]:
        jobs = dict(self.state.subscribers.get(topic, {}))
        for changed, job, wanted in self.turns.draft.subscribed:
            if changed == topic:
                if wanted:
                    jobs[job] = None
                else:
                    jobs.pop(job, None)
        return list(jobs)

    def _to_type(self, envelope: Envelope) -> None:
        ids = {id for id, record in self.state.jobs.items() if record.type == envelope.to}
        ids |= {id for id, live in self.lives.items() if live.type_name == envelope.to}
        ids -= {id for id, live in self.lives.items() if live.type_name != envelope.to}
        ids |= set(self.definitions.about_to_be(envelope.to))
        for id in sorted(ids):
            self.deliver(
                Envelope(
                    id,
                    envelope.body,
                    Kind.MESSAGE,
                    envelope.id,
                    0,
                    envelope.source,
                    envelope.slot,
                    envelope.index,
                    topic="*",
                )
            )
        self.turns.answer_value(envelope, len(ids))

    # -- jobs in memory ---------------------------------------------------------------------------

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
            self.host.report(f"job {live.id!r} is parked on this node: {reason}")
            return
        live.stuck, live.type = "", type
        try:
            type.load(live.state, live.version)
        except Undecodable as error:
            live.stuck = f"Undecodable: {error}"
            self.host.report(f"job {live.id!r} is parked: {error}; its bytes are kept")

    def ready(self, live: Live) -> None:
        """Its queue may have something to run."""
        if (current := self.lives.get(live.id)) is not None:
            self._ready[live.id] = current
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
        if is_stuck:
            live.queue.popleft()
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
        if live.timer is not None and (due_ms := live.timer.first_ms()):
            heapq.heappush(self._timers, (due_ms, live.id))
            if len(self._timers) > TIMERS_SPARE + 2 * (len(self.state.jobs) + len(self.lives)):
                self._drop_stale_timers()

    def _drop_stale_timers(self) -> None:
        # A timer that is set anew leaves its old entry behind.
        current = {id: record.timer for id, record in self.state.jobs.items()}
        current |= {id: live.timer for id, live in self.lives.items()}
        self._timers = [(timer.first_ms(), id) for id, timer in current.items() if timer is not None]
        heapq.heapify(self._timers)

    def retry_at(self, live: Live, at_ms: int) -> None:
        """Its first event failed and is due again at this time."""
        heapq.heappush(self._retries, (at_ms, live.id))

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

    def _ring(self) -> None:
        """Timers and retries that are due become events."""
        now_ms = self.host.now_ms()
        while self._retries and self._retries[0][0] <= now_ms:
            live = self.live(heapq.heappop(self._retries)[1])
            if live.failure is not None and 0 < live.failure.retry_ms <= now_ms:
                live.failure = structs.replace(live.failure, retry_ms=0)
                self.ready(live)
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, id = heapq.heappop(self._timers)
            if id not in self.lives and id not in self.state.jobs:
                continue
            live = self.live(id)
            if live.timer is not None and live.timer.first_ms() <= due_ms and live.status == Status.RUNNING:
                self._ring_one(live, now_ms)

    def _ring_one(self, live: Live, now_ms: int) -> None:
        if live.stuck:
            heapq.heappush(self._timers, (now_ms + 1000, live.id))
            return
        assert live.timer is not None
        type, draft = live.type, self.turns.draft
        try:
            live.timer, fired = ring(live.timer, now_ms, type.misfire, round(type.misfire_grace_s * 1000))
        except BadSchedule as error:
            live.stuck = f"BadSchedule: {error}"
            self.host.report(f"job {live.id!r} is parked on this node: {live.stuck}")
            return
        kinds = {"timeout": Kind.TIMEOUT, "cron": Kind.CRON}
        live.queue.extend(Envelope(live.id, kind=kinds[kind], index=due_ms) for kind, due_ms in fired)
        self.set_timer(live)
        draft.changed[live.id] = draft.uncarried[live.id] = live
        draft.wanted = True
        self.ready(live)

    async def _run_ready(self) -> None:
        """Run what can be run: plain turns to their end, async ones in tasks of their own."""
        if self._over_outbox and not self.outbox_is_full():
            self._unpark_senders()
        if self.suspicion.is_on():
            await self.suspicion.count(self._ready)
        ready, self._ready = self._ready, {}
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
        if self._closing is not None and trio.current_time() >= self._draining.deadline:
            return 0
        live.running = True
        self.start(self._run_loop, live)
        return 1

    async def _run_loop(self, live: Live) -> None:
        with trio.CancelScope() as scope:
            self._run_scopes.add(scope)
            try:
                async with self.host.turns:
                    await self.turns.run_loop(live)
            finally:
                self._run_scopes.discard(scope)
                live.running = False
                self.ready(live)

    def _settle(self, live: Live) -> None:
        """Nothing more to do for this job now: forget it, unless its object is worth keeping."""
        if live.id in self._full and 2 * len(live.queue) < self.settings.mailbox_messages_max:
            self._full.discard(live.id)
            self.inlanes.fresh.update(self._held_back)
            self._held_back.clear()
            self.wake()
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
        draft.freeze(record, state)
        record.arrived, record.answered = self.courier.confirmed()
        await self.journal.commit(record)
        turns.in_flight = None
        self.last_turns += len(draft.changed)
        self._release(draft, record)

    def _release(self, draft: Draft, record: Record) -> None:
        self.host.grid.discard(Map.INBOX, self.partition, draft.consumed)
        self.courier.send(record.outbox, record.answers)
        draft.committed.set()
        for id in (*draft.changed, *draft.done, *draft.gone):
            if id not in self._ready and (live := self.lives.get(id)) is not None:
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
        await self.commit(RecordKind.CLOSING, self._closing)

    # -- sweeping ---------------------------------------------------------------------------------

    async def _sweeps(self) -> None:
        """Find slots that no event told of; delete what lies below the cursors; later, the journal's remains."""
        pause_s, sweeps = 0.0, 0
        while True:
            with trio.move_on_after(pause_s):
                await self._sweep.wait()
            self._sweep = trio.Event()
            pause_s = self.settings.sweep_s * (0.5 + self.host.random.random())
            try:
                await self._sweep_inbox()
                await self.forgetting.sweep()
                if not await self.journal.still_ours():
                    raise TenureOver(f"partition {self.partition}: its head is no longer ours")
                sweeps += 1
                if sweeps % SWEEPS_A_CLEARING == 2:
                    await self.journal.sweep()
                    self.state.forget_expired(self.host.now_ms())
            except GridError:
                pause_s = min(pause_s, self.settings.retry_pause_max_s)

    async def _first_sweep(self) -> None:
        attempt = 0
        while True:
            try:
                return await self._sweep_inbox()
            except GridError:
                attempt += 1
                await self.journal.pause(attempt)

    async def _sweep_inbox(self) -> None:
        async for page in self.host.grid.scan(Map.INBOX, self.partition):
            for entry in page:
                self.offer_slot(entry.key, entry.value)
            # Only what a *committed* cursor has passed: the turns of what was merely taken may yet be lost.
            self.host.grid.discard(Map.INBOX, self.partition, [e.key for e in page if self.is_passed(e.key)])

    def is_passed(self, key: bytes) -> bool:
        """Is this slot below the committed cursors?"""
        return is_passed(key, self.state.cursors, self.state.watermark)

    def start(self, task: Callable[..., Any], *args: Any) -> None:
        """Run beside the loop, for as long as this tenure."""
        assert self._nursery is not None
        self._nursery.start_soon(task, *args)
