"""After a crash: finding the message that killed its process, so that it does not tour all nodes.

While anything is under suspicion, attempts are counted in the journal *before* they begin. What has no
count yet goes in groups that double while all is well; what has one (it was running at a crash) goes
alone, so that nobody else is counted with it. One that was running in too many crashes fails its job.
"""

from itertools import islice
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.hangs import Hang, some_turn
from tenure.scheduler.live import Live
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import Failure

if TYPE_CHECKING:
    from tenure.scheduler.draft import Draft
    from tenure.scheduler.tenure import Tenure

__all__ = ["Suspicion"]

GROUP_FIRST, GROUP_MAX = 32, 1024
"""What was ready at the crash goes in groups of these sizes, each twice the one before if that was full."""
FIRST = 4
"""What a turn that was running may have before it by now: a start, a resumption, a stop."""
PATIENCE_S = 1.0
"""A suspect that has not killed anybody for so long has others beside it again."""


class Suspicion:
    """What one tenure thinks of what was waiting when the last one ended badly."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self._group = 0
        self._alone: Live | None = None
        self._since_s = 0.0
        self._held: dict[str, Live] = {}
        """What could run, had its attempt been counted."""
        self._standing: dict[str, Live] = {}
        """What could run, were there not a node that stands in this very turn, and may come back (see `hangs`)."""
        self._is_waiting = False
        self._suspects_turn = False

    def begin(self) -> None:
        """The last tenure did not close."""
        self._group = GROUP_FIRST

    def heard(self) -> None:
        """There is word of a node that hangs, or hung, in a turn of this partition; or there was."""
        self._group = self._group or GROUP_FIRST
        for live in self._standing.values():
            self.tenure.lives.ready(live)
        self._standing.clear()
        self.tenure.wake()

    def is_on(self) -> bool:
        """Must attempts be counted before they begin?"""
        return self._group > 0

    def holds(self, live: Live) -> bool:
        """Must this job's next turn wait for its count?"""
        if not self._group or live.precounted:
            return False
        return self._alone is not None or self._group <= GROUP_MAX or live.queue[0].attempts > 0

    def hold(self, live: Live) -> None:
        """It could run, but must wait."""
        self._held[live.id] = live

    def wake_s(self) -> float:
        """When to look again, on trio's clock, if nothing else happens."""
        return self._since_s + PATIENCE_S if self._held and self._is_waiting else float("inf")

    def wants_more(self) -> bool:
        """Is there somebody to count, and nobody to wait for?"""
        return bool(self._held) and not self._is_waiting

    async def count(self, ready: dict[str, Live]) -> None:
        """Choose who goes next among those that are ready, and journal that they do."""
        lives = self.tenure.lives.by_id
        ready.update((id, live) for id, live in self._held.items() if lives.get(id) is live)
        self._held, self._is_waiting = {}, False
        if self.tenure.host.hangs.any():
            self._heed_hangs(ready)
        busy = [live for live in lives.values() if live.running and live.precounted]
        patient = trio.current_time() < self._since_s + PATIENCE_S
        if self._alone is not None:
            if self._alone.running and self._alone.precounted and patient:
                self._is_waiting = True
                return
            if self._alone.precounted and self._alone.id in ready and self._alone.may_run():
                return  # its turn is about to begin
            self._alone = None
        waiting = [live for live in ready.values() if live.queue and live.may_run() and not live.precounted]
        waiting = [live for live in waiting if not self._is_given_up(live)]
        suspects = [live for live in waiting if live.queue[0].attempts]
        fresh = [live for live in waiting if not live.queue[0].attempts] if self._group <= GROUP_MAX else []
        self._suspects_turn = bool(suspects) and not (self._suspects_turn and fresh)
        if self._suspects_turn and busy and patient:
            self._is_waiting = True  # what runs now would be counted with it
            self._suspects_turn = False
            if not fresh:
                return
        if self._suspects_turn:
            for live in busy:
                self._uncount(live)
            self._mark(suspects[0], 1)
            self._alone, self._since_s = suspects[0], trio.current_time()
        elif fresh:
            self._mark_group(fresh)
        else:
            is_over = self._group > GROUP_MAX or not (ready or busy or self._are_to_come())
            if is_over and not (suspects or self._standing or self.tenure.host.hangs.about(self.tenure.partition)):
                self._group = 0
            return
        await self.tenure.commit()

    def _heed_hangs(self, ready: dict[str, Live]) -> None:
        """Whose turn somebody stands in waits; whose turn somebody has ended of goes alone, as after a crash."""
        hangs = self.tenure.host.hangs
        for live in [live for live in ready.values() if live.queue and live.may_run() and not live.precounted]:
            first = live.queue[0]
            turn = turn_id(live.id, live.generation, first)
            if hangs.is_standing(turn, live.id):
                del ready[live.id]
                self._standing[live.id] = live
            elif hangs.ended(turn) and not first.attempts:
                first.attempts = 1
                self._recount(live)

    def tidy(self) -> None:
        """Words on turns that are done have had their effect."""
        hangs = self.tenure.host.hangs
        for hang in hangs.about(self.tenure.partition):
            if hang.ended and hangs.is_old(hang, trio.current_time()) and not self._is_waiting_for(hang):
                draft = self.tenure.turns.draft
                self.tenure.start(self._forget_hangs, draft, hangs.settle(hang.turn or some_turn(hang.job)))
                self.tenure.want_commit()

    def _is_waiting_for(self, hang: Hang) -> bool:
        live = self.tenure.lives.by_id.get(hang.job)
        if not hang.turn:
            return live is not None and bool(live.queue) and live.queue[0].attempts > 0
        first = islice(live.queue, FIRST) if live is not None else ()
        return live is not None and any(turn_id(live.id, live.generation, it) == hang.turn for it in first)

    def _are_to_come(self) -> bool:
        """Do messages wait for jobs that are still looked up? They were there at the crash, too."""
        return any(live.loading for live in self.tenure.lives.by_id.values())

    def _mark_group(self, fresh: list[Live]) -> None:
        size = left = self._group
        for live in fresh:
            left -= self._mark(live, left)
            if not left:
                break
        self._group += size - left
        self._since_s = trio.current_time()

    def _mark(self, live: Live, count_max: int) -> int:
        first = live.queue[0]
        for _, envelope in zip(range(count_max), live.queue, strict=False):
            if envelope.attempts and envelope is not first:
                break
            envelope.attempts += 1
            live.precounted += 1
        self._recount(live)
        return live.precounted

    def _uncount(self, live: Live) -> None:
        # It has run beside nobody for a while, and all lived: a crash from now on is not held against it.
        self.tenure.turns.draft.uncount(live, 0)
        self._recount(live)

    def _recount(self, live: Live) -> None:
        draft = self.tenure.turns.draft
        draft.uncarried[live.id] = draft.recounted[live.id] = live
        draft.wanted = True

    def _is_given_up(self, live: Live) -> bool:
        """Was its first message running in too many crashes? Then its job fails."""
        attempts = live.queue[0].attempts
        turn = turn_id(live.id, live.generation, live.queue[0])
        if hung := self.tenure.host.hangs.against(turn, live.id):
            live.failure = Failure(_told(hung), "", turn, max(attempts, len(hung)), self.tenure.host.now_ms())
            keys = self.tenure.host.hangs.settle(turn, some_turn(live.id))
            self.tenure.start(self._forget_hangs, self.tenure.turns.draft, keys)
            self.tenure.failing.give_up(live, live.queue[0])
            return True
        most = self.tenure.settings.crash_attempts_max
        if live.failure is not None:
            most += live.failure.attempts  # only those since then were crashes
        if attempts < most:
            return False
        what = f"CrashedRepeatedly: the node died, or its partition stopped, {attempts} times while this was running"
        live.failure = Failure(what, "", "", attempts, self.tenure.host.now_ms())
        self.tenure.failing.give_up(live, live.queue[0])
        return True

    async def _forget_hangs(self, draft: "Draft", keys: list[bytes]) -> None:
        """That it has failed is committed: when it is tried again one day, it is tried."""
        await draft.committed.wait()
        for key in keys:
            try:
                await self.tenure.host.grid.delete(Map.NODES, 0, key)
            except GridError:
                pass  # it has its time to live


def _told(hung: list[Hang]) -> str:
    where = next((hang.where for hang in hung if hang.where), "a place that is not known")
    memory_mib = max(hang.memory_mib for hang in hung)
    taken = f"{memory_mib:,.0f} MiB of memory, more than a node may take (memory_max_mib)"
    if any(hang.alone for hang in hung):
        return f"TookTooMuchMemory: in this turn a node came to take {taken}, and had to be ended: at {where}"
    what = f"HungRepeatedly: {len(hung)} nodes stood still in this turn, and had to be ended: at {where}"
    return f"{what}; it had taken {taken}" if memory_mib else what
