"""When jobs wake: their timers, and events that failed and are tried again. Two heaps; what is due becomes an event.

A timer that is set anew leaves its old entry behind, which finds a later due time when its turn comes.
"""

import heapq
from typing import TYPE_CHECKING

import trio
from msgspec import structs

from tenure.scheduler.budget import ENVELOPE_BYTES
from tenure.scheduler.errors import BadSchedule
from tenure.scheduler.live import Live
from tenure.scheduler.timers import ring
from tenure.scheduler.wire import Envelope, Failure, JobRecord, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Alarms"]

TIMERS_SPARE = 1000
RUNG_IN_ANY_CASE = 64
"""So many times is rung in each pass, also when what was taken before them has used up the slice."""
LOOK_S_MAX = 1.0
"""Wall clocks may jump, so nobody sleeps longer than this towards a due time."""


class Alarms:
    """The due times of one tenure's jobs."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host = tenure, tenure.host
        self.timers: list[tuple[int, str]] = []
        self.retries: list[tuple[float, int, str]] = []
        """When on trio's clock; as which time it was recorded; and whose. Wall clocks may jump, or be another node's: a
        retry never waits for longer than was meant."""

    def resume(self, id: str, record: JobRecord) -> None:
        """What a takeover finds. To be followed by `resumed`."""
        if record.timer is not None and record.status == Status.RUNNING and (due_ms := record.timer.first_ms()):
            self.timers.append((due_ms, id))
        if record.failure is not None and record.failure.retry_ms:
            failure = record.failure
            wait_ms = min(failure.retry_ms - self.host.now_ms(), failure.retry_ms - failure.at_ms)
            self.retries.append((trio.current_time() + max(0, wait_ms) / 1000, failure.retry_ms, id))

    def resumed(self) -> None:
        """All jobs were seen."""
        heapq.heapify(self.timers)
        heapq.heapify(self.retries)

    def set_timer(self, live: Live) -> None:
        """Its timer was set (or taken away)."""
        if live.timer is not None and (due_ms := live.timer.first_ms()):
            heapq.heappush(self.timers, (due_ms, live.id))
            if len(self.timers) > TIMERS_SPARE + 2 * (len(self.tenure.state.jobs) + len(self.tenure.lives.by_id)):
                self._drop_stale_timers()

    def _drop_stale_timers(self) -> None:
        current = {id: record.timer for id, record in self.tenure.state.jobs.items()}
        current |= {id: live.timer for id, live in self.tenure.lives.by_id.items()}
        due = ((timer.first_ms(), id) for id, timer in current.items() if timer is not None)
        self.timers = [(due_ms, id) for due_ms, id in due if due_ms]
        heapq.heapify(self.timers)

    def retry(self, live: Live, failure: Failure) -> None:
        """Its first event failed, just now, and is due again."""
        wait_s = (failure.retry_ms - failure.at_ms) / 1000
        heapq.heappush(self.retries, (trio.current_time() + wait_s, failure.retry_ms, live.id))

    def hasten(self, by_s: float) -> None:
        """All that is to be tried again is due so much sooner: the clocks of a test have gone on by so much."""
        self.retries = [(at_s - by_s, retry_ms, id) for at_s, retry_ms, id in self.retries]

    def next_s(self) -> float:
        """When, on trio's clock, to look again."""
        due_s = self.retries[0][0] if self.retries else float("inf")
        if self.timers:
            wait_s = max(0.0, (self.timers[0][0] - self.host.now_ms()) / 1000)
            due_s = min(due_s, trio.current_time() + min(LOOK_S_MAX, wait_s))
        return due_s

    def ring(self) -> None:
        """Timers and retries that are due become events."""
        if not self.timers and not self.retries:
            return
        now_ms, tenure = self.host.now_ms(), self.tenure
        self._try_again()
        draft, budget, n = tenure.turns.draft, tenure.host.budget, 0
        # A share of their own: where messages fill theirs in each record, timers go on all the same.
        until_bytes = min(draft.size() + budget.seen_bytes, budget.full_bytes)
        while self.timers and self.timers[0][0] <= now_ms:
            if draft.size() >= until_bytes or (n >= RUNG_IN_ANY_CASE and tenure.host.pace.is_over()):
                tenure.wake()  # the others with the next record: each has its job's state in it
                return
            due_ms, id = heapq.heappop(self.timers)
            if id not in tenure.lives.by_id and id not in tenure.state.jobs:
                continue
            live = tenure.lives.of(id)
            n += 1
            if live.timer is not None and 0 < live.timer.first_ms() <= due_ms and live.status == Status.RUNNING:
                n += self._ring_one(live, now_ms)

    def _try_again(self) -> None:
        lives, pace, now_s, n = self.tenure.lives, self.host.pace, trio.current_time(), 0
        while self.retries and self.retries[0][0] <= now_s:
            if n >= RUNG_IN_ANY_CASE and pace.is_over():
                self.tenure.wake()
                return
            n += 1
            _, retry_ms, id = heapq.heappop(self.retries)
            live = lives.of(id)
            if live.failure is not None and live.failure.retry_ms == retry_ms:
                live.failure = structs.replace(live.failure, retry_ms=0)
                lives.ready(live)

    def _ring_one(self, live: Live, now_ms: int) -> int:
        """How often does it ring? One that catches up may do so a thousand times."""
        if live.stuck:
            heapq.heappush(self.timers, (now_ms + 1000, live.id))
            return 0
        assert live.timer is not None
        type, draft, due_by = live.type, self.tenure.turns.draft, live.timer.due_by
        try:
            live.timer, fired = ring(live.timer, now_ms, type.misfire, round(type.misfire_grace_s * 1000))
        except BadSchedule as error:
            live.stuck = f"BadSchedule: {error}"
            self.host.report(f"job {live.id!r} is parked on this node: {live.stuck}")
            return 0
        kinds = {"timeout": Kind.TIMEOUT, "cron": Kind.CRON}
        origin, by = self.host.origin(), f"{due_by:x}" if due_by else ""
        for kind, due_ms in fired:
            source = by if kind == "timeout" else ""
            live.queue.append(Envelope(live.id, kind=kinds[kind], source=source, index=due_ms, origin=origin))
        self.set_timer(live)
        draft.changed[live.id] = draft.uncarried[live.id] = live
        draft.other_bytes += len(fired) * (ENVELOPE_BYTES + len(live.id))
        draft.wanted = True
        self.tenure.lives.ready(live)
        return len(fired)
