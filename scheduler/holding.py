"""Which jobs of a partition take no more for now, and who was told: senders hold back what is for these jobs alone.

    mailbox over its limit ──► full: who sends to it is told ──► half empty: they are told that there is room
                                  │ they hold back by themselves; who can't is not taken from
                                  └── HARD times the limit: nor is a client that goes on for BEYOND slots all the same

The dead letters of a partition are such a mailbox, too. When they are full, a client asks before it sends to a job that
it does not know to be there; and a job whose messages became dead letters for another reason is full for a while.

All that is told is a hint, in memory alone: a client that heard nothing is told again, and one that was told asks
(command `room`). So a lane goes on behind a message for a full job, with all that is for others.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.credit import ROWS_MAX
from tenure.scheduler.keys import is_partition_sender, sending_partition
from tenure.scheduler.live import Live
from tenure.scheduler.wire import Answer, Batch, Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["BEYOND", "FLOOD_BYTES", "HARD", "HARD_BYTES", "HINT", "Holding"]

HARD, HARD_BYTES = 64, 8
"""So many times its limits, in number and in bytes, may a mailbox hold of what was on its way when its senders were
told. A client may have 64 slots of 2,048 messages on their way, and half a MiB in each."""
BEYOND = 128
"""So many slots of a client that holds back are taken from it beyond that: as many as it may have on their way, and
more. Others may have brought what there is: it must be told before all that it sends here is stopped."""
HARD_IDS = 2
"""So many times as many ids as it should may a partition remember of what was on its way."""
FLOOD_BYTES = 64
"""The same for what comes by partitions' lanes, if the job runs."""
HINT = 0
"""The number of an answer that nobody asked for. Questions are numbered from 1; older clients pass over it."""
LETTERS = ""
"""No job's id: news of dead letters."""
BURIED_S = 30.0
"""A job whose messages became dead letters, of which there are too many, gets none for so long, and one at a time for
as long again: they show whether it was mended."""
TOLD_S = 60.0
"""Who was told so long ago, and has not asked since, holds nothing back, or is gone."""
AGAIN_S = 1.0
"""Who goes on sending to a full job after so long has not heard, and is told again."""
_encode = msgspec.msgpack.Encoder().encode


