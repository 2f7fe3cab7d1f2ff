"""Dead letters: messages that can't be delivered, kept in full, with the reason.

bury ──► kept ──► taken out: replayed, or discarded; or expired, some days later
          │ more than the table should hold: their senders are held back, as by a full mailbox (see `holding`)
          └── HARD times as many: what jobs and topics still bring is dropped, counted, and reported
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.budget import envelope_bytes
from tenure.scheduler.holding import HARD, HARD_BYTES
from tenure.scheduler.keys import is_partition_sender
from tenure.scheduler.texts import storable
from tenure.scheduler.wire import DeadLetter, Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["DeadLetters"]

SAID_EVERY_S = 10.0
"""A partition reports one dead letter of each reason in so long, and how many more there were."""
EXPIRED_AT_ONCE = 1000
THIN = 0.9
"""There is room again when so much of the limit is left."""
NOBODY = ("UnknownJob", "JobRemoved")
"""Reasons for which all that is sent to the same id becomes a dead letter, until there is such a job."""
EVERYBODY = "*"
"""What stands for a topic in what was sent to all jobs of a type."""


class _Said:
    def __init__(self) -> None:
        self.at_s, self.unsaid = float("-inf"), 0


class DeadLetters:
    """Those of one partition."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.settings, self.partition = tenure, tenure.host, tenure.settings, tenure.partition
        self.turns, self.state = tenure.turns, tenure.state
        self.count = len(self.state.dead)
        self.size_bytes = sum(len(letter.envelope.body) for letter in self.state.dead.values())
        """With what the draft buries and takes out."""
        self._out: set[int] = set()
        """Numbers that are taken out, perhaps not yet committed."""
        self._said: dict[str, _Said] = {}
        self._swept_ms = 0
        """What time it was at the last sweep."""
        tenure.holding.letters_full = self.is_over()

    def is_over(self, times: float = 1, times_bytes: float = 1) -> bool:
        """Are there more than so many times the limits?"""
        settings = self.settings
        return (
            self.count >= times * settings.dead_letters_max
            or self.size_bytes >= times_bytes * settings.dead_letters_bytes_max
        )

    # -- in ---------------------------------------------------------------------------------------

    def bury(self, envelope: Envelope, reason: str, detail: str) -> None:
        """No job can take this message: keep it as a dead letter, and tell whoever asked."""
        detail = storable(detail)
        self.turns.draft.answer_error(envelope, reason, f"message to {envelope.to!r}: {detail}")
        if envelope.topic or envelope.kind != Kind.MESSAGE:
            return
        sender = envelope.slot[:8]
        if is_partition_sender(sender) and self.is_over(HARD, HARD_BYTES):
            self._drop(envelope, reason, detail)
            return
        n = self._next_number()
        envelope.body = envelope.body.copy()
        draft = self.turns.draft
        draft.buried.append(DeadLetter(n, envelope, reason, detail, self.host.now_ms()))
        draft.other_bytes += envelope_bytes(envelope) + len(detail)
        draft.wanted = True
        self.count += 1
        self.size_bytes += len(envelope.body)
        self._say(reason, f"dead letter {self.partition}.{n} for {envelope.to!r}: {reason}: {detail}")
        if self.is_over():
            self.tenure.holding.buried(envelope.to, sender, is_unknown=reason in NOBODY)

    def _drop(self, envelope: Envelope, reason: str, detail: str) -> None:
        """What its sender could not be told in time: it is a job or a topic, and partitions never wait for another's
        lane."""
        self.turns.draft.letters_dropped += 1
        self.turns.draft.wanted = True
        self._say(
            "dropped",
            f"a dead letter of partition {self.partition} is dropped, for it has many times what it should hold "
            f"({self.count}, {self.size_bytes} bytes): to {envelope.to!r} from {envelope.source!r}: {reason}: {detail}",
        )

    def keep(self, envelope: Envelope, reason: str, detail: str) -> None:
        """The same for one that its job has had: it is kept, also where it was for all subscribers of a topic, or all
        jobs of a type; the detail says so."""
        if envelope.topic:
            how = "to all jobs of its type" if envelope.topic == EVERYBODY else f"by topic {envelope.topic!r}"
            detail = f"{detail} (it came {how})"
            envelope.topic = ""
        self.bury(envelope, reason, detail)

    def _next_number(self) -> int:
        last = self.state.buried_count
        for draft in (self.turns.in_flight, self.turns.draft):
            if draft is not None and draft.buried:
                last = max(last, draft.buried[-1].n)
        return last + 1

    # -- out --------------------------------------------------------------------------------------

    def take_out(self, n: int) -> DeadLetter | None:
        """With the next commit it is gone. None: there is no such letter any more."""
        letter = self.state.dead.get(n)
        if letter is None or n in self._out:
            return None
        self._out.add(n)
        self.turns.draft.exhumed.append(n)
        self.count -= 1
        self.size_bytes -= len(letter.envelope.body)
        return letter

    def thinned(self) -> None:
        """Some were taken out: is there room again?"""
        if self.tenure.holding.letters_full and not self.is_over(THIN, THIN):
            self.tenure.holding.letters_thin()

    def sweep(self) -> None:
        """From time to time: take out what has been kept for long enough, and say what was not said."""
        self._out &= self.state.dead.keys()
        expired = [n for n in list(islice(self._old(), EXPIRED_AT_ONCE)) if self.take_out(n) is not None]
        if expired:
            self.turns.draft.letters_expired += len(expired)
            keep_s = self.settings.dead_letters_keep_s
            kept = f"{keep_s / 86_400:g} days" if keep_s >= 86_400 else f"{keep_s:g} s"
            self.host.report(
                f"{len(expired)} dead letters of partition {self.partition} have expired: they were kept for {kept} "
                "(dead_letters_keep_s)"
            )
            self.thinned()
            self.tenure.want_commit()
        for reason, said in self._said.items():
            if said.unsaid and trio.current_time() >= said.at_s + SAID_EVERY_S:
                self.host.report(f"{self._more(reason, said)}")
                said.at_s, said.unsaid = trio.current_time(), 0

    def _old(self) -> Iterator[int]:
        """The oldest first, but for those that another clock has dated."""
        # Not before the next sweep: a clock that has just leapt has not been compared with the others' yet.
        now_ms = self.host.clocks.past_ms()
        since_ms = min(now_ms, self._swept_ms) - self.settings.dead_letters_keep_s * 1000
        self._swept_ms = now_ms
        for n, letter in self.state.dead.items():
            if letter.at_ms <= since_ms and n not in self._out:
                yield n

    # -- what is said -----------------------------------------------------------------------------

    def _say(self, reason: str, text: str) -> None:
        said = self._said.setdefault(reason, _Said())
        if trio.current_time() < said.at_s + SAID_EVERY_S:
            said.unsaid += 1
            return
        more = f" ({self._more(reason, said)} before it)" if said.unsaid else ""
        self.host.report(text + more)
        said.at_s, said.unsaid = trio.current_time(), 0

    def _more(self, reason: str, said: _Said) -> str:
        what = "dead letters were dropped" if reason == "dropped" else f"dead letters ({reason})"
        return f"{said.unsaid} more {what} in partition {self.partition}"
