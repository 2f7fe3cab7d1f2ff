"""What a client holds back: messages for jobs that take no more, so that all others go on.

    owner: full ──► what waits for the job is taken out of its lane ──► owner: room for so many ──► they go on, in order
                                                   │ callers who give up take theirs back
                                                   └── the owner is asked, ever more rarely, as it may not know of us

A partition with too many dead letters is asked first about each job that is not known to be there.

What is held back was not sent, so for its lane it does not exist yet. Nobody but its callers, who wait, holds it in
memory. The owner's end is `holding`.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Struct

from tenure.scheduler.errors import AskFailed, TenureError
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.keys import partition_of
from tenure.scheduler.outlanes import Ticket, Waiting
from tenure.scheduler.wire import Answer

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient
    from tenure.scheduler.sending import Sending

__all__ = ["HeldBack", "told"]

ASK_FIRST_S, ASK_MAX_S = 0.1, 2.0
"""How long it waits before it asks whether there is room, unless it is told; twice as long each time."""
ASKED_AT_ONCE = 500
ANSWER_WITHIN_S, WHY_WITHIN_S = 10.0, 1.0
FORGOTTEN_AFTER_S = 60.0
"""A full job to which nobody has sent for so long. The next who does finds out anew."""
NAMED_MAX = 3
KNOWN_MAX = 10_000


class Room(Struct):
    """What a partition says of one of its jobs."""

    job: str
    full: bool
    state: str = ""
    """The name of the error for questions that are refused, if it runs nothing for now."""
    why: str = ""
    waiting: int = 0
    room: int = 1
    room_bytes: int = 1


class Hint(Struct):
    """What it says of several, asked or not."""

    room: list[Room] = []
    letters: dict[int, str] = {}
    """The partition, and why it must be asked before anything is sent to a job that may not be there; empty: it need
    not."""


class _Careful:
    """A partition with too many dead letters."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.known: set[str] = set()
        """Jobs that are there."""


class _Job:
    def __init__(self, partition: int, room: Room) -> None:
        self.partition, self.room = partition, room
        self.messages: OrderedDict[int, Waiting] = OrderedDict()
        """In their order, by their envelopes' identity."""
        self.used_s = trio.current_time()

    def why(self) -> str:
        return f"{self.room.why}, and {self.room.waiting} messages wait for it"


def told(full: Mapping[str, str]) -> str:
    """For people: which jobs take no more, and why."""
    some = [f"job {job!r} takes no more for now: {why}" for job, why in list(full.items())[:NAMED_MAX]]
    return "; ".join(some) + (f"; and {len(full) - NAMED_MAX} more jobs" if len(full) > NAMED_MAX else "")


