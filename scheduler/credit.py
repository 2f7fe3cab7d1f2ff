"""Jobs that wait because a job that they send to takes no more. Partitions never wait for each other's lanes, so it is
the sending job that waits: its turn is undone, and runs again when there is room.

    its partition was told: full ──► a turn that sends there is undone, its job parked ──► told: room ──► it runs again
                                                                 └── asked again and again, as hints get lost

Jobs that wait for each other in a circle would wait for ever. Each full job is told of with those for which it waits
itself; who finds itself among them goes on. What then comes is taken far beyond the limit, and becomes a dead letter
after that, as do a job's messages to itself. A topic's subscribers don't park who publishes. (See `holding`
for the other end, and docs/decisions/0028.)
"""

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from tenure.scheduler.live import Live
from tenure.scheduler.wire import Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["CHAIN_MAX", "ROWS_MAX", "Credit"]

ASK_FIRST_S, ASK_MAX_S = 1.0, 8.0
"""How long it waits before it asks whether there is room, unless it is told; twice as long each time."""
FORGOTTEN_AFTER_S = 60.0
"""A full job for which nobody has waited for so long. The next turn that sends to it finds out anew."""
CHAIN_MAX = 16
"""Longer circles of jobs that wait for each other are not seen."""
SILENT_S = 60.0
"""Who does not answer for so long holds nobody back: its owner's version knows of none of this."""
ROWS_MAX = 100
"""Rows in one message."""
SAID_EVERY_S = 10.0
_encode = msgspec.msgpack.Encoder().encode


class Row(Struct):
    """What a partition says of one of its jobs."""

    job: str
    full: bool
    trial: bool = False
    """Only one message may go to it, to see whether it is refused again."""
    why: str = ""
    waiting: int = 0
    chain: list[str] = []
    """The jobs for which it waits itself, from the next one on."""


class News(Struct):
    """What partitions send each other."""

    room: list[Row] = []
    ask: list[str] = []
    """Do these jobs take messages?"""


class _Full:
    def __init__(self, row: Row) -> None:
        self.row = row
        self.parked: dict[str, Live] = {}
        self.trials = 0
        """So many turns may send to it all the same."""
        self.used_s, self.said_s = trio.current_time(), float("-inf")
        self.asked_s = float("inf")
        """Since when it has been asked without an answer."""


class Credit:
    """Those of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host = tenure, tenure.host
        self.full: dict[str, _Full] = {}
        """Jobs that take no more, as far as is known here."""
        self._parked: dict[str, str] = {}
        """Job -> the one for which it waits."""
        self._asking = False

    # -- who waits --------------------------------------------------------------------------------

    def parks(self, live: Live, envelope: Envelope, sends: list[tuple[Envelope, int]]) -> bool:
        """Must this turn be undone, since a job that it sends to takes no more?"""
        if envelope.kind == Kind.STOP or live.status == Status.STOPPING:
            return False  # it is to go; what it sends is its last
        for sent, _ in sends:
            if sent.kind == Kind.MESSAGE and (full := self.full.get(sent.to)) is not None:
                full.used_s = trio.current_time()
                if full.trials:
                    full.trials = 0
                elif sent.to != live.id and live.id not in full.row.chain:
                    self._park(live, full)
                    return True
        return False

    def _park(self, live: Live, full: _Full) -> None:
        row, now_s = full.row, trio.current_time()
        live.instance = None
        live.stuck = f"waits: job {row.job!r} takes no more for now: {row.why}, and {row.waiting} messages wait for it"
        full.parked[live.id] = live
        self._parked[live.id] = row.job
        if now_s >= full.said_s + SAID_EVERY_S:
            full.said_s = now_s
            self.host.report(f"job {live.id!r} {live.stuck}")

    def is_parked(self, live: Live) -> bool:
        """Does it wait for room?"""
        return live.id in self._parked

    def unpark(self, live: Live) -> None:
        """It need not wait."""
        if (job := self._parked.pop(live.id, None)) is not None:
            live.stuck = ""
            if (full := self.full.get(job)) is not None:
                full.parked.pop(live.id, None)
            self.tenure.lives.ready(live)

    def chain(self, id: str) -> list[str]:
        """The jobs for which this one waits, as far as is known: its next, that one's next, and so on."""
        job = self._parked.get(id)
        return [] if job is None else [job, *self.full[job].row.chain][:CHAIN_MAX]

    # -- what is heard ----------------------------------------------------------------------------

    def hear(self, envelope: Envelope) -> None:
        """Another partition tells of its jobs, or asks for ours."""
        try:
            news = msgspec.msgpack.decode(envelope.body, type=News)
        except msgspec.DecodeError:
            return  # of a version that says something else
        for row in news.room:
            self._heard(row)
        if news.ask:
            sender = envelope.slot[:8]
            for id in news.ask:
                self.tenure.holding.asked(id, sender)
            self.tenure.holding.tell()

    def _heard(self, row: Row) -> None:
        full = self.full.get(row.job)
        if row.full:
            if full is None:
                full = self.full[row.job] = _Full(row)
                if not self._asking:
                    self._asking = True
                    self.tenure.start(self._ask)
            full.row, full.asked_s = row, float("inf")
            for id in row.chain:
                if (live := full.parked.get(id)) is not None:
                    self.unpark(live)
        elif full is not None and row.trial:
            full.trials, full.asked_s = 1, float("inf")
            for live in list(full.parked.values())[:1]:
                self.unpark(live)
        elif full is not None:
            self._open(row.job)

    def _open(self, job: str) -> None:
        for live in list(self.full[job].parked.values()):
            self.unpark(live)
        del self.full[job]

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(self) -> None:
        pause_s = ASK_FIRST_S
        while self.full:
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, ASK_MAX_S)
            long_ago_s = trio.current_time() - FORGOTTEN_AFTER_S
            for id in [id for id, full in self.full.items() if not full.parked and full.used_s < long_ago_s]:
                del self.full[id]
            by_partition: dict[int, list[str]] = {}
            now_s = trio.current_time()
            for id in [id for id, full in self.full.items() if now_s >= full.asked_s + SILENT_S]:
                self._open(id)
            for id, full in self.full.items():
                if full.parked:
                    full.asked_s = min(full.asked_s, now_s)
                    by_partition.setdefault(self.host.partition_of(id), []).append(id)
            for partition, ids in by_partition.items():
                for first in range(0, len(ids), ROWS_MAX):
                    self.send(partition, _encode(News(ask=ids[first : first + ROWS_MAX])))
        self._asking = False

    def send(self, partition: int, body: bytes) -> None:
        """With the next commit, by the lane to that partition: in order, and never lost."""
        self.tenure.turns.draft.send(Envelope("", Raw(body), Kind.CREDIT), partition)
        self.tenure.want_commit()
