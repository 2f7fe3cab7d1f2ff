"""Deletions that nobody waits for: those of one partition are gathered for a while, then sent in one request.

Every slot of every lane is deleted once; an operation each would be a third of all operations. What fails
is forgotten: sweeps come by later. Not many partitions in one request: members would hand all keys to each
of them, and take keys of the same bytes in two partitions for the same.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import trio

from tenure.scheduler.grid.hazelcast.calls import About, Caller, Notice
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings
from tenure.scheduler.grid.hazelcast.wire import Requests, decode_nothing
from tenure.scheduler.grid.port import GridError, Map

__all__ = ["Discards"]

_TICKS_PER_GATHER = 20
_MISUNDERSTOOD = ("Serialization", "ClassNotFound", "ClassCast", "UndefinedErrorCode")
"""Parts of the names of errors by which a member says that it does not know this kind of request."""

Place = tuple[Map, int]


class Discards:
    """In the trio thread. `run` must run as long as it is used."""

    def __init__(
        self,
        caller: Caller,
        requests: Mapping[Map, Requests],
        settings: HazelcastSettings,
        connection_of: Callable[[int], Any],
    ) -> None:
        """`connection_of` tells the connection to a partition's primary, or None where it is not known."""
        self._caller, self._requests, self._settings, self._connection_of = caller, requests, settings, connection_of
        self._gathering: dict[Place, tuple[float, list[bytes]]] = {}
        """With the time at which each is to be sent; in the order of these."""
        self._full: list[tuple[Place, list[bytes]]] = []
        self._count = 0
        self._in_flight = 0
        self._one_by_one = False
        self._go = trio.Event()

    def add(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        """Delete these some time soon, unless too many wait already."""
        settings, place = self._settings, (map, partition)
        keys = keys[: max(0, settings.discards_waiting_max - self._count)]
        if not keys:
            return
        self._count += len(keys)
        if place not in self._gathering:
            self._gathering[place] = (trio.current_time() + settings.discards_gather_s, [])
        gathered = self._gathering[place][1]
        gathered.extend(keys)
        if len(gathered) >= settings.discards_together:
            del self._gathering[place]
            self._full.append((place, gathered))
        self._go.set()

    @property
    def is_quiet(self) -> bool:
        """Is nothing waiting, and nothing on its way?"""
        return not self._count and not self._in_flight

    async def run(self) -> NoReturn:
        """Send what is due, for ever."""
        while True:
            await self._go.wait()
            self._send(trio.current_time())
            if not self._count or self._in_flight >= self._settings.discards_in_flight_max:
                self._go = trio.Event()
            await trio.sleep(self._settings.discards_gather_s / _TICKS_PER_GATHER)

    def _send(self, now_s: float) -> None:
        while self._in_flight < self._settings.discards_in_flight_max:
            if self._full:
                self._send_all(*self._full.pop())
            elif self._gathering and (place := next(iter(self._gathering))) and self._gathering[place][0] <= now_s:
                self._send_all(place, self._gathering.pop(place)[1])
            else:
                return

    def _send_all(self, place: Place, keys: list[bytes]) -> None:
        self._count -= len(keys)
        map, partition = place
        connection = self._connection_of(partition)
        if len(keys) == 1 or self._one_by_one or connection is None:
            for key in keys:
                about = About("discard", map.value, partition, key)
                request = self._requests[map].delete(partition, key)
                self._dispatch(Notice(self._caller, request, decode_nothing, about, self._done, partition=partition))
            return
        about = About(f"discard {len(keys)} of", map.value, partition)
        request, then = self._requests[map].delete_all(partition, keys), partial(self._done_all, place, keys)
        self._dispatch(Notice(self._caller, request, decode_nothing, about, then, connection=connection))

    def _dispatch(self, notice: Notice) -> None:
        self._in_flight += 1
        self._caller.send(notice)

    def _done_all(self, place: Place, keys: list[bytes], result: Any, failure: GridError | None) -> None:
        if failure is not None and any(name in str(failure) for name in _MISUNDERSTOOD):
            self._one_by_one = True
            self.add(*place, keys)
        self._done(result, failure)

    def _done(self, _result: Any, _failure: GridError | None) -> None:
        self._in_flight -= 1
        if self._count:
            self._go.set()
