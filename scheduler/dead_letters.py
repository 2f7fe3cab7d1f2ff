"""Dead letters: messages that can't be delivered, kept with the reason."""

from typing import TYPE_CHECKING

from tenure.scheduler.texts import storable
from tenure.scheduler.wire import DeadLetter, Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["DeadLetters"]


class DeadLetters:
    """Those of one partition."""

    def __init__(self, tenure: "Tenure") -> None:
        self.host, self.settings, self.partition = tenure.host, tenure.settings, tenure.partition
        self.turns, self.state = tenure.turns, tenure.state

    def bury(self, envelope: Envelope, reason: str, detail: str) -> None:
        """No job can take this message: keep it as a dead letter, and tell whoever asked."""
        detail = storable(detail)
        self.turns.draft.answer_error(envelope, reason, f"message to {envelope.to!r}: {detail}")
        if envelope.topic or envelope.kind != Kind.MESSAGE:
            return
        if len(self.state.dead) + len(self.turns.draft.buried) >= self.settings.dead_letters_max:
            self.host.report(
                f"dead letters of partition {self.partition} are full; not kept: {reason}, {detail}, {envelope!r}"
            )
            return
        n = self._next_number()
        envelope.body = envelope.body.copy()
        self.turns.draft.buried.append(DeadLetter(n, envelope, reason, detail, self.host.now_ms()))
        self.turns.draft.wanted = True
        self.host.report(f"dead letter {self.partition}.{n} for {envelope.to!r}: {reason}: {detail}")

    def keep(self, envelope: Envelope, reason: str, detail: str) -> None:
        """The same for one that its job has had: it is kept, also where it was for all subscribers of a topic."""
        envelope.topic = ""
        self.bury(envelope, reason, detail)

    def _next_number(self) -> int:
        last = self.state.buried_count
        for draft in (self.turns.in_flight, self.turns.draft):
            if draft is not None and draft.buried:
                last = max(last, draft.buried[-1].n)
        return last + 1
