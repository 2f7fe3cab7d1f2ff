"""What an application's jobs in one partition have still to do: counted job by job, some at a time.

all jobs, a slice after the other ──► those that have changed meanwhile, once more ──► as of one journal record
"""

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from tenure.scheduler.live import Live
from tenure.scheduler.wire import JobRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.scheduler.draft import Draft
    from tenure.scheduler.tenure import Tenure

__all__ = ["JOBS_A_SLICE", "LookOver"]

JOBS_A_SLICE = 1000


class _Row(NamedTuple):
    print: int
    turns: int
    due_ms: int
    undone: tuple[tuple[str, int], ...]


class LookOver:
    """One count, which may go on while jobs run. Whoever keeps it tells it of each draft that they have changed."""

    def __init__(self, tenure: "Tenure", is_meant: "Callable[[JobRecord], bool]") -> None:
        self.tenure, self._is_meant = tenure, is_meant
        self.turns = self.timers = 0
        self.busy: Counter[str] = Counter()
        self.waiting: dict[str, str] = {}
        """Jobs that are not quiet, and why."""
        self._print = 0
        self._rows: dict[str, _Row] = {}
        self._changed: dict[str, None] = dict.fromkeys((*tenure.state.jobs, *tenure.lives.by_id))

    def hear(self, draft: "Draft") -> None:
        """These have changed, or may have."""
        for table in (draft.changed, draft.uncarried, draft.done, draft.gone):
            self._changed.update(dict.fromkeys(table))

    def left(self) -> int:
        """So many jobs are to be counted, or counted once more."""
        return len(self._changed)

    def go_on(self, count: int) -> None:
        """Count so many of them."""
        for id in [id for id, _ in zip(self._changed, range(count), strict=False)]:
            del self._changed[id]
            self._count(id)

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self._rows)

    def print(self) -> bytes:
        """Changes with every turn of one of them."""
        return self._print.to_bytes(16, "big")

    def first_due_ms(self) -> int:
        """When the first of their timers is due; 0: there is none."""
        return min((row.due_ms for row in self._rows.values() if row.due_ms), default=0)

    def _count(self, id: str) -> None:
        if (before := self._rows.pop(id, None)) is not None:
            self._add(before, -1)
            self.waiting.pop(id, None)
        live = self.tenure.lives.by_id.get(id)
        record = self.tenure.state.jobs.get(id) if live is None else live.record() if live.exists() else None
        if record is not None and self._is_meant(record):
            row = self._rows[id] = _row(id, record, live)
            self._add(row, 1)
            if row.undone:
                self.waiting[id] = row.undone[0][0]

    def _add(self, row: _Row, sign: int) -> None:
        self._print ^= row.print
        self.turns += sign * row.turns
        self.timers += sign * bool(row.due_ms)
        for why, count in row.undone:
            self.busy[why] += sign * count


def _row(id: str, record: JobRecord, live: Live | None) -> _Row:
    text = f"{id}\0{record.generation}\0{record.revision}\0{record.turns}\0{record.status}\n"
    digest = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")
    is_set = record.timer is not None and record.status == Status.RUNNING
    due_ms = record.timer.first_ms() if is_set and record.timer is not None else 0
    return _Row(digest, record.turns, due_ms, tuple(_undone(record, live)))


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