class Holding:
    """Those of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.settings = tenure, tenure.settings
        self.full: dict[str, dict[bytes, float]] = {}
        """Job -> the senders that were told, and when, on trio's clock."""
        self.letters_full = False
        """Are there too many dead letters?"""
        self._buried: dict[str, float] = {}
        """Jobs that are full because their messages became dead letters, and until when. No time tells whether there is
        a job of an id that had none."""
        self._by_ids: set[str] = set()
        """Jobs that are full because their messages have ids, of which the partition remembers too many."""
        self._beyond: dict[bytes, tuple[float, int]] = {}
        """Client -> when the last of its slots beyond all limits was taken, and how many were."""
        self._told_letters: dict[bytes, float] = {}
        self._news: dict[bytes, dict[str, int]] = {}
        """Sender -> what to tell it of, and how many are told the same: they share the room."""

    # -- is it full? ------------------------------------------------------------------------------

    def filled(self, id: str, sender: bytes) -> None:
        """This sender's message was one more than a mailbox should hold."""
        told, now_s = self.full.setdefault(id, {}), trio.current_time()
        if now_s >= told.get(sender, float("-inf")) + AGAIN_S:
            told[sender] = now_s
            self._news.setdefault(sender, {})[id] = 1

    def is_over(self, live: Live, times: int = 1, times_bytes: int = 1) -> bool:
        """Does more wait for it than so many times the limits?"""
        settings = self.settings
        return (
            len(live.queue) >= times * settings.mailbox_messages_max
            or live.mail_bytes >= times_bytes * settings.mailbox_bytes_max
        )

    def settled(self, live: Live) -> None:
        """This job has nothing to do for now: is there room again?"""
        if live.id in self.full and self._is_half_empty(live) and not self._is_full_otherwise(live.id):
            self._opened(live.id)

    def _is_full_otherwise(self, id: str) -> bool:
        return id in self._buried or id in self._by_ids

    def _is_half_empty(self, live: Live) -> bool:
        settings = self.settings
        return 2 * len(live.queue) < settings.mailbox_messages_max and 2 * live.mail_bytes < settings.mailbox_bytes_max

    def _opened(self, id: str) -> None:
        told = self.full.pop(id)
        for sender in told:
            self._news.setdefault(sender, {})[id] = len(told)
        self.tenure.taking.let_go_on()
        self.tell()

    def stops(self, sender: bytes, batch: Batch) -> bool:
        """Must a client's lane stop before this batch? Not for commands: they may be what a job needs to go on."""
        if not self._is_too_much(batch):
            return False
        _, slots = self._beyond.get(sender, (0.0, 0))
        if not batch.holds_back or slots >= BEYOND:
            return True
        self._beyond[sender] = trio.current_time(), slots + 1
        return False

    def _is_too_much(self, batch: Batch) -> bool:
        by_id, times = self.tenure.lives.by_id, (HARD, HARD_BYTES) if batch.holds_back else (1, 1)
        letters = self.letters_full and self.tenure.dead_letters.is_over(*times)
        remembering = self.tenure.remembering
        ids_full = remembering.is_full and (not batch.holds_back or remembering.is_over(HARD_IDS))
        for envelope in batch.envelopes:
            if envelope.kind != Kind.MESSAGE:
                continue
            if ids_full and envelope.id:
                return True
            if envelope.to in self.full:
                live = by_id.get(envelope.to)
                if letters or not batch.holds_back or (live is not None and self.is_over(live, *times)):
                    return True
            elif letters and not self._is_known(envelope.to):
                return True
        return False

    def _is_known(self, id: str) -> bool:
        live = self.tenure.lives.by_id.get(id)
        return live.exists() if live is not None else id in self.tenure.state.jobs

    # -- remembered ids ---------------------------------------------------------------------------

    def ids_filled(self, id: str, envelope: Envelope) -> None:
        """A message has an id, and too many are remembered: its client is told."""
        if not envelope.topic and not is_partition_sender(sender := envelope.slot[:8]):
            self._by_ids.add(id)
            self.filled(id, sender)

    def ids_thin(self) -> None:
        """There is room for ids again."""
        by_ids, self._by_ids = self._by_ids, set()
        for id in sorted(by_ids):
            self.settled(self.tenure.lives.by_id.get(id) or Live(id))
        self.tenure.taking.let_go_on()

    # -- dead letters -----------------------------------------------------------------------------

    def buried(self, id: str, sender: bytes, *, is_unknown: bool) -> None:
        """One more dead letter than there should be."""
        now_s = trio.current_time()
        self.letters_full = True
        if is_unknown and not is_partition_sender(sender):
            if now_s >= self._told_letters.get(sender, float("-inf")) + AGAIN_S:
                self._told_letters[sender] = now_s
                self._news.setdefault(sender, {})[LETTERS] = 1
        else:
            self._buried[id] = float("inf") if is_unknown else now_s + BURIED_S
            self.filled(id, sender)
        self.tenure.wake()  # to tell

    def letters_thin(self) -> None:
        """There is room for dead letters again."""
        self.letters_full = False
        for sender in self._told_letters:
            self._news.setdefault(sender, {})[LETTERS] = 1
        self._told_letters.clear()
        self._open_buried(float("inf"))
        self.tenure.taking.let_go_on()

    def made(self, id: str) -> None:
        """There is a job of this id now."""
        if self.letters_full:
            self._open_buried(float("inf"), id)
            self.tenure.taking.let_go_on()

    def sweep(self) -> None:
        """From time to time: what was refused may have been mended."""
        now_s = trio.current_time()
        self._open_buried(now_s - BURIED_S)
        self._beyond = {sender: at for sender, at in self._beyond.items() if at[0] >= now_s - TOLD_S}
        for told in (*self.full.values(), self._told_letters):
            for sender in [sender for sender, at_s in told.items() if at_s < now_s - TOLD_S]:
                del told[sender]

    def _is_on_trial(self, id: str) -> bool:
        return self._buried.get(id, float("inf")) <= trio.current_time()

    def _open_buried(self, until_s: float, only: str = "") -> None:
        over = [id for id, end_s in self._buried.items() if end_s <= until_s and only in ("", id)]
        for id in over:
            del self._buried[id]
            self.settled(self.tenure.lives.by_id.get(id) or Live(id))

    # -- what is said of it -----------------------------------------------------------------------

    def tell(self) -> None:
        """Tell senders what has changed."""
        news, self._news = self._news, {}
        answers = []
        for sender, ids in news.items():
            if is_partition_sender(sender):
                self._tell_partition(sending_partition(sender), ids)
                continue
            hint: dict[str, Any] = {"room": [self._row(id, shares=n) for id, n in ids.items() if id != LETTERS]}
            if LETTERS in ids:
                hint["letters"] = {self.tenure.partition: self._why_letters()}
            answers.append((sender, Answer(HINT, True, Raw(_encode(hint)))))
        self.tenure.courier.send([], answers)

    def _tell_partition(self, partition: int, news: dict[str, int]) -> None:
        credit, ids = self.tenure.credit, list(news)
        if partition >= self.tenure.host.grid.partition_count:
            return  # whoever wrote that slot is no partition of ours
        for first in range(0, len(ids), ROWS_MAX):
            rows = [self._row(id) | {"chain": credit.chain(id)} for id in ids[first : first + ROWS_MAX]]
            for row in rows:
                row["full"] &= not self._is_for_clients_alone(row["job"])
            credit.send(partition, _encode({"room": rows}))

    def _is_for_clients_alone(self, id: str) -> bool:
        """Is it full only for the ids of its messages? What jobs send is remembered in any case."""
        live = self.tenure.lives.by_id.get(id) or Live(id)
        return id in self._by_ids and id not in self._buried and self._is_half_empty(live)

    def asked(self, id: str, sender: bytes) -> None:
        """A partition asks whether this job takes messages again. To be followed by `tell`."""
        live = self.tenure.lives.by_id.get(id)
        if id not in self.full and live is not None and self.is_over(live):
            self.full[id] = {}  # by a new owner, who had not told anybody yet
        if id in self.full:
            self.full[id][sender] = trio.current_time()
        self._news.setdefault(sender, {})[id] = 1

    def has_news(self) -> bool:
        """Is there something to tell?"""
        return bool(self._news)

    def room(self, id: str, sender: bytes) -> dict[str, Any]:
        """A client asks whether this job takes messages again."""
        live = self.tenure.lives.of(id)
        if self.letters_full and not live.exists():
            return self._row(id, live) | {"full": True, "why": self._why_letters()}
        shares = 1
        if self.is_over(live) or id in self.full:
            told = self.full.setdefault(id, {})
            told[sender] = trio.current_time()
            shares = len(told)
            self.settled(live)
        self.tenure.lives.ready(live)  # to be forgotten, if it has nothing to do
        return self._row(id, live, shares)

    def letters(self, sender: bytes) -> str:
        """Why this client must ask before it sends to who may not be there; empty: it need not."""
        if self.letters_full:
            self._told_letters[sender] = trio.current_time() - AGAIN_S  # what it now takes for known may yet go
        return self._why_letters()

    def _why_letters(self) -> str:
        letters = self.tenure.dead_letters
        if not self.letters_full:
            return ""
        return (
            f"no such job is known, and partition {self.tenure.partition} has too many dead letters "
            f"({letters.count}, {letters.size_bytes} bytes)"
        )

    def _row(self, id: str, live: Live | None = None, shares: int = 1) -> dict[str, Any]:
        live = live or self.tenure.lives.by_id.get(id) or Live(id)
        settings, senders = self.settings, max(shares, len(self.full.get(id, ())))
        slow = "it is slower than what comes in"
        if live.failure is not None and live.failure.retry_ms:
            slow = f"its first turn has failed, and is tried again: {live.failure.error}"
        elif self.tenure.credit.is_parked(live):
            slow = f"it {live.stuck}"
        elif id in self._buried:
            slow = f"its messages become dead letters, of which partition {self.tenure.partition} has too many"
        elif id in self._by_ids:
            slow = f"its messages have ids, and {self.tenure.remembering.said()}"
        state, why = self.refusal(live) or ("", slow)
        is_on_trial = self._is_on_trial(id)
        return {
            "job": id,
            "full": id in self.full and not is_on_trial,
            "trial": is_on_trial,
            "state": state,
            "why": why,
            "waiting": len(live.queue),
            "room": 1 if is_on_trial else max(1, (settings.mailbox_messages_max - len(live.queue)) // senders),
            "room_bytes": max(1, (settings.mailbox_bytes_max - live.mail_bytes) // senders),
        }

    def refusal(self, live: Live) -> tuple[str, str] | None:
        """If this job runs nothing until somebody does something: the name of the error that says so, and the cause."""
        if not live.exists():
            return None
        if live.status == Status.FAILED:
            return "JobFailed", f"it has failed: {live.failure.error if live.failure else 'nobody knows why'}"
        if live.status == Status.PAUSED:
            return "JobPaused", "it is paused"
        if live.stuck and not self.tenure.running.is_parked(live) and not self._may_run_elsewhere(live):
            return "JobStuck", f"it is stuck: {live.stuck}"
        return None

    def _may_run_elsewhere(self, live: Live) -> bool:
        """Is there a node that runs what this one can't? Then its partition is on its way there."""
        host = self.tenure.host
        nodes = [node for node in host.live_nodes() if not node.draining]
        if host.type_of(live.record())[0] is not None:
            return False
        if live.pickled:
            return any(node.allows_pickled and node.id != host.node for node in nodes)
        return any(node.types.get(live.type_name, 0) >= live.version for node in nodes)
