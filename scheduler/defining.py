"""How a client says what jobs should be: by their definitions, which change by compare-and-set alone."""

import itertools
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.bodies import check
from tenure.scheduler.deadline import deadline
from tenure.scheduler.definitions import never_was, removed
from tenure.scheduler.errors import (
    AskFailed,
    ClusterReplaced,
    DuplicateJob,
    NotDone,
    PickledJobsRefused,
    TooLarge,
    Undecodable,
    UnknownJob,
    UnknownJobType,
    UnreadableFormat,
    WrongType,
)
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.jobtype import JobType, pickled_type
from tenure.scheduler.keys import checked_address, partition_of
from tenure.scheduler.wire import UNSTORABLE, Definition, decode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tenure.scheduler.client import GridClient

__all__ = ["Defining"]

LOOKED_UP_AT_ONCE = 64

LOOK_AGAIN_S = 5.0
"""Where a subscription has not come for so long, its job may be gone."""
LAST_TURN_S = 10.0
"""An `on_stop` of a job that is to be gone may take so long, then it is cancelled."""
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Defining:
    """How one client does."""

    def __init__(self, client: "GridClient") -> None:
        self.client, self.grid, self.settings = client, client.grid, client.settings
        self._encode = client.formats.encode
        self._births = itertools.count(1)

    async def schedule(
        self, job_type: Any, id: str, parameters: dict[str, Any], *, deadline_s: float | None = None
    ) -> None:
        """See `Client.schedule`."""
        type = self._type(job_type)
        if type.pickled:
            await self._check_pickled_allowed()
        encoded = self._parameters(type, parameters)
        began_s = trio.current_time()
        with self._within(deadline_s, f"scheduling job {id!r}"):
            await self._create(type, checked_address(id), encoded)
        self.client.known_types.forget(id)
        if type.topics:
            limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
            await self.subscribed(id, deadline_s=max(0.0, limit_s - (trio.current_time() - began_s)))

    async def subscribed(self, id: str, *, deadline_s: float | None = None) -> None:
        """Whatever is published from now on to the topics that its type names reaches the job; or it does not start
        for now: it is paused, has failed, has finished, or no node can run it."""
        what = f"job {id!r} is scheduled, and has not subscribed to its topics yet: waiting for that"
        with self._within(deadline_s, what), suppress(AskFailed):  # an older version is there, which can't say
            while True:
                topics = await self._ask(id, {"op": "started"})
                with trio.move_on_after(LOOK_AGAIN_S):
                    for topic in topics:
                        await self._ask(topic, {"op": "subscribed", "job": id})
                    return

    async def _ask(self, address: str, arguments: dict[str, Any]) -> Any:
        return await self.client.command(self._partition(address), address, arguments, deadline_s=float("inf"))

    def _type(self, job_type: Any) -> JobType:
        found = self.client.registry.of(job_type)
        if found is not None:
            return found
        if not callable(job_type):
            raise UnknownJobType(f"{job_type!r} is no registered job type")
        if isinstance(job_type, type):
            raise UnknownJobType(f"{job_type!r} is not registered: put @tenure.job(…) on it")
        return pickled_type(job_type)

    def _parameters(self, type: JobType, parameters: dict[str, Any]) -> bytes:
        type.initial(parameters)
        try:
            encoded = _encode(parameters)
        except UNSTORABLE as error:
            raise WrongType(f"parameters of job type {type.name!r} can't be stored: {error}") from error
        if len(encoded) > self.settings.message_bytes_max:
            raise TooLarge(f"parameters of {len(encoded)} bytes; the limit is {self.settings.message_bytes_max}")
        check(encoded, f"what job type {type.name!r} is given as parameters")
        return encoded

    async def _check_pickled_allowed(self) -> None:
        nodes = await self.client.directory.nodes()
        if nodes and not any(node.allows_pickled for node in nodes):
            raise PickledJobsRefused(
                "no node of this cluster runs pickled callables: register the function with @tenure.job in the nodes' "
                "application, or start nodes with allow_pickled_jobs"
            )

    async def _create(self, type: JobType, id: str, parameters: bytes) -> None:
        partition, key, attempt, allegiance = self._partition(id), id.encode(), 0, self.client.allegiance
        began_s, mine = self.client.elapsed.now_s(), dict[bytes, None]()  # births of what may have been made
        while True:
            try:
                await allegiance.known()
                # Never put where there is nothing: such a write may arrive when the job has come and gone long since.
                stored = await self._place(partition, key)
                there = decode(stored, Definition)
                if there.wanted != "removed":
                    if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                        self._check_same(type, id, parameters, there)
                        if there.generation > 1:  # its owner may know only the one before, which is to end
                            await self._reconciled(id, there.revision)
                        return None
                elif there.birth in mine:
                    if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                        return None  # it was made, and is gone already
                else:
                    if mine:
                        self._check_recent(id, began_s)
                    new = self._definition(type, parameters, there)
                    mine[new.birth] = None
                    if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, self._encode(new)):
                        if there.generation:
                            return await self._reconciled(id, new.revision)
                        if allegiance.holds():
                            return None
                        continue
                    del mine[new.birth]
            except GridError:
                attempt += 1
            await self._pause(attempt)

    def _check_recent(self, id: str, began_s: float) -> None:
        """What was tried so long ago may have been made, have ended, and be forgotten. Looked at with the tombstone at
        hand that the next try replaces: if that is forgotten too, the try fails."""
        if self.client.elapsed.now_s() - began_s > self.settings.tombstone_s / 2:
            raise NotDone(
                f"whether job {id!r} was made is not known, and has not been for so long that it may have ended: "
                "look before you schedule it again"
            )

    async def _place(self, partition: int, key: bytes) -> bytes:
        """What is there; where there is nothing, a tombstone that is put there."""
        new = self._encode(never_was(self._birth(), self.client.now_ms()))
        return await self.grid.put_if_absent(Map.JOBS, partition, key, new) or new

    def _birth(self) -> bytes:
        return self.client.sender + next(self._births).to_bytes(4, "big")

    def _definition(self, type: JobType, parameters: bytes, there: Definition) -> Definition:
        """In the place of a tombstone."""
        return Definition(
            type.name,
            Raw(parameters),
            there.generation + 1,
            there.revision + 1,
            "running",
            type.version,
            type.application,
            type.pickled,
            birth=self._birth(),
        )

    def _check_same(self, type: JobType, id: str, parameters: bytes, there: Definition) -> None:
        if there.type != type.name or bytes(there.parameters) != parameters:
            raise DuplicateJob(
                f"job {id!r} exists with another definition: type {there.type!r}, parameters "
                f"{msgspec.msgpack.decode(there.parameters)!r}; unschedule it first, or take another id"
            )

    async def want(self, id: str, wanted: str, *, deadline_s: float | None = None) -> None:
        """Make a job running, paused or removed; returns when its owner has committed that."""
        with self._within(deadline_s, f"making job {id!r} {wanted}"):
            if wanted == "removed":
                await self.created(checked_address(id))
            revision = await self._change(checked_address(id), wanted)
            await self._reconciled(id, revision)
        if wanted == "removed":
            self.client.known_types.forget(id)

    async def end(self, id: str, *, deadline_s: float | None = None) -> int:
        """Remove a job now: its running turn is cancelled, what waits is dropped, `on_stop` is tried once. Returns how
        many messages were dropped, when it is gone."""
        count, ask = 0, partial(self.client.command, self._partition(checked_address(id)), id, deadline_s=float("inf"))
        with self._within(deadline_s, f"removing job {id!r} now"):
            await self.created(id)
            try:
                count += int(await ask({"op": "purge"}, once=True))
            except UnknownJob:
                pass  # it is gone, or there was never one: see below
            revision = await self._change(id, "removed")
            await self._reconciled(id, revision, stopping=True)
            while True:
                # Again, should its partition have got another owner meanwhile, or its `on_stop` not end.
                count += int(await ask({"op": "end"}, once=True))
                with trio.move_on_after(LAST_TURN_S):
                    await self._reconciled(id, revision)
                    break
        self.client.known_types.forget(id)
        return count

    async def _change(self, id: str, wanted: str) -> int:
        partition, key, attempt = self._partition(id), id.encode(), 0
        while True:
            try:
                await self.client.allegiance.known()
                stored = await self._current(partition, key)
                await self.client.allegiance.known()
                if stored is None:
                    raise UnknownJob(f"there is no job {id!r}")
                there = decode(stored, Definition)
                if there.wanted == "removed" and wanted != "removed":
                    raise UnknownJob(f"job {id!r} was removed")
                if there.wanted == "removed":
                    return there.revision
                new = self._with_wanted(there, wanted)
                if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, self._encode(new)):
                    return new.revision
            except GridError:
                attempt += 1
            await self._pause(attempt)

    async def created(self, id: str) -> None:
        """Its owner has made it. Removed before that, it would never start or stop, nor get what was sent to it."""
        partition, key, attempt = self._partition(id), id.encode(), 0
        while True:
            try:
                await self.client.allegiance.known()
                stored = await self._current(partition, key)
            except GridError:
                attempt += 1
                await self._pause(attempt)
                continue
            if stored is not None and (there := decode(stored, Definition)).wanted != "removed":
                await self._reconciled(id, there.revision)
            return

    async def _current(self, partition: int, key: bytes) -> bytes | None:
        """The definition as it certainly is; None only if there is none (a tombstone proves that)."""
        while True:
            stored = await self.grid.get(Map.JOBS, partition, key) or await self._place(partition, key)
            if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                return None if decode(stored, Definition).generation == 0 else stored

    async def missing(self, ids: Iterable[str]) -> list[str]:
        """Those of these ids under which there is certainly no job, or none any more."""
        found: dict[str, bool] = {checked_address(id): False for id in ids}
        limit = trio.CapacityLimiter(LOOKED_UP_AT_ONCE)

        async def look(id: str) -> None:
            async with limit:
                found[id] = await self._is_missing(id)

        async with trio.open_nursery() as nursery:
            for id in found:
                nursery.start_soon(look, id)
        self._check_open()
        self.client.allegiance.check()
        return [id for id, is_missing in found.items() if is_missing]

    async def _is_missing(self, id: str) -> bool:
        attempt, allegiance = 0, self.client.allegiance
        while True:
            try:
                await allegiance.known()
                stored = await self._current(self._partition(id), id.encode())
                await allegiance.known()  # what is read in another cluster, or while one is restored, says nothing
                return stored is None or decode(stored, Definition).wanted == "removed"
            except (Undecodable, UnreadableFormat):
                return False  # of its owner's to say; its messages wait
            except ClusterReplaced:
                return False  # said by who asked for many
            except GridError:
                if self.client.sending.refused is not None:
                    return False
                attempt += 1
                await self._pause(attempt)

    async def _reconciled(self, id: str, revision: int, *, stopping: bool = False) -> None:
        arguments = {"op": "reconcile", "revision": revision, "stopping": stopping}
        await self.client.command(self._partition(id), id, arguments, deadline_s=float("inf"))

    def _partition(self, id: str) -> int:
        return partition_of(id, self.client.partition_count)

    def _within(self, deadline_s: float | None, what: str) -> "AbstractContextManager[None]":
        return deadline(self.settings.ask_deadline_s if deadline_s is None else deadline_s, what)

    def _with_wanted(self, there: Definition, wanted: str) -> Definition:
        if wanted == "removed":
            return removed(there, self.client.now_ms())
        return msgspec.structs.replace(there, wanted=wanted, revision=there.revision + 1)

    async def _pause(self, attempt: int) -> None:
        self._check_open()
        await trio.sleep(min(self.settings.retry_pause_max_s, self.settings.retry_pause_s * 2 ** min(attempt, 10)))

    def _check_open(self) -> None:
        if self.client.sending.refused is not None:
            raise self.client.sending.refused
