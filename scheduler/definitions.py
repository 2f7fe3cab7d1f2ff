"""From what jobs should be (the `jobs` map) to what they are (the journal).

Events and sweeps show definitions; the tenure reconciles. It acts on none that was merely seen: a job is made,
paused, resumed or removed only when a conditional write has proved that its definition is current, and that backups
have it. What is read may be stale or missing, and what an event tells of may be lost with its member. A message is
called undeliverable only when its job's absence was proved. The rules are those of `tests/models/definitions_model.py`.
"""

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec.structs import replace

from tenure.scheduler import commands
from tenure.scheduler.errors import Undecodable, UnreadableFormat, WrongType
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.journal import TenureOver
from tenure.scheduler.live import Live
from tenure.scheduler.texts import told
from tenure.scheduler.wire import EMPTY, Definition, Envelope, Failure, JobRecord, Kind, Status, decode

if TYPE_CHECKING:
    from tenure.scheduler.draft import Draft
    from tenure.scheduler.tenure import Tenure

__all__ = ["Definitions", "never_was", "removed"]

SHARE = 0.25
"""Of what a pass has left of its slice, definitions have so much: messages, timers and turns have the rest."""
SPREAD_S = 0.5
"""The first sweeps of partitions that open together are spread over so long."""
REST = 10
"""A node reads the definitions of one partition after the other, and rests so many times as long as each took: a
million of them would keep a processor busy all the time."""


