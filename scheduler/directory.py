"""What a client does to definitions, and what it looks up: jobs, nodes, partitions, dead letters."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.definitions import NEVER_WAS, removed
from tenure.scheduler.errors import (
    DuplicateJob,
    NotDone,
    PickledJobsRefused,
    TenureError,
    TooLarge,
    UnknownJob,
    UnknownJobType,
    WrongType,
)
from tenure.scheduler.grid.port import GridError, Map, Unknown
from tenure.scheduler.jobtype import JobType, pickled_type
from tenure.scheduler.keys import checked_address, partition_of
from tenure.scheduler.wire import Definition, decode

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["Directory"]

KNOWN_MAX = 100_000
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Directory:
    """A client's dealings with definitions and partitions."""

    def __init__(self, client: "GridClient") -> None:
        self.client, self.grid, self.settings = client, client.grid, client.settings
        self._encode = client.formats.encode
        self.known_types: dict[str, JobType | None] = {}
        """job id -> its type, as far as it was looked up to check messages"""

    # -- definitions ------------------------------------------------------------------------------

    async def schedule(
        self, job_type: Any, id: str, parameters: dict[str, Any], *, deadline_s: float | None = None
    ) -> None:
        """See `Client.schedule`."""
        type = self._type(job_type)
        if type.pickled:
            await self._check_pickled_allowed()
        encoded = self._parameters(type, parameters)
        with self._deadline(deadline_s, f"scheduling job {id!r}"):
            await self._create(type, checked_address(id), encoded)
        self.known_types.pop(id, None)

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
        except (TypeError, msgspec.EncodeError, OverflowError) as error:
            raise WrongType(f"parameters of job type {type.name!r} can't be stored: {error}") from error
        if len(encoded) > self.settings.message_bytes_max:
            raise TooLarge(f"parameters of {len(encoded)} bytes; the limit is {self.settings.message_bytes_max}")
        return encoded

    async def _check_pickled_allowed(self) -> None:
        nodes = await self.nodes()
        if nodes and not any(node.allows_pickled for node in nodes):
            raise PickledJobsRefused(
                "no node of this cluster runs pickled callables: register the function with @tenure.job in the nodes' "
                "application, or start nodes with allow_pickled_jobs"
            )

    async def _create(self, type: JobType, id: str, parameters: bytes) -> None:
        partition, key, attempt, allegiance = self._partition(id), id.encode(), 0, self.client.allegiance
        while True:
            try:
                if not await allegiance.renew():
                    raise Unknown("nobody can say which cluster this is now")
                stored = await self.grid.get(Map.JOBS, partition, key)
                if stored is None:
                    new = self._definition(type, parameters, 1, 1)
                    stored = await self.grid.put_if_absent(Map.JOBS, partition, key, self._encode(new))
                    if stored is None:
                        if allegiance.holds():
                            return None
                        continue
                there = decode(stored, Definition)
                if there.wanted != "removed":
                    if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                        return self._check_same(type, id, parameters, there)
                else:
                    new = self._definition(type, parameters, there.generation + 1, there.revision + 1)
                    if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, self._encode(new)):
                        return await self._reconciled(id, new.revision)
            except GridError:
                attempt += 1
            await self._pause(attempt)

    def _definition(self, type: JobType, parameters: bytes, generation: int, revision: int) -> Definition:
        return Definition(
            type.name, Raw(parameters), generation, revision, "running", type.version, type.application, type.pickled
        )

    def _check_same(self, type: JobType, id: str, parameters: bytes, there: Definition) -> None:
        if there.type != type.name or bytes(there.parameters) != parameters:
            raise DuplicateJob(
                f"job {id!r} exists with another definition: type {there.type!r}, parameters "
                f"{msgspec.msgpack.decode(there.parameters)!r}; unschedule it first, or take another id"
            )

    async def want(self, id: str, wanted: str, *, deadline_s: float | None = None) -> None:
        """Make a job running, paused or removed; returns when its owner has committed that."""
        with self._deadline(deadline_s, f"making job {id!r} {wanted}"):
            if wanted == "removed":
                await self._created(checked_address(id))
            revision = await self._change(checked_address(id), wanted)
            await self._reconciled(id, revision)
        if wanted == "removed":
            self.known_types.pop(id, None)

    async def _change(self, id: str, wanted: str) -> int:
        partition, key, attempt = self._partition(id), id.encode(), 0
        while True:
            try:
                stored = await self._current(partition, key)
                if not await self.client.allegiance.renew():
                    raise Unknown("nobody can say which cluster this is now")
                if stored is None:
                    raise UnknownJob(f"there is no job {id!r}")
                there = decode(stored, Definition)
                if there.wanted == "removed" and wanted != "removed":
                    raise UnknownJob(f"job {id!r} was removed")
                if there.wanted == "removed" or (there.wanted == wanted != "running"):
                    return there.revision
                new = _with_wanted(there, wanted)
                if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, self._encode(new)):
                    return new.revision
            except GridError:
                attempt += 1
            await self._pause(attempt)

    async def _created(self, id: str) -> None:
        """Its owner has made it. Removed before that, it would never start or stop, nor get what was sent to it."""
        partition, key, attempt = self._partition(id), id.encode(), 0
        while True:
            try:
                stored = await self._current(partition, key)
            except GridError:
                attempt += 1
                await self._pause(attempt)
                continue
            if stored is not None and (there := decode(stored, Definition)).wanted != "removed":
                await self._reconciled(id, there.revision)
            return

    async def _current(self, partition: int, key: bytes) -> bytes | None:
        """The definition as it certainly is; None only if there was never one (a tombstone proves that)."""
        while True:
            stored = await self.grid.get(Map.JOBS, partition, key)
            if stored is None:
                stored = await self.grid.put_if_absent(Map.JOBS, partition, key, self._encode(NEVER_WAS))
                if stored is None:
                    return None
            if await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                return None if decode(stored, Definition).generation == 0 else stored

    async def _reconciled(self, id: str, revision: int) -> None:
        await self.client.command(
            self._partition(id), id, {"op": "reconcile", "revision": revision}, deadline_s=float("inf")
        )

    def _partition(self, id: str) -> int:
        return partition_of(id, self.client.partition_count)

    def _deadline(self, deadline_s: float | None, what: str) -> "_Deadline":
        return _Deadline(self.settings.ask_deadline_s if deadline_s is None else deadline_s, what)

    async def _pause(self, attempt: int) -> None:
        await trio.sleep(min(self.settings.retry_pause_max_s, self.settings.retry_pause_s * 2 ** min(attempt, 10)))

    # -- checking messages ------------------------------------------------------------------------

    def checks_types(self) -> bool:
        """Is any job type known here that would refuse some message?"""
        return self.client.registry.is_choosy

    async def learn_types(self, ids: Iterable[str]) -> None:
        """Look up the types of jobs that messages are for, so that wrong ones are refused here and now."""
        unknown = [id for id in ids if id not in self.known_types]
        if not unknown:
            return
        if len(self.known_types) + len(unknown) > KNOWN_MAX:
            self.known_types.clear()
        by_partition: dict[int, list[str]] = {}
        for id in unknown:
            by_partition.setdefault(self._partition(checked_address(id)), []).append(id)
        async with trio.open_nursery() as nursery:
            for partition, some in by_partition.items():
                nursery.start_soon(self._learn, partition, some)

    async def _learn(self, partition: int, ids: list[str]) -> None:
        try:
            found = await self.grid.get_all(Map.JOBS, partition, [id.encode() for id in ids])
            for id in ids:
                # Who is not there (yet) is looked up again next time.
                if (stored := found.get(id.encode())) is not None:
                    definition = decode(stored, Definition)
                    if definition.wanted != "removed":
                        self.known_types[id] = self.client.registry.get(definition.type)
        except (GridError, TenureError):
            pass  # checked by the owner again, who makes a dead letter of what does not fit

    # -- looking ----------------------------------------------------------------------------------

    async def nodes(self) -> list[NodeInfo]:
        """The nodes that have said that they are there, and have not been silent for long."""
        found: list[NodeInfo] = []
        async for page in self.grid.scan(Map.NODES, 0):
            found += [decode(entry.value, NodeInfo) for entry in page if entry.key.startswith(NODE_PREFIX)]
        return sorted(found, key=lambda node: node.id)

    async def lost_partitions(self) -> set[int]:
        """Those that their nodes report as lost, as far as that can be read."""
        try:
            return {partition for node in await self.nodes() for partition in node.lost}
        except (GridError, TenureError):
            return set()

    async def describe(self, id: str, *, deadline_s: float | None = None) -> dict[str, Any]:
        """All that is known of one job."""
        found: dict[str, Any]
        try:
            found = await self._command(id, {"op": "describe"}, deadline_s)
        except UnknownJob:
            with self._deadline(deadline_s, f"describing job {id!r}"):
                await self._created(id)  # it may have been scheduled just now
            found = await self._command(id, {"op": "describe"}, deadline_s)
        return found

    async def retry(self, id: str, *, skip: bool = False, deadline_s: float | None = None) -> bool:
        """Try a failed job's event again, or (`skip`) make a dead letter of it. False: the job has not failed."""
        return bool(await self._command(id, {"op": "retry", "skip": skip}, deadline_s))

    async def cancel(self, id: str, *, deadline_s: float | None = None) -> None:
        """Pause the job and end its running turn; what it was about stays first in its queue."""
        # Paused first: a job that runs would begin the turn again at once.
        await self.want(id, "paused", deadline_s=deadline_s)
        await self._command(id, {"op": "cancel"}, deadline_s)

    async def _command(self, id: str, arguments: dict[str, Any], deadline_s: float | None) -> Any:
        return await self.client.command(self._partition(checked_address(id)), id, arguments, deadline_s=deadline_s)

    async def every_partition(self, arguments: dict[str, Any], *, deadline_s: float | None = None) -> list[Any]:
        """Ask all partitions the same; raises `NotDone` if one does not answer."""
        answers: list[Any] = [None] * self.client.partition_count

        async def ask(partition: int) -> None:
            answers[partition] = await self.client.command(partition, "", arguments, deadline_s=deadline_s)

        try:
            async with trio.open_nursery() as nursery:
                for partition in range(self.client.partition_count):
                    nursery.start_soon(ask, partition)
        except BaseExceptionGroup as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        return answers

    async def jobs(self, *, deadline_s: float | None = None) -> list[dict[str, Any]]:
        """Every job, by id."""
        found: list[dict[str, Any]] = []
        for partition, first in enumerate(await self.every_partition({"op": "jobs"}, deadline_s=deadline_s)):
            page = first
            found += page["jobs"]
            while page["more"]:
                arguments = {"op": "jobs", "after": page["jobs"][-1]["id"]}
                page = await self.client.command(partition, "", arguments, deadline_s=deadline_s)
                found += page["jobs"]
        return sorted(found, key=lambda job: str(job["id"]))

    async def partitions(self, *, deadline_s: float | None = None) -> list[dict[str, Any]]:
        """How each partition stands, from its owner."""
        return await self.every_partition({"op": "status"}, deadline_s=deadline_s)

    async def topics(self, *, deadline_s: float | None = None) -> dict[str, int]:
        """Topics and how many jobs subscribe to them."""
        found: dict[str, int] = {}
        for topics in await self.every_partition({"op": "topics"}, deadline_s=deadline_s):
            found |= topics
        return dict(sorted(found.items()))

    async def dead_letters(self, *, deadline_s: float | None = None) -> list[dict[str, Any]]:
        """Messages that no job could take, oldest first."""
        found: list[dict[str, Any]] = []
        for partition, first in enumerate(await self.every_partition({"op": "dead_letters"}, deadline_s=deadline_s)):
            page = first
            found += page["letters"]
            while page["more"]:
                arguments = {"op": "dead_letters", "after": page["letters"][-1]["n"]}
                page = await self.client.command(partition, "", arguments, deadline_s=deadline_s)
                found += page["letters"]
        return sorted(found, key=lambda letter: (letter["at_ms"], letter["partition"], letter["n"]))

    async def exhume(self, letters: Iterable[dict[str, Any]], *, replay: bool, deadline_s: float | None = None) -> int:
        """Deliver dead letters again, or discard them; returns how many were still there."""
        by_partition: dict[int, list[int]] = {}
        for letter in letters:
            by_partition.setdefault(letter["partition"], []).append(letter["n"])
        count = 0
        for partition, numbers in by_partition.items():
            arguments = {"op": "exhume", "letters": numbers, "replay": replay}
            count += await self.client.command(partition, "", arguments, deadline_s=deadline_s)
        return count


class _Deadline:
    """`with` a deadline that raises `NotDone`, in words."""

    def __init__(self, limit_s: float, what: str) -> None:
        self.limit_s, self.what = limit_s, what
        self._scope = trio.CancelScope(deadline=trio.current_time() + limit_s)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exception: Any) -> bool:
        swallowed = bool(self._scope.__exit__(*exception))
        if self._scope.cancelled_caught:
            raise NotDone(f"{self.what} was not known to be done within {self.limit_s} s; it may still happen")
        return swallowed


def _with_wanted(there: Definition, wanted: str) -> Definition:
    if wanted == "removed":
        return removed(there)
    return msgspec.structs.replace(there, wanted=wanted, revision=there.revision + 1)
