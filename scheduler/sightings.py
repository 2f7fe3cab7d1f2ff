"""What one partition says of an application's jobs, for those who wait until they are quiet (see `quiet`).

Before it is asked first in an epoch it may not know of all that was accepted: events get lost. So it reads its inbox
and its definitions then, takes what it finds, and answers after that.

While it is asked to, it also refuses what clients send to the application. What it found in its inbox was accepted
before, and is not refused.
"""

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import trio
from msgspec import Struct

from tenure.scheduler.draft import slots_of
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.inlanes import PROOF
from tenure.scheduler.keys import is_partition_sender, partition_of_sender, split_slot_key
from tenure.scheduler.live import Live
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


class Sightings:
    """One tenure's."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.partition = tenure, tenure.host, tenure.partition
        self.closed = tenure.taking.closed
        self._ready: list[tuple[Envelope, Question, bool]] = []
        self._failed_of = ""

    # -- questions --------------------------------------------------------------------------------

    def ask(self, envelope: Envelope, question: Question) -> None:
        """To be answered when it can be."""
        is_swept = question.swept == self.tenure.state.epoch and (
            question.close <= AS_IT_IS or self._is_closed(question)
        )
        if is_swept:
            self._ready.append((envelope, question, True))
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
        self._ready.append((envelope, question, is_swept))
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

    def answer(self) -> None:
        """In the tenure's loop, when what has come in is taken and what is due has rung."""
        ready, self._ready = self._ready, []
        for envelope, question, is_swept in ready:
            closed = self.closed.get(question.application)
            if closed is not None and question.close > AS_IT_IS:
                closed.level, closed.until_s = question.close, trio.current_time() + CLOSED_FOR_S
            elif question.close == OPEN:
                self.closed.pop(question.application, None)
            if question.fire and self._is_first(question.wait):
                self._fire(question.application)
            self.tenure.turns.draft.answer_value(envelope, self._sighting(question, is_swept))
            self.tenure.want_commit()

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
        anew. Kept as ids of messages are, and committed with what is fired; of no job."""
        if not wait:
            return True
        if self.tenure.turns.remembered("", wait) is not None:
            return False
        until_ms = self.host.now_ms() + round(FIRED_KEPT_S * 1000)
        self.tenure.turns.draft.remembered["", wait] = (until_ms, None)
        return True

    def _fire(self, application: str) -> None:
        draft = self.tenure.turns.draft
        for id, record in self._jobs(application):
            if record.timer is None or not record.timer.due_ms or record.status != Status.RUNNING:
                continue
            live = self.tenure.lives.of(id)
            if live.stuck or live.timer is None:
                continue
            timer = live.timer
            by, origin = f"{timer.due_by:x}" if timer.due_by else "", self.host.origin()
            live.queue.append(Envelope(id, kind=Kind.TIMEOUT, source=by, index=timer.due_ms, origin=origin))
            live.timer = without_due(timer)
            draft.changed[id] = draft.uncarried[id] = live
            self.tenure.lives.ready(live)

    # -- what there is ----------------------------------------------------------------------------

    def _jobs(self, application: str) -> list[tuple[str, JobRecord]]:
        return [
            (id, record)
            for id, record in self.tenure.lives.records()
            if is_meant(application, application_of(self.tenure, record.type, record.application))
        ]

    def _sighting(self, question: Question, is_swept: bool) -> Sighting:
        tenure, application = self.tenure, question.application
        busy: Counter[str] = Counter()
        examples: list[Waiting] = []
        digest, turns, timers, first_due_ms = hashlib.blake2b(digest_size=16), 0, 0, 0
        jobs = self._jobs(application)
        for id, record in sorted(jobs, key=lambda job: job[0]):
            digest.update(f"{id}\0{record.generation}\0{record.revision}\0{record.turns}\0{record.status}\n".encode())
            turns += record.turns
            if record.timer is not None and record.status == Status.RUNNING and (due_ms := record.timer.first_ms()):
                timers += 1
                first_due_ms = min(first_due_ms or due_ms, due_ms)
            for why, count in _undone(record, tenure.lives.by_id.get(id)):
                busy[why] += count
                if len(examples) < EXAMPLES_MAX:
                    examples.append(Waiting(id, why))
        self._count_unknown(busy, application)
        return Sighting(
            partition=self.partition,
            epoch=tenure.state.epoch,
            node=self.host.node,
            swept=is_swept,
            closed=self.closed[application].level if application in self.closed else 0,
            print=digest.digest(),
            jobs=len(jobs),
            turns=turns,
            timers=timers,
            first_due_ms=first_due_ms,
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


def application_of(tenure: "Tenure", type: str, application: str) -> str:
    """Of a job of this type; not all clients that schedule know it."""
    if not application and (known := tenure.host.known_type(type)) is not None:
        application = known.application
    return application or DEFAULT_APPLICATION


def _undone(record: JobRecord, live: Live | None) -> list[tuple[str, int]]:
    found = []
    if record.status in (Status.FINISHING, Status.STOPPING):
        found.append(("jobs that end", 1))
    if count := sum(not activity.has_ended for activity in record.activities):
        found.append(("activities", count))
    if record.failure is not None and record.failure.retry_ms:
        found.append(("turns to be tried again", 1))
    if live is not None:
        if live.running:
            found.append(("running turns", 1))
        if waiting := len(live.queue) - live.running:
            found.append((_why_waiting(live), waiting))
    return found


def _why_waiting(live: Live) -> str:
    if live.stuck:
        return "messages of jobs that can't run"
    if live.status in (Status.FAILED, Status.PAUSED):
        return f"messages of {live.status} jobs"
    return "messages that wait"