class HeldBack:
    """What one client holds back."""

    def __init__(self, client: "GridClient", sending: "Sending", nursery: trio.Nursery) -> None:
        self.client, self.sending, self._nursery = client, sending, nursery
        self.by_job: dict[str, _Job] = {}
        """The jobs that take no more, as far as is known here."""
        self.careful: dict[int, _Careful] = {}
        """Partitions with too many dead letters."""
        self._by_caller: dict[Ticket, dict[int, Waiting]] = {}
        """The same messages: very many callers may give up at the same time."""
        self._asking: dict[int, trio.Event] = {}
        """Partitions that are asked; set to ask at once."""

    # -- what is held back ------------------------------------------------------------------------

    def holds(self, partition: int, id: str) -> bool:
        """Must a message for this job wait?"""
        if id in self.by_job:
            return True
        careful = self.careful.get(partition)
        if careful is None or id in careful.known:
            return False
        self._hold_back(partition, [Room(id, full=True, why=careful.why)])
        return True

    def add(self, waiting: Waiting) -> None:
        """One more message for one of these jobs, behind the others."""
        job = self.by_job[waiting.envelope.to]
        waiting.ticket.pending += 1
        waiting.ticket.done = False
        job.used_s = trio.current_time()
        if not job.messages or (waiting.envelope.reply and job.room.state):
            self._ask_soon(job.partition)
        self._keep(job, waiting)

    def _keep(self, job: _Job, waiting: Waiting) -> None:
        key = id(waiting.envelope)
        job.messages[key] = self._by_caller.setdefault(waiting.ticket, {})[key] = waiting

    def _let_go(self, job: _Job, waiting: Waiting) -> None:
        key, its = id(waiting.envelope), self._by_caller[waiting.ticket]
        del job.messages[key], its[key]
        if not its:
            del self._by_caller[waiting.ticket]

    def of(self, ticket: Ticket) -> Iterable[Waiting]:
        """What is held back of this caller's."""
        return self._by_caller.get(ticket, {}).values()

    def withdraw(self, ticket: Ticket) -> None:
        """Its caller has stopped waiting."""
        for waiting in list(self.of(ticket)):
            self._let_go(self.by_job[waiting.envelope.to], waiting)

    def why(self, ids: Collection[str], ticket: Ticket | None = None) -> dict[str, str]:
        """Of these jobs, and those of this caller's messages, the ones that take no more; and the reasons."""
        named = dict.fromkeys(waiting.envelope.to for waiting in self.of(ticket)) if ticket is not None else {}
        named |= dict.fromkeys(sorted(ids))
        return {id: job.why() for id in named if (job := self.by_job.get(id)) is not None}

    async def why_it_waits(self, partition: int, id: str) -> str:
        """For people: what its owner says of a job that does not answer, if it says so soon."""
        arguments = {"op": "room", "jobs": [id]}
        try:
            answer = await self.client.command(partition, "", arguments, deadline_s=WHY_WITHIN_S)
            room = msgspec.convert(answer, Hint, strict=False).room[0]
        except (TenureError, GridError, msgspec.ValidationError):
            return ""
        return f": {room.why}, and {room.waiting} messages wait for it" if room.waiting else ""

    # -- what is heard ----------------------------------------------------------------------------

    def hear(self, answer: Answer) -> None:
        """A partition has told us something unasked."""
        try:
            hint = msgspec.msgpack.decode(answer.body, type=Hint)
        except msgspec.DecodeError:
            return  # of a version that says something else
        for partition in hint.letters:
            if (careful := self.careful.get(partition)) is not None:
                careful.known.clear()  # one of them is there no more, or we would not have been told
        self._heard(hint)

    def _heard(self, hint: Hint) -> bool:
        """True: some may go on."""
        is_news = False
        for partition, why in hint.letters.items():
            self._be_careful(partition, why)
        count = self.client.partition_count
        by_partition: dict[int, list[Room]] = {}
        for room in hint.room:
            if room.full and room.job not in self.by_job:
                by_partition.setdefault(partition_of(room.job, count), []).append(room)
        for partition, rooms in by_partition.items():
            self._hold_back(partition, rooms)
        for room in hint.room:
            job = self.by_job.get(room.job)
            if job is not None and room.full:
                job.room = room
                self._refuse_questions(job)
            elif job is not None:
                self._let_go_on(job, room)
                is_news = True
        return is_news

    def _hold_back(self, partition: int, rooms: list[Room]) -> None:
        for room in rooms:
            self.by_job[room.job] = _Job(partition, room)
        for waiting in self.sending.hold_back(partition, {room.job for room in rooms}):
            self._keep(self.by_job[waiting.envelope.to], waiting)
        if partition not in self._asking:
            self._asking[partition] = trio.Event()
            self._nursery.start_soon(self._ask, partition)

    def _be_careful(self, partition: int, why: str) -> None:
        if not why:
            if self.careful.pop(partition, None) is not None:
                self._ask_soon(partition)
            return
        careful = self.careful.setdefault(partition, _Careful(why))
        careful.why = why
        if not careful.known:
            ids = [id for id in self.sending.jobs_waiting(partition) if id not in self.by_job]
            if ids:
                self._hold_back(partition, [Room(id, full=True, why=why) for id in ids])

    def _refuse_questions(self, job: _Job) -> None:
        """A job that runs nothing for now answers nothing: who asks is told, and the question is not sent."""
        room = job.room
        if not room.state:
            return
        for waiting in [waiting for waiting in job.messages.values() if waiting.envelope.reply]:
            self._let_go(job, waiting)
            envelope, ticket = waiting.envelope, waiting.ticket
            text = f"job {room.job!r} took no question, and nothing was done: {job.why()}"
            self.client.asking.refuse(envelope.reply, room.state, text)
            self.sending.settle(ticket)

    def _let_go_on(self, job: _Job, room: Room) -> None:
        """So many as there is room for, and one at least; the next when it says so again."""
        going: list[Waiting] = []
        size_bytes = 0
        while job.messages and (not going or (len(going) < room.room and size_bytes < room.room_bytes)):
            waiting = next(iter(job.messages.values()))
            self._let_go(job, waiting)
            going.append(waiting)
            size_bytes += waiting.size_bytes
        if going:
            self.sending.let_go_on(job.partition, going)
        if not job.messages:
            del self.by_job[room.job]
        if (careful := self.careful.get(job.partition)) is not None:
            if len(careful.known) >= KNOWN_MAX:
                careful.known.clear()
            careful.known.add(room.job)

    # -- asking -----------------------------------------------------------------------------------

    def _ask_soon(self, partition: int) -> None:
        if (event := self._asking.get(partition)) is not None:
            event.set()

    async def _ask(self, partition: int) -> None:
        """Hints get lost, and a new owner does not know whom the last one had told."""
        pause_s = ASK_FIRST_S
        try:
            while jobs := self._jobs_of(partition):
                with trio.move_on_after(pause_s):
                    await self._asking[partition].wait()
                is_news = self._asking[partition].is_set()
                self._asking[partition] = trio.Event()
                jobs = self._jobs_of(partition)
                for first in range(0, len(jobs), ASKED_AT_ONCE):
                    is_news |= await self._ask_for(partition, jobs[first : first + ASKED_AT_ONCE])
                pause_s = ASK_FIRST_S if is_news else min(2 * pause_s, ASK_MAX_S)
        finally:
            del self._asking[partition]

    def _jobs_of(self, partition: int) -> list[str]:
        long_ago_s = trio.current_time() - FORGOTTEN_AFTER_S
        for id in [id for id, job in self.by_job.items() if not job.messages and job.used_s < long_ago_s]:
            del self.by_job[id]
        return [id for id, job in self.by_job.items() if job.partition == partition]

    async def _ask_for(self, partition: int, jobs: list[str]) -> bool:
        arguments = {"op": "room", "jobs": jobs}
        try:
            answer = await self.client.command(partition, "", arguments, deadline_s=ANSWER_WITHIN_S)
            return self._heard(msgspec.convert(answer, Hint, strict=False))
        except AskFailed:  # of an owner that holds nobody back but by not reading on
            rooms = [Room(id, full=False, room=2**62, room_bytes=2**62) for id in jobs]
            return self._heard(Hint(rooms, {partition: ""}))
        except (TenureError, GridError, msgspec.ValidationError):  # or of a version that says something else
            return False