class Definitions:
    """One tenure's view of its partition's definitions."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.partition = tenure, tenure.host, tenure.partition
        self._encode = tenure.host.formats.encode
        self._seen: dict[str, tuple[Definition, bytes | None]] = {}
        """With its very bytes, if it was seen in the map."""
        self._current: list[tuple[str, Definition]] = []
        """Proved to be current at some moment since a look-up began, of jobs that were not known here."""
        self._proved: list[tuple[str, Definition, int]] = []
        """The same, of jobs that were; with the revision that was reached when the proof began."""
        self._proving: dict[str, None] = {}
        """Jobs whose definition is being proved, as what was seen differs from their record."""
        self._looked_up: dict[str, Definition] = {}
        """Seen, and being proved: jobs that are about to be created."""
        self._overtaking: dict[str, Definition] = {}
        """Seen or proved since a look-up of the same job began: what that proves may be older."""
        self._postponed: list[Envelope] = []
        """Questions about all jobs that wait for those."""
        self._after_removal: dict[str, Definition] = {}
        self._waiting: list[tuple[Envelope, int, bool, Definition | None]] = []
        """Questions that are answered when their job has reached a revision (or, if it is to end: as soon as it does),
        and what was proved since."""
        self._soon = trio.Event()
        self._ends_s = 0.0
        """Of this pass's part in the slice."""
        self._births = itertools.count(1)

    # -- what is seen -----------------------------------------------------------------------------

    def offer(self, id: str, value: bytes) -> None:
        """A definition was seen, perhaps an old one."""
        try:
            definition = decode(value, Definition)
        except (Undecodable, UnreadableFormat) as error:
            self.host.report(f"the definition of job {id!r} can't be read and is left alone: {error}")
            return
        seen = self._seen.get(id)
        if seen is None or seen[0].revision < definition.revision:
            self._seen[id] = definition, value
            self.tenure.wake()

    def look_up(self, live: Live, seen: bytes | None = None) -> None:
        """Something waits for a job that is not known here: find out whether it exists. `seen`: what its definition
        may be."""
        if not live.loading:
            live.loading = True
            self.tenure.start(self._look_up, live.id, seen)

    async def _look_up(self, id: str, seen: bytes | None) -> None:
        proved = await self._prove_stored(id, seen, creating=True)
        if proved is None:
            self._looked_up.pop(id, None)
            self._overtaking.pop(id, None)
            self.tenure.lives.of(id).loading = False
        else:
            self._current.append((id, proved[0]))
        self.tenure.wake()

    async def current(self, id: str) -> Definition | None:
        """A job's definition as it certainly is; None if it can't be read, or there is none."""
        definition = await self._prove(id)
        return definition if definition is not None and definition.generation else None

    def _prove_soon(self, id: str, seen: bytes | None) -> None:
        """What was seen of a job differs from its record."""
        if id not in self._proving:
            self._proving[id] = None
            self.tenure.start(self._prove_seen, id, seen)

    async def _prove_seen(self, id: str, seen: bytes | None) -> None:
        revision = self._reached_by(id)
        definition = await self._prove(id, seen)
        del self._proving[id]
        if definition is not None:
            self._proved.append((id, definition, revision))
        self.tenure.wake()

    def _reached_by(self, id: str) -> int:
        live, record = self.tenure.lives.by_id.get(id), self.tenure.state.jobs.get(id)
        return live.revision if live is not None else record.revision if record is not None else 0

    async def _prove(self, id: str, seen: bytes | None = None) -> Definition | None:
        """The definition as it certainly is (or was, a moment ago); a tombstone if there is none.

        None: it can't be read; that is reported, and its messages wait.
        """
        proved = await self._prove_stored(id, seen)
        return None if proved is None else proved[0]

    async def _prove_stored(
        self, id: str, seen: bytes | None = None, *, creating: bool = False
    ) -> tuple[Definition, bytes] | None:
        """The same, with its very bytes: another version may write the same with others. `seen`: what they may be.
        `creating`: there is no such job here, and one is to be made of it."""
        grid, key, attempt, value = self.host.grid, id.encode(), 0, seen
        while True:
            try:
                if value is None:
                    value = await grid.get(Map.JOBS, self.partition, key)
                if value is None:
                    nothing = never_was(self._birth(), self.host.now_ms())
                    new = self._encode(nothing)
                    value = await grid.put_if_absent(Map.JOBS, self.partition, key, new)
                    if value is None:
                        return nothing, new
                new = self._numbered(value) if creating else value
                if await grid.replace_if_same(Map.JOBS, self.partition, key, value, new):
                    definition = decode(new, Definition)
                    if definition.incarnation > self.host.incarnation:
                        raise TenureOver(f"partition {self.partition}: a snapshot was restored here since")
                    return definition, new
            except GridError:
                pass
            except (Undecodable, UnreadableFormat) as error:
                self.host.report(f"the definition of job {id!r} can't be read, its messages wait: {error}")
                return None
            if seen is None:
                attempt += 1
                await self.tenure.journal.pause(attempt)
            seen = value = None

    def _birth(self) -> bytes:
        return f"{self.host.incarnation}.{self.tenure.state.epoch}.{next(self._births)}".encode()

    def _numbered(self, value: bytes) -> bytes:
        """The definition of a job that is to be made, with a generation that its id never had: above all those whose
        tombstones may have been forgotten. The journal is looked at after the definition was read, never before."""
        definition, given = decode(value, Definition), self.tenure.state.generations
        if definition.wanted == "removed" or definition.generation > given:
            return value
        return self._encode(replace(definition, generation=given + 1, revision=definition.revision + 1))

    # -- what follows -----------------------------------------------------------------------------

    def rests(self) -> bool:
        """Is there nothing to reconcile, and nobody who waits for it?"""
        return not (self._seen or self._proved or self._current or self._waiting or self._postponed)

    def reconcile(self) -> None:
        """Make jobs what their definitions say, in the draft."""
        now_s = self.host.pace.clock()
        self._ends_s = now_s + (self.host.pace.ends_s - now_s) * SHARE
        while self._seen and not self._must_end():
            id = next(iter(self._seen))
            self._reconcile_seen(id, *self._seen.pop(id))
        if self._proved:
            proved, self._proved = deque(self._proved), []
            while proved and not self._must_end():
                self._reconcile_proved(*proved.popleft())
            self._proved[:0] = proved
        if self._current:
            current, self._current = deque(self._current), []
            while current and not self._must_end():
                id, definition = current.popleft()
                live = self.tenure.lives.of(id)
                live.loading = False
                self._looked_up.pop(id, None)
                if live.exists():
                    self._update(live, definition)
                elif definition.wanted == "removed":
                    self._bury(live, definition)
                else:
                    self._create(live, definition)
                self._go_on_with(id, definition.revision)
            self._current[:0] = current
        if self._seen or self._current:
            self.tenure.wake()
        # Last: what was seen is dealt with now, and nothing may wake us again.
        if self._waiting:
            self._answer_reached()
        if self._postponed and not self._looked_up:
            postponed, self._postponed = self._postponed, []
            for envelope in postponed:
                commands.run(self.tenure, envelope)

    def _must_end(self) -> bool:
        """Are the rest for the next record? Each has its job's state in it, or a message that can't be delivered."""
        return self.tenure.turns.draft.size() >= self.host.budget.seen_bytes or self.host.pace.clock() >= self._ends_s

    def postpone(self, envelope: Envelope) -> bool:
        """Should this command wait for jobs that are about to be created? Then it is run when they are."""
        if self._looked_up:
            self._postponed.append(envelope)
        return bool(self._looked_up)

    def is_about(self, id: str) -> bool:
        """Is something seen or proved of this job, and not dealt with yet?"""
        return id in self._seen or id in self._proving or id in self._after_removal

    def coming(self) -> list[Definition]:
        """Those that jobs may yet be made of."""
        seen = (definition for definition, _ in self._seen.values())
        wanted = (*seen, *self._looked_up.values(), *self._after_removal.values())
        return [definition for definition in wanted if definition.wanted != "removed"]

    def about_to_be(self, type: str) -> list[str]:
        """Jobs of this type that are about to be created."""
        return [id for id, definition in self._looked_up.items() if definition.type == type]

    def _reconcile_seen(self, id: str, definition: Definition, value: bytes | None) -> None:
        live = self.tenure.lives.by_id.get(id)
        record = self.tenure.state.jobs.get(id)
        if live is None and record is None:
            if definition.wanted != "removed":
                self._create_soon(self.tenure.lives.of(id), definition, value)
        elif live is None and record is not None:
            if _differs(record, definition) or _contradicts(record, definition):
                self._prove_soon(id, value)
        elif live is not None and live.exists():
            if _differs(live, definition) or _contradicts(live, definition):
                self._prove_soon(id, value)
        elif live is not None:
            self._overtake(live, definition)
            if definition.wanted != "removed":
                self._create_soon(live, definition, value)

    def _reconcile_proved(self, id: str, definition: Definition, revision: int) -> None:
        live = self.tenure.lives.of(id)
        if live.exists():
            if live.revision == revision and _contradicts(live, definition):
                live.revision = definition.revision  # what it had reached was lost with a member: older versions did so
            self._update(live, definition)
        else:
            self._overtake(live, definition)
            if definition.wanted != "removed":
                self._create_soon(live, definition, None)  # proved while there was a job
        self.tenure.lives.ready(live)  # to be forgotten

    def _create_soon(self, live: Live, definition: Definition, value: bytes | None) -> None:
        self._looked_up[live.id] = definition
        self.look_up(live, value)

    def _overtake(self, live: Live, definition: Definition) -> None:
        """If the job is being looked up, this is for later."""
        before = self._overtaking.get(live.id)
        if live.loading and (before is None or before.revision < definition.revision):
            self._overtaking[live.id] = definition

    def _go_on_with(self, id: str, revision: int) -> None:
        """A look-up has come to its end, which proved this revision: what was seen meanwhile may be newer."""
        definition = self._overtaking.pop(id, None)
        if definition is not None and definition.revision > revision and id not in self._seen:
            self._seen[id] = definition, None

    def _update(self, live: Live, definition: Definition) -> None:
        """`definition` is proved."""
        if not _differs(live, definition):
            return
        draft = self.tenure.turns.draft
        if definition.generation > live.generation:
            # It was removed and made anew before we saw the removal: the old one ends first.
            self._after_removal[live.id] = definition
            self.tenure.stopping.stop(live)
            return
        is_news = definition.revision > live.revision
        live.revision = definition.revision
        draft.changed[live.id] = live
        draft.wanted = True
        if definition.wanted == "removed":
            self.tenure.stopping.stop(live)
        elif definition.wanted == "paused":
            if live.status == Status.RUNNING:
                live.status = Status.PAUSED
                self.tenure.taking.refusals.refuse_waiting(live)
        elif live.status == Status.PAUSED or (live.status == Status.FAILED and is_news):
            self.resume(live)

    def resume(self, live: Live) -> None:
        """Run again: what waits, and what came due meanwhile."""
        live.status = Status.RUNNING
        self.tenure.alarms.set_timer(live)
        self.forgive(live)

    def forgive(self, live: Live) -> None:
        """What failed is tried again, as if for the first time, as soon as the job may run."""
        if live.failure is not None:
            live.failure = None
            if live.queue:
                self.tenure.turns.draft.uncount(live, 0)
                live.queue[0].attempts = 0
                self.tenure.turns.draft.recounted[live.id] = live
        draft = self.tenure.turns.draft
        draft.changed[live.id] = draft.uncarried[live.id] = live
        draft.wanted = True
        self.tenure.lives.ready(live)

    def _create(self, live: Live, definition: Definition) -> None:
        record = JobRecord(
            definition.type,
            definition.version,
            definition.generation,
            definition.revision,
            Status.PAUSED if definition.wanted == "paused" else Status.RUNNING,
            bytes(definition.parameters),
            pickled=definition.pickled,
            application=definition.application,
        )
        self.tenure.lives.adopt(live, record)
        self._check_parameters(live, definition)
        # What was sent is for this generation too; what happened to the one before is not.
        others = [envelope for envelope in live.queue if envelope.kind not in (Kind.MESSAGE, Kind.STATE)]
        self.tenure.lives.take_out(live, others)
        self.tenure.lives.put_first(live, Envelope(live.id, kind=Kind.START, origin=self.host.origin()))
        draft = self.tenure.turns.draft
        draft.changed[live.id] = draft.uncarried[live.id] = live
        draft.wanted = True
        self.tenure.taking.refusals.refuse_waiting(live)
        self.tenure.holding.made(live.id)
        self.tenure.lives.ready(live)

    def _check_parameters(self, live: Live, definition: Definition) -> None:
        """Clients that know only the type's name could not: a job that is not what was meant does not start."""
        if live.stuck or definition.version != live.type.version:
            return  # an older one is for `upgrade`
        try:
            live.type.initial(msgspec.msgpack.decode(definition.parameters, type=dict[str, Any]))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a job's own checks may raise anything
            text = told(error) if isinstance(error, WrongType) else f"WrongType: its parameters: {told(error)}"
            live.status = Status.FAILED
            live.failure = Failure(text, "", "started", 0, self.host.now_ms())
            self.host.report(f"job {live.id!r} does not start: {text.removeprefix('WrongType: ')}")

    def _bury(self, live: Live, definition: Definition) -> None:
        turns = self.tenure.turns
        reason = "JobRemoved" if definition.generation else "UnknownJob"
        detail = "the job was removed" if definition.generation else "there is no job of this id"
        if self.tenure.state.subscribers.get(live.id):
            detail += f"; there is a topic of this name, whose subscribers get what is published to Topic({live.id!r})"
        while live.queue:
            envelope = live.queue[0]
            turns.done(live, envelope)
            self.tenure.dead_letters.bury(envelope, reason, detail)
            if self._must_end():
                break
        if not live.queue:
            turns.draft.uncarried.pop(live.id, None)
        self.tenure.lives.ready(live)  # to be forgotten; or looked up once more, for the rest

    def after_removal(self, id: str) -> None:
        """The job's old generation is gone; is there a new one already?"""
        if (definition := self._after_removal.pop(id, None)) is not None:
            self._seen[id] = definition, None

    def remove(self, live: Live, wish: "Draft | None" = None) -> None:
        """The job itself wants to end: its definition must say so first, so that nobody makes it again. `wish`: what
        the turn that wants it is committed with; none: it is committed."""
        self.tenure.start(self._remove, live.id, live.generation, wish)

    async def _remove(self, id: str, generation: int, wish: "Draft | None") -> None:
        attempt = 0
        if wish is not None:
            # Not before: the next owner must know of the turn, and of a job that ends as it begins.
            await wish.committed.wait()
        while True:
            proved = await self._prove_stored(id)
            definition = None if proved is None else proved[0]
            if proved is None or proved[0].generation != generation or proved[0].wanted == "removed":
                break
            old, new = proved[1], self._encode(removed(proved[0], self.host.now_ms()))
            self.tenure.cutting.will_change(id, old)
            try:
                if await self.host.grid.replace_if_same(Map.JOBS, self.partition, id.encode(), old, new):
                    self._proved.append((id, decode(new, Definition), 0))
                    self.tenure.wake()
                    return
            except GridError:
                attempt += 1
                await self.tenure.journal.pause(attempt)
        if definition is not None:
            self._proved.append((id, definition, 0))
            self.tenure.wake()

    # -- questions that wait for a revision -------------------------------------------------------

    def answer_when(self, envelope: Envelope, revision: int, *, stopping: bool = False) -> None:
        """Answer once the job has reached this revision, or is gone; with `stopping`, also when it has begun to end."""
        self.tenure.start(self._fetch, envelope, revision, stopping)

    async def fetch(self, id: str) -> None:
        """Deal with a definition as it is now."""
        reached = self._reached_by(id)
        if (definition := await self._prove(id)) is not None:
            self._proved.append((id, definition, reached))
        self.tenure.wake()

    async def _fetch(self, envelope: Envelope, revision: int, stopping: bool) -> None:
        # What the record says counts only against a definition that was proved since it was asked.
        reached = self._reached_by(envelope.to)
        definition = await self._prove(envelope.to)
        if definition is not None:
            self._proved.append((envelope.to, definition, reached))
        self._waiting.append((envelope, revision, stopping, definition))
        self.tenure.wake()

    def _answer_reached(self) -> None:
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            envelope, revision, stopping, definition = question
            if self._reached(envelope.to, revision, definition, stopping=stopping):
                self.tenure.turns.draft.answer_value(envelope, True)
                self.tenure.want_commit()
            else:
                self._waiting.append(question)

    def _reached(self, id: str, revision: int, definition: Definition | None, *, stopping: bool) -> bool:
        # No record is as good as the newest: the next message makes one from the definition, proved to be current.
        record, live = self.tenure.state.jobs.get(id), self.tenure.lives.by_id.get(id)
        if self.is_about(id) or (live is not None and live.loading):
            return False
        if record is None:
            return True
        is_behind = definition is not None and _differs(record, definition)
        is_over = stopping or record.status != Status.STOPPING
        return record.revision >= revision and is_over and not is_behind

    # -- the slow look ----------------------------------------------------------------------------

    async def sweeps(self) -> None:
        """Find definitions that no event told of."""
        settings, random = self.tenure.settings, self.host.random
        # Not all of a takeover's partitions at the same moment.
        await trio.sleep(min(SPREAD_S, settings.definitions_sweep_s) * random.random())
        async with self.host.first_definitions:
            is_read = self.tenure.cutting.reads_definitions() or await self._sweep(forgets=False)
        while True:
            pause_s = settings.definitions_sweep_s if is_read else settings.retry_pause_max_s
            with trio.move_on_after(pause_s * (0.5 + random.random())):
                await self._soon.wait()
            async with self.host.sweeping_definitions:
                # A snapshot may have read them before what is looked for was there.
                by_itself = not self._soon.is_set()
                self._soon = trio.Event()
                began_s = trio.current_time()
                is_read = by_itself and self.tenure.cutting.reads_definitions() or await self._sweep()
                await trio.sleep(REST * (trio.current_time() - began_s))

    def sweep_soon(self) -> None:
        """Events may have been lost: look now, one partition of a node after the other."""
        self._soon.set()

    async def _sweep(self, *, forgets: bool = True) -> bool:
        try:
            async for page in self.host.grid.scan(Map.JOBS, self.partition, page=500):
                for entry in page:
                    self.offer_swept(entry.key, entry.value)
                if forgets:
                    await self.tenure.tombstones.forget()
        except GridError:
            return False
        return True

    def offer_swept(self, key: bytes, value: bytes) -> None:
        """An entry of the map of definitions was read."""
        try:
            id = key.decode()
        except UnicodeDecodeError:
            self.host.report(f"partition {self.partition}: a definition under the key {key.hex()} is no job's")
            return
        try:
            definition = decode(value, Definition)
        except (Undecodable, UnreadableFormat) as error:
            self.host.report(f"the definition of job {id!r} can't be read and is left alone: {error}")
            return
        record = self.tenure.state.jobs.get(id)
        if (
            definition.wanted != "removed"
            if record is None
            else _differs(record, definition) or _contradicts(record, definition)
        ):
            self.offer(id, value)
        elif record is None:
            self.tenure.tombstones.meet(id, value, definition)


