"""The jobs of a partition that are in memory, and which of them may have something to run.

record (committed) ──of──► Live: its queue, its object, what its turns have changed ──► forgotten, when it rests
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tenure.scheduler.assignment import PICKLED
from tenure.scheduler.budget import ENVELOPE_BYTES, envelope_bytes
from tenure.scheduler.errors import Undecodable
from tenure.scheduler.live import Live
from tenure.scheduler.turnid import step_turn
from tenure.scheduler.wire import Envelope, JobRecord

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Lives"]

REWRITTEN_BYTES_MAX = 2**18
"""A mailbox that is no larger is written anew when something is put into its midst, or taken out of it."""


class Lives:
    """The jobs of one tenure that are in memory."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.state = tenure, tenure.host, tenure.state
        self.by_id: dict[str, Live] = {}
        self.readied: dict[str, Live] = {}
        """Jobs that may have something to run."""
        self.strange: dict[str, int] = {}
        """Job types, with their versions, that jobs of this partition have and this node can't run."""

    def records(self) -> Iterator[tuple[str, JobRecord]]:
        """The jobs as they are with this draft."""
        for id, record in self.state.jobs.items():
            if id not in self.by_id:
                yield id, record
        for id, live in self.by_id.items():
            if live.exists():
                yield id, live.record()

    def of(self, id: str) -> Live:
        """The job as it is in memory, brought there from its record if need be. It may not exist (yet)."""
        live = self.by_id.get(id)
        if live is None:
            live = self.by_id[id] = Live(id)
            if (mail := self.state.mail.get(id)) is not None:
                live.queue.extend(mail)
                live.carried = len(mail)
                live.mail_bytes = sum(len(envelope.body) for envelope in mail)
            if (record := self.state.jobs.get(id)) is not None:
                self.adopt(live, record)
        return live

    def adopt(self, live: Live, record: JobRecord) -> None:
        """This is what the job is now."""
        live.load(record)
        type, reason = self.host.type_of(record)
        if type is None:
            live.stuck = reason
            self.meet_strange(record)
            self.host.report(f"job {live.id!r} is parked on this node: {reason}")
            return
        live.stuck, live.type = "", type
        try:
            type.load(live.state, live.version)
        except Undecodable as error:
            live.stuck = f"Undecodable: {error}"
            self.host.report(f"job {live.id!r} is parked: {error}; its bytes are kept")

    def meet_strange(self, record: JobRecord) -> None:
        """This node can't run it, perhaps; others may."""
        if self.host.type_of(record)[0] is None:
            name, version = (PICKLED, 1) if record.pickled else (record.type, record.version)
            self.strange[name] = max(version, self.strange.get(name, 0))

    def ready(self, live: Live) -> None:
        """Its queue may have something to run."""
        if (current := self.by_id.get(live.id)) is not None:
            self.readied[live.id] = current
            self.tenure.wake()

    def put_first(self, live: Live, envelope: Envelope) -> None:
        """Ahead of all that waits, but behind the turn that runs."""
        self.put_in(live, 1 if live.running else 0, envelope)

    def put_in(self, live: Live, place: int, envelope: Envelope) -> None:
        """At this place of its queue."""
        draft = self.tenure.turns.draft
        draft.uncount(live, 1 if live.running else 0)
        draft.other_bytes += envelope_bytes(envelope)
        draft.uncarried[live.id] = live
        if place < live.carried:
            if self._is_small(live):
                self._write_anew(live)
            else:
                draft.put_in(live, place, envelope)
        live.queue.insert(place, envelope)

    def take_out(self, live: Live, unwanted: list[Envelope]) -> None:
        """These do not wait any more. None of them is the turn that runs."""
        if not unwanted:
            return
        gone = {id(envelope) for envelope in unwanted}
        draft = self.tenure.turns.draft
        draft.uncount(live, 1 if live.running else 0)
        if self._is_small(live):
            self._write_anew(live)
        else:
            self._edit_out(live, gone)
        kept = [envelope for envelope in live.queue if id(envelope) not in gone]
        live.queue.clear()
        live.queue.extend(kept)
        if any(step[0] == live.id for step in draft.steps):
            over = {step_turn(live.id, live.generation, envelope) for envelope in unwanted}
            draft.steps = [step for step in draft.steps if step[0] != live.id or step[1] not in over]

    def _is_small(self, live: Live) -> bool:
        """Can all of its mailbox be written once more? Then older versions understand what is done to it."""
        if live.mail_bytes + live.carried * ENVELOPE_BYTES > REWRITTEN_BYTES_MAX:
            return False
        return sum(map(len, self.state.steps.get(live.id, {}).values())) <= REWRITTEN_BYTES_MAX

    def _write_anew(self, live: Live) -> None:
        """To older versions a mailbox only grows at its end: what else is done to it, all of it is carried again."""
        draft = self.tenure.turns.draft
        if live.carried:
            draft.done[live.id] = draft.done.get(live.id, 0) + live.carried
            steps = self.state.steps.get(live.id, {})  # they would go with the mailbox
            draft.steps[:0] = [(live.id, turn, name, result) for (turn, name), result in steps.items()]
            draft.other_bytes += sum(map(len, steps.values())) + sum(map(envelope_bytes, live.queue))
        live.carried = live.mail_bytes = 0
        draft.uncarried[live.id] = live

    def _edit_out(self, live: Live, gone: set[int]) -> None:
        place, run = 0, list[Envelope]()
        for envelope in list(islice(live.queue, live.carried)):
            if id(envelope) in gone:
                run.append(envelope)
                continue
            if run:
                self.tenure.turns.draft.take_out(live, place, run)
                run = []
            place += 1
        if run:
            self.tenure.turns.draft.take_out(live, place, run)
