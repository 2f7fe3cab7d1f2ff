"""Which turns run when: plain ones at once and to their end, async ones in tasks of their own; and when a job rests."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import trio

from tenure.scheduler.live import Live
from tenure.scheduler.noted import NO_NOTES, NOTES
from tenure.scheduler.snapshots.schedule import BUILT_IN
from tenure.scheduler.turnid import turn_id

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Running"]

TASKS_A_PASS = 2048
"""So many run loops begin before the loop comes round: they all run as it does."""


class Running:
    """How one tenure runs turns."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.settings = tenure, tenure.host, tenure.settings
        self.turns, self.holding, self.suspicion = tenure.turns, tenure.holding, tenure.suspicion
        self.lives, self._by_id = tenure.lives, tenure.lives.by_id
        self._over_outbox: dict[str, Live] = {}
        self._scopes: set[trio.CancelScope] = set()
        self._queued_scopes: set[trio.CancelScope] = set()
        """Of run loops that wait until their node may run one more turn."""
        self.is_starved = False
        """Have async turns filled what the loop needs too? Then they wait until it has had its part of a record."""
        self._come_first = False
        """Did what came in leave no room for turns in the last record? Then they come first in this one."""

    def is_at_work(self) -> bool:
        """Is a run loop at work, or about to be?"""
        return any(live.running for live in self._by_id.values())

    def begin_no_more(self) -> None:
        """Run loops that wait for others to end need not wait any longer."""
        for scope in self._queued_scopes:
            scope.cancel()

    def cancel(self) -> None:
        """End what runs: it is not committed, and so it runs again."""
        for scope in self._scopes:
            scope.cancel()

    def begin_pass(self) -> bool:
        """The loop begins to fill a draft. May it take something in?"""
        draft = self.turns.draft
        is_starved = draft.changed.size_bytes + draft.other_bytes + draft.sent_bytes >= self.host.budget.seen_bytes
        self.is_starved = is_starved
        return not is_starved and not self._come_first

    def rests(self) -> bool:
        """Is there nothing to run, and nobody who waits for that?"""
        waits = self.lives.readied or self._over_outbox or self._come_first or self.is_starved or self.turns.is_awaited
        return not waits and not self.suspicion.is_on()

    async def run_ready(self) -> None:
        """Run what can be run: plain turns in what is left of the slice that has begun, async ones in tasks of their
        own."""
        if self.tenure.is_closing():
            self.host.pace.end()
            self.turns.free()
            return  # what has not begun is in the mailboxes, for the next owner
        if self._over_outbox and not self.tenure.outbox_is_full():
            self._unpark_senders()
        if self.suspicion.is_on():
            self.host.pace.end()
            await self.suspicion.count(self.lives.readied)
            await self.host.pace.begin()
        self._come_first = self.turns.is_full() and bool(self.lives.readied)
        if self._come_first:
            self.is_starved = self.turns.draft.wanted = True  # what has filled it may have been no turn
            self.host.pace.end()
            return
        if self.host.pace.is_over():
            self.host.pace.end()
            await self.host.pace.begin()
        try:
            tasks = self._run_each()
        finally:
            self.host.board[NOTES] = NO_NOTES  # what comes now is none of theirs
        if self.turns.is_awaited:
            self.turns.free()
        if self.suspicion.wants_more():
            self.tenure.wake()
        if tasks:
            # Handlers that don't really wait are done after a tick or two: let them into this record.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()

    def _run_each(self) -> int:
        """Returns how many tasks were begun."""
        pace, turns, suspicion = self.host.pace, self.turns, self.suspicion
        ready, self.lives.readied = self.lives.readied, {}
        tasks = 0
        jobs = iter(ready.values())
        for live in jobs:
            if not live.queue:
                self.settle(live)
            elif not live.exists():
                self.tenure.definitions.look_up(live)
            elif live.may_run():
                if suspicion.holds(live):
                    suspicion.hold(live)
                elif live.type.is_async:
                    tasks += self._start_run_loop(live)
                    if tasks >= TASKS_A_PASS:
                        self._leave(jobs)
                        break
                else:
                    try:
                        turns.run_plain(live)
                    except Exception as error:
                        _note(error, live)
                        raise
                    if live.queue and live.may_run():
                        self.lives.ready(live)
                        if pace.is_over() or turns.is_full():
                            self._leave(jobs)
                            break
                    else:
                        self.settle(live)
        pace.end()
        return tasks

    def _leave(self, left: "Iterator[Live]") -> None:
        """The pass has to end: these are next, before what has gone on."""
        if first := {live.id: live for live in left}:
            self.lives.readied = first | self.lives.readied
            self.tenure.wake()

    def _start_run_loop(self, live: Live) -> int:
        if self.tenure.is_closing():
            return 0  # the next owner has it in the mailbox
        live.running = True
        self.tenure.start(self._run_loop, live)
        return 1

    async def _run_loop(self, live: Live) -> None:
        with trio.CancelScope() as scope:
            self._queued_scopes.add(scope)
            try:
                async with self._one_of_the_turns(live):
                    self._queued_scopes.discard(scope)
                    self._scopes.add(scope)
                    try:
                        await self.turns.run_loop(live)
                    except Exception as error:
                        _note(error, live)
                        raise
            finally:
                self._queued_scopes.discard(scope)
                self._scopes.discard(scope)
                live.running = False
                self.lives.ready(live)

    def _one_of_the_turns(self, live: Live) -> AbstractAsyncContextManager[Any]:
        """That the node may run at once. What is built in waits for others most of the time, and for long (a snapshot):
        it takes none from the application's jobs."""
        return nullcontext() if live.type is BUILT_IN.get(live.type_name) else self.host.turns

    def settle(self, live: Live) -> None:
        """Nothing more to do for this job now: forget it, unless its object is worth keeping."""
        if live.id in self.holding.full:
            self.holding.settled(live)
        if not live.is_idle() or self._is_yet_to_commit(live.id):
            return
        if live.instance is not None and (live.type.keeps_instance or len(self._by_id) <= self._lives_max()):
            return
        self._by_id.pop(live.id, None)

    def _is_yet_to_commit(self, id: str) -> bool:
        # Brought back from what is committed, it would have again what was done since.
        for draft in (self.turns.draft, self.turns.in_flight):
            if draft is not None and (id in draft.changed or id in draft.done or id in draft.gone):
                return True
        return False

    def _lives_max(self) -> int:
        return max(16, self.settings.instances_max // max(1, self.host.grid.partition_count))

    def park_sender(self, live: Live) -> None:
        """Its messages don't fit into the outbox: it goes on when there is room."""
        self._over_outbox[live.id] = live

    def is_parked(self, live: Live) -> bool:
        """Does it wait for room, in the outbox or at another job?"""
        return live.id in self._over_outbox or self.tenure.credit.is_parked(live)

    def _unpark_senders(self) -> None:
        for live in self._over_outbox.values():
            live.stuck = ""
            self.lives.ready(live)
        self._over_outbox.clear()


def _note(error: Exception, live: Live) -> None:
    """What was in hand as the engine itself failed (a handler's errors do not come here)."""
    first = ""
    if live.queue:
        envelope = live.queue[0]
        first = f" at {turn_id(live.id, live.generation, envelope)}: {bytes(envelope.body)[:512].hex()}"
    error.add_note(f"job {live.id!r}{first}")