def _differs(job: Live | JobRecord, definition: Definition) -> bool:
    """Is this definition news to the job, as it stands? One that is older than what the job has reached is none."""
    if (definition.generation, definition.revision) != (job.generation, job.revision):
        return definition.generation >= job.generation and definition.revision > job.revision
    if job.status == Status.STOPPING or definition.wanted == "removed":
        return job.status != Status.STOPPING and definition.wanted == "removed"
    if job.status == Status.PAUSED:
        return definition.wanted == "running"
    return job.status == Status.RUNNING and definition.wanted == "paused"


def _contradicts(job: Live | JobRecord, definition: Definition) -> bool:
    """Is this an older revision of what the job is, which says otherwise? Most likely it is merely old."""
    if definition.generation != job.generation or definition.revision >= job.revision:
        return False
    return (job.status, definition.wanted) in ((Status.PAUSED, "running"), (Status.RUNNING, "paused"))


def removed(definition: Definition, at_ms: int) -> Definition:
    """The same job, no longer wanted."""
    return Definition(
        definition.type,
        EMPTY,
        definition.generation,
        definition.revision + 1,
        "removed",
        definition.version,
        birth=definition.birth,
        at_ms=at_ms,
        incarnation=definition.incarnation,
    )


def never_was(birth: bytes, at_ms: int) -> Definition:
    """The tombstone of an id under which there is no job; a definition may be put in its place. `birth`: new."""
    return Definition("", EMPTY, 0, 0, "removed", birth=birth, at_ms=at_ms)
