"""Questions to jobs that run nothing until somebody does something: they are refused at once, and have no effect."""

from typing import TYPE_CHECKING

from tenure.scheduler.live import Live
from tenure.scheduler.wire import EMPTY, Answer, Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Refusals"]

QUESTIONS_A_PASS = 1000
"""So many of those that wait are answered in one pass; the others in the next ones."""
COUNTED_MAX = 100
"""In a queue that is longer, all count as messages: nobody looks at each for every question."""


class Refusals:
    """Those of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self._left: dict[str, None] = {}
        """Jobs for which more questions wait that are to be refused."""

    def refuses(self, live: Live, envelope: Envelope) -> bool:
        """Was this question refused? One that was done before is answered as it was then."""
        refusal, turns = self.tenure.holding.refusal(live), self.tenure.turns
        if refusal is None:
            return False
        if envelope.id and (known := turns.remembered(live.id, envelope.id)) is not None:
            turns.draft.answer(envelope, known[1] or Answer(0, True, EMPTY))
        else:
            self._refuse(live, envelope, refusal, _messages(live))
        self.tenure.lives.ready(live)  # to be forgotten
        return True

    def refuse_waiting(self, live: Live) -> None:
        """It runs nothing any more for now: what waits is kept, but for questions. What was begun is none of them."""
        if (refusal := self.tenure.holding.refusal(live)) is None:
            return
        is_begun = live.running or live.failure is not None
        waiting = list[Envelope]()
        for n, envelope in enumerate(live.queue):
            if envelope.reply and envelope.kind == Kind.MESSAGE and not (n == 0 and (is_begun or envelope.attempts)):
                waiting.append(envelope)
                if len(waiting) == QUESTIONS_A_PASS:
                    self._left[live.id] = None
                    self.tenure.wake()
                    break
        if waiting:
            self.tenure.lives.take_out(live, waiting)
            messages = _messages(live)
            for envelope in waiting:
                self._refuse(live, envelope, refusal, messages)

    def go_on(self) -> None:
        """With those that were left in the pass before."""
        left, self._left = self._left, {}
        for id in left:
            if (live := self.tenure.lives.by_id.get(id)) is not None:
                self.refuse_waiting(live)

    def _refuse(self, live: Live, envelope: Envelope, refusal: tuple[str, str], messages: int) -> None:
        name, cause = refusal
        text = f"job {live.id!r} took no question, and nothing was done: {cause}; {messages} messages wait for it"
        self.tenure.turns.draft.answer_error(envelope, name, text)


def _messages(live: Live) -> int:
    """How many wait, for people."""
    if len(live.queue) > COUNTED_MAX:
        return len(live.queue)
    return sum(envelope.kind == Kind.MESSAGE for envelope in live.queue)
