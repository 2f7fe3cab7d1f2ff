"""A thread that runs trio, and holds things open there for callers who don't.

    caller ── submit(fn) ──► token ──► task: await fn(value) ──► future ──► caller
             cancel future ──► token ──► cancel scope of that task

The thread is a daemon: a program that forgets to close still ends; what is open then is closed at exit.
"""

import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from tenure.clients.plain import leaves, plain
from tenure.scheduler.errors import ClientClosed, Mistake

__all__ = ["Lease", "Opening", "TrioThread"]

T = TypeVar("T")
R = TypeVar("R")
Opening = Callable[[], AbstractAsyncContextManager[T]]

EXIT_TIMEOUT_S = 10.0
"""How long the end of the program waits for what nobody closed."""

_running: "weakref.WeakSet[TrioThread]" = weakref.WeakSet()


class TrioThread:
    """Runs trio from its first use until `stop`."""

    def __init__(self, name: str = "tenure") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready: Future[trio.lowlevel.TrioToken] = Future()
        self._nursery: trio.Nursery
        self._stop: trio.Event
        self._pid = 0
        """The process that has this thread: a fork of it has not."""

    def open(self, opening: Opening[T]) -> "Lease[T]":
        """Enter a context manager there; see `Lease.opened` for how that went."""
        return Lease(self, opening)

    def soon(self, act: Callable[[], object]) -> None:
        """Have `act` called in the thread. Raises `trio.RunFinishedError` after the end, and `Mistake` in a process
        that was forked while the thread ran: that has no such thread."""
        if self.is_forked():
            raise Mistake(
                f"this was opened in process {self._pid}, of which process {os.getpid()} is a fork: a fork takes no "
                "threads with it. Open one in each process, after the fork"
            )
        with self._lock:
            if self._thread is None:
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                _running.add(self)
        self._ready.result().run_sync_soon(act)

    def is_forked(self) -> bool:
        """Is this a process that was forked from the one that the thread runs in?"""
        return self._pid not in (0, os.getpid())

    def start(self, task: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """In the thread only: run a task there."""
        self._nursery.start_soon(task, *args)

    def stop(self) -> None:
        """End the thread when all that is open there has been closed. Returns at once."""
        if self._thread is not None and not self.is_forked():
            try:
                self.soon(lambda: self._stop.set())
            except trio.RunFinishedError:
                pass

    def abandon(self) -> None:
        """Close what is open there, and end."""
        if self.is_forked():
            return
        try:
            self.soon(lambda: self._nursery.cancel_scope.cancel())
        except trio.RunFinishedError:
            pass

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None and not self.is_forked():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    async def _main(self) -> None:
        self._stop = trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._ready.set_result(trio.lowlevel.current_trio_token())
            await self._stop.wait()


class Lease(Generic[T]):
    """A context manager held open in a trio thread, and calls on what it gave. Safe to use from any thread."""

    def __init__(self, thread: TrioThread, opening: Opening[T]) -> None:
        self.thread = thread
        self.opened: Future[None] = Future()
        self.closed: Future[None] = Future()
        """Done when the context manager has been left; fails if that failed."""
        self._opening = opening
        self.value: T
        """For the thread only."""
        self._nursery: trio.Nursery | None = None
        self._closing = trio.Event()
        self._whole = trio.CancelScope()
        self._failure: BaseException | None = None
        _settle(self.opened, partial(self._soon, lambda: thread.start(self._live)))

    def submit(self, fn: Callable[[T], Awaitable[R]]) -> "Future[R]":
        """Call and await `fn` in the thread. Cancelling the future ends the wait, as cancelling under trio does."""
        future: Future[R] = Future()
        _settle(future, partial(self._soon, partial(self._begin, fn, future)))
        return future

    def close(self) -> "Future[None]":
        """Leave the context manager, now or as soon as it is entered; under way even if nobody waits for it. In a fork
        nothing is open."""
        if self.thread.is_forked():
            done: Future[None] = Future()
            done.set_result(None)
            return done
        try:
            self._soon(self._close)
        except ClientClosed:
            pass
        return self.closed

    def _soon(self, act: Callable[[], object]) -> None:
        try:
            self.thread.soon(act)
        except trio.RunFinishedError:
            raise ClientClosed("this was closed") from None

    # -- in the thread ----------------------------------------------------------------------------

    async def _live(self) -> None:
        with self._whole:
            await self._hold()

    async def _hold(self) -> None:
        try:
            async with self._opening() as self.value, trio.open_nursery() as self._nursery:
                if not _succeed(self.opened, None):
                    self._closing.set()
                await self._closing.wait()
                self._nursery.cancel_scope.cancel()
        except BaseException as error:  # noqa: BLE001  # it is for those who use this
            self._end(_told(error, "the program has ended"))
            _raise_cancelled(error)
        else:
            _succeed(self.closed, None)
        finally:
            self._nursery = None

    def _end(self, error: BaseException) -> None:
        self._failure = error
        _fail(self.opened, error)
        _fail(self.closed, error)

    def _close(self) -> None:
        self._closing.set()
        if self._nursery is None:
            self._whole.cancel()  # nobody waits for what it is still entering: a member's start, say

    def _begin(self, fn: Callable[[T], Awaitable[R]], future: "Future[R]") -> None:
        if self._nursery is None or self._closing.is_set():
            _fail(future, self._failure or ClientClosed("this was closed"))
            return
        self._nursery.start_soon(self._call, fn, future)

    async def _call(self, fn: Callable[[T], Awaitable[R]], future: "Future[R]") -> None:
        with trio.CancelScope() as scope:
            future.add_done_callback(partial(self._cancelled, scope))
            try:
                result = await fn(self.value)
            except BaseException as error:  # noqa: BLE001  # it is the caller's, who waits for it
                _fail(future, _told(error, "closed while this was under way: it may have been done"))
                _raise_cancelled(error)
            else:
                _succeed(future, result)

    def _cancelled(self, scope: trio.CancelScope, future: "Future[Any]") -> None:
        if future.cancelled():
            try:
                self._soon(scope.cancel)
            except (ClientClosed, Mistake):
                pass


def _told(error: BaseException, why_cancelled: str) -> BaseException:
    """What the caller hears. What was cancelled in a nursery comes out as a group, alone or with other errors."""
    if any(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
        told = ClientClosed(why_cancelled)
        told.__cause__ = None if isinstance(error, trio.Cancelled) else error
        return told
    return plain(error)


def _raise_cancelled(error: BaseException) -> None:
    """What trio cancelled goes on to where it was cancelled; all else was told, and disturbs nobody else here."""
    if isinstance(error, trio.Cancelled):
        raise error
    if isinstance(error, BaseExceptionGroup) and (cancelled := error.split(trio.Cancelled)[0]) is not None:
        raise cancelled


def _settle(future: "Future[Any]", act: Callable[[], None]) -> None:
    try:
        act()
    except ClientClosed as error:
        _fail(future, error)


def _fail(future: "Future[Any]", error: BaseException) -> None:
    """Tell those who wait, unless they have been told, or have gone."""
    if _is_awaited(future):
        future.set_exception(error)


def _succeed(future: "Future[Any]", result: Any) -> bool:
    """The same. False: nobody waits any more."""
    if _is_awaited(future):
        future.set_result(result)
        return True
    return False


def _is_awaited(future: "Future[Any]") -> bool:
    return not future.done() and (future.running() or future.set_running_or_notify_cancel())


@atexit.register
def _end_all() -> None:
    threads = list(_running)
    for thread in threads:
        thread.abandon()
    for thread in threads:
        thread.join(EXIT_TIMEOUT_S)
