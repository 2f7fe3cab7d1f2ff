"""The threads of `blocking` turns: so many at once, and what is known of those whose turn was given up.

    turn ──► waits for a place (not counted as running) ──► its call runs in a thread ──► the place is free
                                                               └─ given up: the thread is lost, and replaced

Nobody can end a thread. One whose turn was given up (it took too long, say) runs on until it ends by itself. It is
replaced by another one, up to as many as there may be at once; what is lost beyond that keeps its place, and turns
wait for the places that are left.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import trio

__all__ = ["WAIT_TOLD_S", "Threads", "stack_of"]

T = TypeVar("T")
WAIT_TOLD_S, TOLD_EVERY_S = 10.0, 60.0
"""A turn that has waited for so long is told of; and again only after so long."""
STACK_CHARS_MAX = 4000


def stack_of(thread: int | None) -> str:
    """Where this thread is now, innermost last; empty if it has ended."""
    frame = sys._current_frames().get(thread) if thread is not None else None
    return "".join(traceback.format_stack(frame))[-STACK_CHARS_MAX:] if frame is not None else ""


class _Work:
    """One call, on its way through a thread."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.since_s = trio.current_time()
        """Of waiting; then of running."""
        self.thread: int | None = None
        self.is_begun = self.is_lost = self.has_ended = False

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """As a limiter that limits nothing: trio begins the thread right behind this. Who is cancelled before has
        none, and there is nothing to wait for."""
        self.is_begun = True

    def release_on_behalf_of(self, borrower: object) -> None:
        """Nothing was taken."""


class Threads:
    """One node's."""

    def __init__(self, count_max: int, report: Callable[[str], None]) -> None:
        self.count_max, self._report = max(1, count_max), report
        self._places = trio.CapacityLimiter(self.count_max)
        self._waiting: dict[_Work, None] = {}
        self._running: dict[_Work, None] = {}
        self.lost: dict[Any, bool] = {}
        """Whose turn was given up, and that run all the same; and whether they keep their place."""
        self._told_s = -TOLD_EVERY_S

    @property
    def borrowed_tokens(self) -> int:
        """Places that are taken."""
        return self._places.borrowed_tokens

    @property
    def total_tokens(self) -> int:
        """Places that there are."""
        return self.count_max

    def are_idle(self) -> bool:
        """Does none of them run anything? Any thread may ask."""
        return not self._running and not self.lost

    async def run(self, call: Callable[[], T], who: str, begun: Callable[[], None]) -> T:
        """Run this in a thread, as soon as there is a place; `begun` is called as it begins. Cancelling gives it up."""
        work = _Work(who)
        self._waiting[work] = None
        try:
            await self._places.acquire_on_behalf_of(work)
        finally:
            del self._waiting[work]
        work.since_s = trio.current_time()
        self._running[work] = None
        token = trio.lowlevel.current_trio_token()

        def in_thread() -> T:
            work.thread = threading.get_ident()
            try:
                return call()
            finally:
                work.has_ended = True
                if work.is_lost:
                    _tell(token, self._came_back, work)

        begun()
        try:
            return await trio.to_thread.run_sync(in_thread, abandon_on_cancel=True, limiter=work)  # type: ignore[arg-type]
        finally:
            del self._running[work]
            # In this order: the thread may end just now.
            work.is_lost = True
            if work.has_ended or not work.is_begun:
                self._places.release_on_behalf_of(work)
            else:
                self._lose(work)

    def _lose(self, work: _Work) -> None:
        keeps = len(self.lost) >= self.count_max
        self.lost[work] = keeps
        ran_s = trio.current_time() - work.since_s
        self._report(
            f"{work.who} was given up after {ran_s:.1f} s, and its thread still runs: {len(self.lost)} such on this "
            f"node{self._what_now(keeps)}. It stands in:\n{stack_of(work.thread)}"
        )
        if not keeps:
            self._places.release_on_behalf_of(work)

    def _what_now(self, keeps: bool) -> str:
        if not keeps:
            return ", replaced by another"
        left = self.count_max - sum(self.lost.values())
        return (
            f", more than are replaced; {left} of {self.count_max} threads are left, and blocking turns wait for them: "
            "end what hangs, or restart this node"
        )

    def _came_back(self, work: _Work) -> None:
        keeps = self.lost.pop(work, None)
        if keeps:
            self._places.release_on_behalf_of(work)

    def mind(self) -> None:
        """Tell of turns that have waited for long; to be called now and then."""
        now_s = trio.current_time()
        first = next(iter(self._waiting), None)
        if first is None or now_s < first.since_s + WAIT_TOLD_S or now_s < self._told_s + TOLD_EVERY_S:
            return
        self._told_s = now_s
        longest = min(self._running, key=lambda work: work.since_s, default=None)
        at_work = f"; the longest, {longest.who}, for {now_s - longest.since_s:.0f} s" if longest is not None else ""
        self._report(
            f"{len(self._waiting)} blocking turns wait for a thread, the first ({first.who}) for "
            f"{now_s - first.since_s:.0f} s: {len(self._running)} are at work{at_work}, {len(self.lost)} are lost. "
            "A node may have more (`--threads`), or there may be more nodes"
        )


def _tell(token: trio.lowlevel.TrioToken, tell: Callable[[_Work], None], work: _Work) -> None:
    try:
        token.run_sync_soon(tell, work)
    except trio.RunFinishedError:
        pass  # nobody counts any more
