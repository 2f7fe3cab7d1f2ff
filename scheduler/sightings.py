"""What one partition says of an application's jobs, for those who wait until they are quiet (see `quiet`).

Before it is asked first in an epoch it may not know of all that was accepted: events get lost. So it reads its inbox
and its definitions then, takes what it finds, and answers after that.

While it is asked to, it also refuses what clients send to the application. What it found in its inbox was accepted
before, and is not refused.
"""

from collections import Counter
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

import trio
from msgspec import Struct

from tenure.scheduler.budget import ENVELOPE_BYTES
from tenure.scheduler.draft import slots_of
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.inlanes import PROOF
from tenure.scheduler.keys import is_partition_sender, partition_of_sender, split_slot_key
from tenure.scheduler.live import Live
from tenure.scheduler.looking_over import JOBS_A_SLICE, LookOver
from tenure.scheduler.quiet import CONTROLLERS, EVERY, Sighting, Waiting
from tenure.scheduler.texts import told
from tenure.scheduler.timers import without_due
from tenure.scheduler.wire import Envelope, JobRecord, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["DEFAULT_APPLICATION", "Closed", "Question", "Sightings", "application_of"]

DEFAULT_APPLICATION = "default"
"""The application of job types that name none."""
EXAMPLES_MAX = 3
JOBS_A_LOOK = 64
"""So many jobs' timers are looked at between two looks at the clock."""
ROUNDS_MAX = 5
"""Jobs that change as they are counted are counted once more; after so many rounds, with what is left at once."""
TAKEN_WITHIN_S = 2.0
"""What is not taken by then (a full mailbox holds it back, say) is said to wait."""
POLL_S = 0.01
CLOSED_FOR_S = 15.0
"""Who wants an application closed says so again before that."""
FIRED_KEPT_S = 86_400.0
"""So long it is kept that timers were fired for a wait."""
OPEN, AS_IT_IS, DIRECT, TOPICS = -1, 0, 1, 2
"""What is refused: nothing, from now on; nothing on account of this question; what clients publish to its jobs; and
what they publish to topics, too."""


class Question(Struct, frozen=True, kw_only=True):
    """What a partition is asked."""

    application: str
    swept: int = -1
    """The epoch in which it said that it has swept."""
    close: int = AS_IT_IS
    fire: bool = False
    """Let timers that are set come due now (not recurring ones)."""
    wait: str = ""
    """Who asks. For one wait a partition fires once, however often it is asked. Empty: of an older version."""


class Closed:
    """Messages of clients behind these are refused."""

    def __init__(self, accepted: dict[bytes, tuple[int, int]]) -> None:
        self.accepted = accepted
        self.level = DIRECT
        self.until_s = trio.current_time() + CLOSED_FOR_S


class _Asked(NamedTuple):
    envelope: Envelope
    question: Question
    is_swept: bool


class _Fire:
    """Timers that are to come due, for one wait."""

    def __init__(self, application: str, wait: str) -> None:
        self.application, self.wait = application, wait
        self.left: dict[str, None] = {}
        self.asked: list[_Asked] = []


