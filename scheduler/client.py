"""A client of the cluster, over any grid: schedule, publish, ask, look.

Everything a client says goes through the lanes to the partition concerned, so it is ordered, stored and
applied once; definitions change by compare-and-set. Here messages are checked and become envelopes; `sending` stores
them, `asking` waits for answers, `defining` changes definitions, `directory` looks up.
"""

import math
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.allegiance import Allegiance
from tenure.scheduler.asking import Asking
from tenure.scheduler.bodies import DEPTH_MAX, SCALARS, check, encoded
from tenure.scheduler.cluster import find
from tenure.scheduler.deadline import checked_limit
from tenure.scheduler.defining import Defining
from tenure.scheduler.directory import Directory
from tenure.scheduler.elapsed import Elapsed
from tenure.scheduler.errors import (
    Backlogged,
    ClientClosed,
    ClusterReplaced,
    Final,
    Mistake,
    NotDone,
    TooLarge,
    UnknownJob,
    UnreadableFormat,
    WrongType,
)
from tenure.scheduler.formats import Formats
from tenure.scheduler.grid.port import Grid, GridError, Map, OwnershipEvent
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.scheduler.keys import checked_address, checked_id, client_partition, partition_of
from tenure.scheduler.known_types import KnownTypes
from tenure.scheduler.sending import Sending
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.topic import Topic
from tenure.scheduler.wire import EMPTY, UNSTORABLE, Envelope, Kind

__all__ = ["GridClient", "open_client"]

