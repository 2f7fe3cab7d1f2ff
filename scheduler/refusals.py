"""Questions to jobs that run nothing until somebody does something: they are refused at once, and have no effect."""

from typing import TYPE_CHECKING

from tenure.scheduler.live import Live
from tenure.scheduler.wire import EMPTY, Answer, Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Refusals"]

REWRITTEN_BYTES_MAX = 2**20
"""A longer mailbox is not written anew for the questions in it: those wait."""


class Refusals:
    """Those of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure

    def refuses(self, live: Live, envelope: Envelope) -> bool:
        """Was this question refused? One that was done before is answered as it was then."""
        refusal, turns = self.tenure.holding.refusal(live), self.tenure.turns
        if refusal is None:
            return False
        if envelope.id and (known := turns.remembered(live.id, envelope.id)) is not None:
            turns.draft.answer(envelope, known[1] or Answer(0, True, EMPTY))
        else:
            self._refuse(live, envelope, refusal)
        self.tenure.lives.ready(live)  # to be forgotten
        return True

    def refuse_waiting(self, live: Live) -> None:
        """It runs nothing any more for now: what waits is kept, but for questions. What was begun is none of them."""
        refusal = self.tenure.holding.refusal(live)
        if refusal is None or live.mail_bytes > REWRITTEN_BYTES_MAX:
            return
        is_begun = live.running or live.failure is not None
        waiting = [
            envelope
            for n, envelope in enumerate(live.queue)
            if envelope.reply and envelope.kind == Kind.MESSAGE and not (n == 0 and (is_begun or envelope.attempts))
        ]
        if waiting:
            self.tenure.lives.take_out(live, waiting)
            for envelope in waiting:
                self._refuse(live, envelope, refusal)

    def _refuse(self, live: Live, envelope: Envelope, refusal: tuple[str, str]) -> None:
        name, cause = refusal
        waiting = sum(other.kind == Kind.MESSAGE for other in live.queue)
        text = f"job {live.id!r} took no question, and nothing was done: {cause}; {waiting} messages wait for it"
        self.tenure.turns.draft.answer_error(envelope, name, text)