class Sightings:
    """One tenure's."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.partition = tenure, tenure.host, tenure.partition
        self.closed = tenure.taking.closed
        self._ready: list[_Asked] = []
        self._fires: list[_Fire] = []
        self.looks: list[LookOver] = []
        """Counts that go on: to be told of each draft."""
        self._counted: list[tuple[_Asked, LookOver]] = []
        self._failed_of = ""

    # -- questions --------------------------------------------------------------------------------

    def ask(self, envelope: Envelope, question: Question) -> None:
        """To be answered when it can be."""
        is_swept = question.swept == self.tenure.state.epoch and (
            question.close <= AS_IT_IS or self._is_closed(question)
        )
        if is_swept:
            self._ready.append(_Asked(envelope, question, is_swept=True))
            self.tenure.wake()
        else:
            self.tenure.start(self._sweep, envelope, question)

    def _is_closed(self, question: Question) -> bool:
        closed = self.closed.get(question.application)
        return closed is not None and trio.current_time() <= closed.until_s

    async def _sweep(self, envelope: Envelope, question: Question) -> None:
        is_swept = False
        try:
            found = await self._look()
            with trio.move_on_after(TAKEN_WITHIN_S):
                while not all(self.tenure.inlanes.is_consumed(*slot) for slot in found):  # noqa: ASYNC110  # the loop takes
                    await trio.sleep(POLL_S)
                is_swept = True
            if question.close > AS_IT_IS:
                accepted = dict(self.tenure.inlanes.cursors)
                for sender, lane, n in found:
                    accepted[sender] = max(accepted.get(sender, (0, 0)), (lane, n + 1))
                self.closed[question.application] = Closed(accepted)
        except GridError:
            pass  # asked again
        except Exception as error:  # noqa: BLE001  # who asks hears that nothing was swept
            if self._failed_of != (text := told(error)):
                self._failed_of = text
                self.host.log_error(f"partition {self.partition}: a look for what waits failed: {text}", error)
        self._ready.append(_Asked(envelope, question, is_swept))
        self.tenure.wake()

    async def _look(self) -> list[tuple[bytes, int, int]]:
        """Read what is there, and return the slots that are not taken."""
        grid, found = self.host.grid, []
        async for page in grid.scan(Map.JOBS, self.partition, page=500):
            for entry in page:
                self.tenure.definitions.offer_swept(entry.key, entry.value)
        async for page in grid.scan(Map.INBOX, self.partition):
            for entry in page:
                slot = split_slot_key(entry.key)
                if slot is not None and entry.value != PROOF and self.tenure.offer_slot(entry.key, entry.value):
                    found.append(slot)
        return found

    def rests(self) -> bool:
        """Is nothing to be answered?"""
        return not (self._ready or self._fires or self._counted)

    def answer(self) -> None:
        """In the tenure's loop, when what has come in is taken and what is due has rung."""
        ready, self._ready = self._ready, []
        for asked in ready:
            question = asked.question
            closed = self.closed.get(question.application)
            if closed is not None and question.close > AS_IT_IS:
                closed.level, closed.until_s = question.close, trio.current_time() + CLOSED_FOR_S
            elif question.close == OPEN:
                self.closed.pop(question.application, None)
            if question.fire and self._is_first(question.wait):
                self._fire_for(asked)
            else:
                self._count_for(asked)
        while self._fires and self._fire_next():
            pass
        if self._counted:
            self._answer_counted()

    def _answer_counted(self) -> None:
        counted, self._counted = self._counted, []
        for asked, look in counted:
            look.hear(self.tenure.turns.draft)
            look.go_on(look.left())
            self.looks.remove(look)
            sighting = self._sighting(asked.question, look, is_swept=asked.is_swept)
            self.tenure.turns.draft.answer_value(asked.envelope, sighting)
            self.tenure.want_commit()

    def _count_for(self, asked: "_Asked") -> None:
        """Then it is answered: at once, if there are few jobs."""
        look = LookOver(self.tenure, partial(_is_of, self.tenure, asked.question.application))
        self.looks.append(look)
        if look.left() <= JOBS_A_SLICE:
            self._counted.append((asked, look))
        else:
            self.tenure.start(self._count, asked, look)

    async def _count(self, asked: "_Asked", look: LookOver) -> None:
        for _ in range(ROUNDS_MAX * (1 + look.left() // JOBS_A_SLICE)):
            look.go_on(JOBS_A_SLICE)
            await self.host.pace.pause()
            if look.left() <= JOBS_A_SLICE:
                break
        self._counted.append((asked, look))
        self.tenure.wake()

    # -- what is refused --------------------------------------------------------------------------

    def refuses(self, live: Live, envelope: Envelope) -> bool:
        """Was this sent by a client to an application that is being shut down, after that had begun?"""
        if envelope.source or not live.exists():
            return False
        its = application_of(self.tenure, live.type_name, live.application)
        application = next((application for application in self.closed if is_meant(application, its)), None)
        if application is None:
            return False
        closed = self.closed[application]
        if trio.current_time() > closed.until_s:
            del self.closed[application]
            return False
        slot = split_slot_key(envelope.slot)
        if slot is None or (is_partition_sender(slot[0]) and closed.level < TOPICS):
            return False
        return slot[1:] >= closed.accepted.get(slot[0], (0, 0)) or is_partition_sender(slot[0])

    # -- time's end -------------------------------------------------------------------------------

    def _is_first(self, wait: str) -> bool:
        """Was this wait's question not answered yet? Its answer may have been lost, and what has rung has set its timer
        anew."""
        return not wait or self.tenure.turns.remembered("", wait) is None

    def _fire_for(self, asked: "_Asked") -> None:
        """Then it is counted, and answered."""
        same = (fire for fire in self._fires if asked.question.wait and fire.wait == asked.question.wait)
        if (fire := next(same, None)) is None:
            fire = _Fire(asked.question.application, asked.question.wait)
            fire.left = dict.fromkeys((*self.tenure.state.jobs, *self.tenure.lives.by_id))
            self._fires.append(fire)
        fire.asked.append(asked)

    def _fire_next(self) -> bool:
        """Let the timers of one application come due, as far as this record and this pass have room for events: each
        has its job's state in it. False: the rest is for the next."""
        fire, draft, budget = self._fires[0], self.tenure.turns.draft, self.host.budget
        for n, id in enumerate(list(fire.left)):
            if draft.size() >= budget.taken_bytes or (n % JOBS_A_LOOK == 0 and n and self.host.pace.is_over()):
                self.tenure.want_commit()
                return False
            del fire.left[id]
            self._fire(id, fire.application)
        if fire.wait:
            # Kept as ids of messages are, and committed with the last that is fired; of no job.
            until_ms = self.host.now_ms() + round(FIRED_KEPT_S * 1000)
            draft.remembered["", fire.wait] = (until_ms, None)
        for asked in self._fires.pop(0).asked:
            self._count_for(asked)
        return True

    def _fire(self, id: str, application: str) -> None:
        by_id, draft = self.tenure.lives.by_id, self.tenure.turns.draft
        record = self.tenure.state.jobs.get(id) if id not in by_id else by_id[id].record()
        if record is None or record.timer is None or not record.timer.due_ms or record.status != Status.RUNNING:
            return
        if not _is_of(self.tenure, application, record):
            return
        live = self.tenure.lives.of(id)
        if not live.exists() or live.stuck or live.timer is None:
            return
        timer = live.timer
        by, origin = f"{timer.due_by:x}" if timer.due_by else "", self.host.origin()
        live.queue.append(Envelope(id, kind=Kind.TIMEOUT, source=by, index=timer.due_ms, origin=origin))
        live.timer = without_due(timer)
        draft.changed[id] = draft.uncarried[id] = live
        draft.other_bytes += ENVELOPE_BYTES + len(id)
        self.tenure.lives.ready(live)

    # -- what there is ----------------------------------------------------------------------------

    def _sighting(self, question: Question, look: LookOver, *, is_swept: bool) -> Sighting:
        tenure, application, busy = self.tenure, question.application, look.busy
        examples = [Waiting(id, look.waiting[id]) for id in nsmallest(EXAMPLES_MAX, look.waiting)]
        self._count_unknown(busy, application)
        return Sighting(
            partition=self.partition,
            epoch=tenure.state.epoch,
            node=self.host.node,
            swept=is_swept,
            closed=self.closed[application].level if application in self.closed else 0,
            print=look.print(),
            jobs=look.jobs,
            turns=look.turns,
            timers=look.timers,
            first_due_ms=look.first_due_ms(),
            busy=dict(busy),
            examples=examples,
            sent=self._sent(),
            taken=self._taken(),
        )

    def _count_unknown(self, busy: Counter[str], application: str) -> None:
        """What may be the application's, for all that is known here."""
        coming = self.tenure.definitions.coming()
        busy["jobs about to be made"] += sum(
            is_meant(application, application_of(self.tenure, definition.type, definition.application))
            for definition in coming
        )
        busy["messages whose job is looked up"] += sum(
            len(live.queue) for live in self.tenure.lives.by_id.values() if not live.exists()
        )
        busy["messages that are being sent to many"] += len(self.tenure.taking.begun)
        for why in [why for why, count in busy.items() if not count]:
            del busy[why]

    def _sent(self) -> dict[int, int]:
        sent = dict(self.tenure.state.numbered)
        for partition, envelopes in self.tenure.turns.draft.sends.items():  # numbered with the record of this answer
            sent[partition] = sent.get(partition, 0) + slots_of(envelopes)
        return sent

    def _taken(self) -> dict[int, int]:
        cursors = self.tenure.inlanes.cursors.items()
        return {
            partition_of_sender(sender): n
            for sender, (lane, n) in cursors
            if is_partition_sender(sender) and lane == self.host.incarnation
        }


def is_meant(application: str, its: str) -> bool:
    """Is `its` the application, or one of all that are meant?"""
    return its == application or (application == EVERY and its != CONTROLLERS)


def _is_of(tenure: "Tenure", application: str, record: JobRecord) -> bool:
    return is_meant(application, application_of(tenure, record.type, record.application))


def application_of(tenure: "Tenure", type: str, application: str) -> str:
    """Of a job of this type; not all clients that schedule know it."""
    if not application and (known := tenure.host.known_type(type)) is not None:
        application = known.application
    return application or DEFAULT_APPLICATION
