"""Where the trio side of a client (or of a testing cluster) lives, for callers of three kinds.

`AsyncHome` is for async callers: under trio in place, under asyncio in a thread that runs trio. `SyncHome`
is for callers that block. Both hold open a context manager and run operations on what it gave.
"""

import asyncio  # noqa: TID251  # the asyncio client is this thin shell
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import trio

from tenure.clients.plain import leaves, plain
from tenure.clients.trio_thread import Lease, Opening, TrioThread
from tenure.scheduler.errors import ClientClosed, Mistake

__all__ = ["AsyncHome", "SyncHome"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Operation = Callable[Concatenate[T, P], Awaitable[R]]

CALLS_MAX = 10_000
"""So many calls of one asyncio client are under way at most; further ones wait their turn."""

NOT_OPEN = "this is not open: use it inside its `with` block"
ELSEWHERE = (
    "this was opened in another event loop: open one in each, or use the synchronous form, which any number of threads "
    "may share"
)


class AsyncHome(Generic[T]):
    """For async callers. Opened and closed once."""

    def __init__(self, opening: Opening[T], thread: TrioThread | None = None) -> None:
        """`thread`: live there, whoever calls; else under asyncio a thread of its own is started."""
        self._opening, self._thread = opening, thread
        self._owns_thread = thread is None
        self._manager: AbstractAsyncContextManager[T] | None = None
        self._value: T
        self._token: trio.lowlevel.TrioToken
        self._lease: Lease[T] | None = None
        self._room: asyncio.Semaphore
        self.opened = False

    async def open(self) -> None:
        """Enter."""
        if self.opened:
            raise Mistake("this was opened already; make another one")
        self.opened = True
        if self._thread is None and trio.lowlevel.in_trio_run():
            manager = self._opening()
            try:
                self._value = await manager.__aenter__()
            except BaseExceptionGroup as group:
                raise plain(group) from None
            self._manager, self._token = manager, trio.lowlevel.current_trio_token()
            return
        self._thread = self._thread or TrioThread()
        if trio.lowlevel.in_trio_run():
            raise Mistake("this lives in a thread of its own: use its synchronous form, or asyncio")
        lease = self._thread.open(self._opening)
        try:
            await _waited(lease.opened)
        except BaseException:
            lease.close()
            self._end_thread()
            raise
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._lease = lease

    async def close(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave. Errors of the caller's own `async with` block come out of it as they went in."""
        if self._manager is not None:
            manager, self._manager = self._manager, None
            try:
                await manager.__aexit__(kind, raised, trace)
            except BaseExceptionGroup as group:
                if raised is None or leaves(group) != leaves(raised):
                    raise
            if raised is not None:
                raised.__traceback__ = trace  # where it was raised is of interest, not where it passed through us
        elif self._lease is not None:
            lease, self._lease = self._lease, None
            try:
                # Under way in its thread even if this wait is cancelled, or the loop ends.
                await asyncio.shield(asyncio.wrap_future(lease.close()))
            finally:
                self._end_thread()

    async def run(self, operation: Operation[T, P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it there. Cancelling the caller ends the wait; what is stored or not stays consistent."""
        if self._manager is not None:
            if not (trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token):
                raise Mistake(ELSEWHERE)  # trio's tasks can't be woken from there: both loops would break
            return await operation(self._value, *args, **kwargs)
        if self._lease is None:
            raise ClientClosed(NOT_OPEN)
        if trio.lowlevel.in_trio_run():
            raise Mistake(ELSEWHERE)
        lease = self._lease
        async with self._room:
            return await _waited(lease.submit(lambda value: operation(value, *args, **kwargs)))

    def inside(self, opening: Callable[[T], AbstractAsyncContextManager[R]]) -> "AsyncHome[R]":
        """A home for what can be opened on what is open here, in the same trio run."""

        def within() -> AbstractAsyncContextManager[R]:
            if self._manager is None and self._lease is None:
                raise ClientClosed(NOT_OPEN)
            return opening(self._value if self._lease is None else self._lease.value)

        return AsyncHome(within, self._thread)

    inside_async = inside

    def _end_thread(self) -> None:
        if self._owns_thread and self._thread is not None:
            self._thread.stop()


class SyncHome(Generic[T]):
    """For callers that block, from any number of threads."""

    def __init__(self, opening: Opening[T], thread: TrioThread | None = None) -> None:
        self._opening = opening
        self._owns_thread = thread is None
        self.thread = thread or TrioThread()
        self._lease: Lease[T] | None = None
        self.opened = False

    def open(self) -> None:
        """Enter."""
        if self.opened:
            raise Mistake("this was opened already; make another one")
        self.opened = True
        lease = self.thread.open(self._opening)
        try:
            _awaited(lease.opened)
        except BaseException:
            lease.close()
            self._end_thread()
            raise
        self._lease = lease

    def close(self, kind: Any = None, raised: Any = None, trace: Any = None) -> None:
        """Leave."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            try:
                lease.close().result()
            finally:
                self._end_thread()

    def run(self, operation: Operation[T, P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it there, and wait for it."""
        if self._lease is None:
            raise ClientClosed(NOT_OPEN)
        return _awaited(self._lease.submit(lambda value: operation(value, *args, **kwargs)))

    def inside(self, opening: Callable[[T], AbstractAsyncContextManager[R]]) -> "SyncHome[R]":
        """A home for what can be opened on what is open here, in the same thread."""

        def within() -> AbstractAsyncContextManager[R]:
            if self._lease is None:
                raise ClientClosed(NOT_OPEN)
            return opening(self._lease.value)

        return SyncHome(within, self.thread)

    def inside_async(self, opening: Callable[[T], AbstractAsyncContextManager[R]]) -> AsyncHome[R]:
        """The same for asyncio callers."""
        return AsyncHome(self.inside(opening)._opening, self.thread)

    def _end_thread(self) -> None:
        if self._owns_thread:
            self.thread.stop()


async def _waited(future: "Future[R]") -> R:
    return await asyncio.wrap_future(future)


def _awaited(future: "Future[R]") -> R:
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C, for one: nobody waits any more
        raise