NAMED_MAX = 3
REPEAT_S, REPEAT_MAX_S = 1.0, 8.0
"""A question to a partition is asked again after so long without an answer, then after twice as long each time."""
MAY_BE_ANOTHER = (OwnershipEvent.MERGED, OwnershipEvent.PARTITION_LOST, OwnershipEvent.RECONNECTED)
CLOSED = (
    "this client's connection is closed for good: the members have come back as another cluster (with another number "
    "of partitions, say). Open another client"
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class GridClient:
    """Open it with `open_client`; it is safe to use from many trio tasks at once."""

    def __init__(
        self,
        grid: Grid,
        *,
        settings: ClientSettings,
        registry: Registry,
        now_ms: Callable[[], int],
        sender: bytes,
        nursery: trio.Nursery,
    ) -> None:
        self.grid, self.settings, self.registry, self.now_ms = grid, settings, registry, now_ms
        self.sender = sender
        self.formats = Formats()
        """What the cluster writes; looked at when a client is opened, begins a lane, or is answered in another one."""
        self.learned_s = -math.inf
        """When that was, on trio's clock."""
        self.partition_count = grid.partition_count
        self.elapsed = Elapsed(now_ms)
        self.allegiance = Allegiance(grid, self.elapsed.now_s, nursery, self._let_go)
        self.known_types = KnownTypes(self, nursery)
        self._commands = 0
        self.defining = Defining(self)
        self.directory = Directory(self)
        self.sending = Sending(self, nursery)
        self._send = self.sending.send
        self.asking = Asking(self, self.sending, nursery)
        self.question = self.asking.question

    def notice(self, event: OwnershipEvent) -> None:
        """Members have changed: so may the cluster have."""
        if event in MAY_BE_ANOTHER:
            self.allegiance.doubt()
        elif event is OwnershipEvent.CLOSED:
            self.end_all(ClientClosed(CLOSED))

    def end_all(self, reason: Final) -> None:
        """This client can do nothing any more: all who wait are told why at once, and so is whoever calls it later."""
        self.sending.refuse(reason)
        self.asking.give_up()

    def _let_go(self) -> None:
        self.sending.let_go()
        self.asking.give_up()

    async def publish(
        self, to: str | Topic, message: Any, *, id: str = "", deadline_s: float | None = None, strict: bool = False
    ) -> None:
        """A message to a job, or to every subscriber of a topic.

        Returns once it is stored with its backups: it will take effect exactly once.

        With an `id`, a repetition (after a crash, say) has no effect. Raises `Backlogged` after the deadline. With
        `strict`, `UnknownJob` if there is no such job: then nothing was stored.
        """
        await self.publish_many([(to, message)], ids=[id] if id else None, deadline_s=deadline_s, strict=strict)

    async def publish_many(
        self,
        messages: Iterable[tuple[str | Topic, Any]],
        *,
        ids: Iterable[str] | None = None,
        deadline_s: float | None = None,
        strict: bool = False,
    ) -> None:
        """Many messages at once, to jobs and topics, in order for each. All are checked before the first is sent; with
        `strict`, also whether their jobs are there."""
        pairs = list(messages)
        try:
            if not {str, bytes}.isdisjoint(map(type, pairs)):
                raise TypeError  # two letters are no pair
            addresses = {to for to, _ in pairs}
        except (TypeError, ValueError):
            raise Mistake("publish_many takes pairs: a job's id or a Topic, and a message") from None
        if self.known_types.check_anything():
            await self.known_types.learn(to for to in addresses if not isinstance(to, Topic))
        names = None if ids is None else list(ids)
        for name in names or ():
            checked_id(name)
        if names is not None and len(names) != len(pairs):
            raise Mistake(f"{len(pairs)} messages and {len(names)} ids: there must be as many of both")
        misfits: dict[str, WrongType] = {}
        envelopes = self._envelopes(pairs, names, misfits)
        if misfits:
            await self.known_types.ask_again(misfits)
            misfits.clear()
            envelopes = self._envelopes(pairs, names, misfits)
        for error in misfits.values():
            raise error
        if strict:
            limit_s = self.settings.publish_deadline_s if deadline_s is None else deadline_s
            deadline_s = await self._check_known(pairs, checked_limit(limit_s))
        await self._send(pairs, envelopes, deadline_s)

    async def _check_known(self, pairs: list[tuple[str | Topic, Any]], limit_s: float) -> float:
        """Raises `UnknownJob`; returns how much time is left."""
        end_s = trio.current_time() + limit_s
        with trio.move_on_after(limit_s) as scope:
            try:
                missing = await self.defining.missing(to for to, _ in pairs if not isinstance(to, Topic))
            except ClusterReplaced as replaced:
                replaced.unstored = pairs
                raise
        if scope.cancelled_caught:
            why = self.allegiance.why_not and f": {self.allegiance.why_not}"
            raise Backlogged(
                f"none of {len(pairs)} messages is stored: whether their jobs are there is not known after {limit_s} s"
                f"{why}",
                pairs,
            )
        if missing:
            some = ", ".join(map(repr, missing[:NAMED_MAX])) + (" …" if len(missing) > NAMED_MAX else "")
            raise UnknownJob(f"there is no job {some}: nothing was stored of {len(pairs)} messages")
        return max(0.0, end_s - trio.current_time())

    async def publish_topic(self, topic: str, message: Any, *, id: str = "", deadline_s: float | None = None) -> None:
        """A message to every subscriber of a topic; with an `id`, a repetition has no effect on any of them."""
        await self.publish(Topic(topic), message, id=id, deadline_s=deadline_s)

    async def broadcast(self, type: Any, message: Any, *, id: str = "", deadline_s: float | None = None) -> None:
        """A message to every job of a type (that exists when its partition reads this)."""
        name = self.registry.name_of(type)
        body = self._body(name, message)
        if (found := self.registry.get(name)) is not None:
            found.check_message(bytes(body), f"all of {name}")
        else:
            check(bytes(body), f"message to {name!r}")
        checked_id(id)
        envelopes = [(p, Envelope(name, body, Kind.TYPE, id)) for p in range(self.partition_count)]
        await self._send([(name, message)] * len(envelopes), envelopes, deadline_s)

    def _envelopes(
        self, pairs: list[tuple[str | Topic, Any]], ids: list[str] | None, misfits: dict[str, WrongType]
    ) -> list[tuple[int, Envelope]]:
        """`misfits`: here come the jobs that, as far as they are known, don't take what is for them."""
        count, limit, known = self.partition_count, self.settings.message_bytes_max, self.known_types.by_job
        places: dict[str | Topic, tuple[int, str, int, JobType | None]] = {}
        made = []
        for n, (to, message) in enumerate(pairs):
            place = places.get(to)
            if place is None:
                place = places[to] = _place(to, count, known)
            partition, address, kind, type = place
            try:
                body = _encode(message)
            except UNSTORABLE as error:
                raise WrongType(f"message {n} to {to!r} can't be stored: {error}") from error
            if len(body) > limit:
                raise TooLarge(f"message {n} to {to!r} has {len(body)} bytes; the limit is {limit}")
            if type is not None:
                if not type.takes(body):
                    try:
                        type.check_message(body, address)
                    except WrongType as error:
                        misfits.setdefault(address, error)
            elif message.__class__ not in SCALARS and (len(body) > DEPTH_MAX or not _is_readable(body)):
                check(body, f"message {n} to {to!r}")
            made.append(
                (partition, Envelope(address, Raw(body), kind, ids[n]) if ids else Envelope(address, Raw(body), kind))
            )
        return made

    def _check(self, to: str, body: bytes) -> None:
        if (type := self.known_types.by_job.get(to)) is None:
            check(body, f"message to {to!r}")
        elif not type.takes(body):
            type.check_message(body, to)

    def _body(self, to: str, message: Any) -> Raw:
        return Raw(encoded(message, f"message to {to!r}", self.settings.message_bytes_max, checked=False))

    async def ask(self, to: str, message: Any, *, id: str = "", deadline_s: float | None = None) -> Any:
        """A message that wants the handler's result: returns it once the turn is committed.

        Raises `UnknownJob`, `JobFailed`, or `NotDone` after the deadline (the turn may still run). A job that runs
        nothing for now refuses it (`JobFailed`, `JobPaused`, `JobStuck`): then it has no effect.
        """
        body = encoded(message, f"message to {checked_address(to)!r}", self.settings.message_bytes_max, checked=False)
        if self.known_types.check_anything():
            await self.known_types.learn((to,))
        try:
            self._check(to, body)
        except WrongType:
            await self.known_types.ask_again({to})
            self._check(to, body)
        envelope = Envelope(to, Raw(body), Kind.MESSAGE, checked_id(id))
        return _decode(await self.question(partition_of(to, self.partition_count), envelope, deadline_s))

    async def state(self, id: str, *, deadline_s: float | None = None) -> Any:
        """The job's state as committed after this question: its class, or a dict where that is unknown."""
        envelope = Envelope(checked_address(id), EMPTY, Kind.STATE)
        answer = await self.question(partition_of(id, self.partition_count), envelope, deadline_s)
        name, version, state, _ = msgspec.msgpack.decode(answer, type=tuple[str, int, Raw, str])
        type = self.registry.get(name)
        if type is None:
            return _decode(state)
        return type.load(state, version)

    async def command(
        self,
        partition: int,
        to: str,
        arguments: dict[str, Any],
        *,
        deadline_s: float | None = None,
        once: bool = False,
    ) -> Any:
        """A question to a partition itself (see `commands`). It is asked again while there is no answer: one that waits
        for something is forgotten when its partition gets another owner. With `once` it is done once, however often it
        is asked; others may be repeated."""
        if once:
            self._commands += 1
            arguments = arguments | {"once": f"{self.sender.hex()}.{self._commands}"}
        limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
        end_s, patience_s = trio.current_time() + limit_s, REPEAT_S
        while True:
            left_s = max(0.0, end_s - trio.current_time())
            envelope = Envelope(to, Raw(_encode(arguments)), Kind.COMMAND)
            try:
                return _decode(
                    await self.question(partition, envelope, left_s, patience_s=patience_s, in_all_s=limit_s)
                )
            except NotDone:
                if trio.current_time() >= end_s:
                    raise
            patience_s = min(2 * patience_s, REPEAT_MAX_S)

    async def learn_format(self) -> None:
        """See what the cluster writes now, if it can be seen. What this version can't read ends all that waits."""
        self.learned_s = trio.current_time()
        try:
            found = await find(self.grid)
            if found is not None:
                self.formats.declare(found.format)
                await self.allegiance.renew()  # so that it is known which cluster this was, should it be replaced
        except GridError:
            pass  # with the next lane, then
        except UnreadableFormat as error:
            self.end_all(error)


def _is_readable(body: bytes) -> bool:
    try:
        _decode(body)
    except Exception:  # noqa: BLE001  # whatever its parts raise: `check` says it
        return False
    return True


def _place(to: Any, partition_count: int, known: Mapping[str, JobType | None]) -> tuple[int, str, int, JobType | None]:
    """(partition, address, kind of envelope, the type of its job as far as it is known) of what a message is published
    to."""
    address, kind = (to.name, Kind.TOPIC) if isinstance(to, Topic) else (to, Kind.MESSAGE)
    partition = partition_of(checked_address(address), partition_count)
    return partition, address, kind, known.get(address) if kind == Kind.MESSAGE else None


def new_sender() -> bytes:
    """A client's id. Random, and never one of a partition's."""
    return bytes((secrets.randbelow(255) + 1,)) + secrets.token_bytes(7)


@asynccontextmanager
async def open_client(
    grid: Grid,
    *,
    settings: ClientSettings | None = None,
    registry: Registry = registry,
    now_ms: Callable[[], int],
    sender: bytes | None = None,
) -> AsyncIterator[GridClient]:
    """A client on this grid. On leaving, what no caller waits for any more is no longer tried."""
    sender = sender or new_sender()
    async with trio.open_nursery() as nursery:
        client = GridClient(
            grid,
            settings=settings or ClientSettings(),
            registry=registry,
            now_ms=now_ms,
            sender=sender,
            nursery=nursery,
        )
        await client.learn_format()
        if client.sending.refused is not None:
            raise client.sending.refused
        async with (
            grid.watch_ownership(client.notice),
            grid.listen(
                Map.REPLIES,
                client.asking.on_replies,
                key=(client_partition(sender, grid.partition_count), sender),
                removals=False,
            ),
        ):
            try:
                yield client
            finally:
                client.sending.close()
                client.asking.give_up()
                nursery.cancel_scope.cancel()
