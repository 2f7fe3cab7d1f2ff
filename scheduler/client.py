"""A client of the cluster, over any grid: schedule, publish, ask, look.

Everything a client says goes through the lanes to the partition concerned, so it is ordered, stored and
applied once; definitions change by compare-and-set. The lanes themselves are pure (`outlanes`).
"""

import math
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler import errors
from tenure.scheduler.allegiance import Allegiance
from tenure.scheduler.cluster import find
from tenure.scheduler.directory import Directory
from tenure.scheduler.elapsed import Elapsed
from tenure.scheduler.errors import (
    AskFailed,
    Backlogged,
    ClientClosed,
    Mistake,
    NotDone,
    PartitionLost,
    TooLarge,
    UnreadableFormat,
    WrongType,
)
from tenure.scheduler.formats import Formats
from tenure.scheduler.grid.port import EntryEvent, Grid, GridError, Map
from tenure.scheduler.jobtype import Registry, registry
from tenure.scheduler.keys import checked_address, client_partition, partition_of, reply_key
from tenure.scheduler.outlanes import Action, OutLane, Step, Ticket
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.topic import Topic
from tenure.scheduler.watermark import announced
from tenure.scheduler.wire import EMPTY, Answer, Envelope, Kind, decode

__all__ = ["GridClient", "open_client"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
T = TypeVar("T")
LEARN_EVERY_S = 1.0


class _Question:
    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Answer | None = None


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
        self.refused: UnreadableFormat | None = None
        """Why this client can do nothing here any more: the cluster writes what it can't read."""
        self.partition_count = grid.partition_count
        self.directory = Directory(self)
        self._nursery = nursery
        self._learned_s = -math.inf
        self._lanes: dict[int, OutLane] = {}
        self._elapsed = Elapsed(now_ms)
        self.allegiance = Allegiance(grid, self._elapsed.now_s, nursery)
        self._pumping: set[int] = set()
        self._settled: dict[Ticket, trio.Event] = {}
        self._buffer_bytes = 0
        self._room = trio.Event()
        self._questions: dict[int, _Question] = {}
        self._question_count = 0
        self.closed = False

    # -- publishing -------------------------------------------------------------------------------

    async def publish(self, to: str | Topic, message: Any, *, id: str = "", deadline_s: float | None = None) -> None:
        """A message to a job, or to every subscriber of a topic.

        Returns once it is stored with its backups: it will take effect exactly once.

        With an `id`, a repetition (after a crash, say) has no effect. Raises `Backlogged` after the deadline.
        """
        await self.publish_many([(to, message)], ids=[id] if id else None, deadline_s=deadline_s)

    async def publish_many(
        self,
        messages: Iterable[tuple[str | Topic, Any]],
        *,
        ids: Iterable[str] | None = None,
        deadline_s: float | None = None,
    ) -> None:
        """Many messages at once, to jobs and topics, in order for each. All are checked before the first is sent."""
        pairs = list(messages)
        try:
            addresses = {to for to, _ in pairs}
        except (TypeError, ValueError):
            raise Mistake("publish_many takes pairs: a job's id or a Topic, and a message") from None
        if self.directory.checks_types():
            await self.directory.learn_types(to for to in addresses if not isinstance(to, Topic))
        names = None if ids is None else list(ids)
        if names is not None and len(names) != len(pairs):
            raise Mistake(f"{len(pairs)} messages and {len(names)} ids: there must be as many of both")
        await self._send(pairs, self._envelopes(pairs, names), deadline_s)

    async def publish_topic(self, topic: str, message: Any, *, id: str = "", deadline_s: float | None = None) -> None:
        """A message to every subscriber of a topic; with an `id`, a repetition has no effect on any of them."""
        await self.publish(Topic(topic), message, id=id, deadline_s=deadline_s)

    async def broadcast(self, type: Any, message: Any, *, id: str = "", deadline_s: float | None = None) -> None:
        """A message to every job of a type (that exists when its partition reads this)."""
        known = None if isinstance(type, str) else self.registry.of(type)
        name = type if isinstance(type, str) else (known.name if known else self.registry[repr(type)].name)
        body = self._body(name, message)
        if (found := self.registry.get(name)) is not None:
            found.check_message(bytes(body), f"all of {name}")
        envelopes = [(p, Envelope(name, body, Kind.TYPE, id)) for p in range(self.partition_count)]
        await self._send([(name, message)] * len(envelopes), envelopes, deadline_s)

    def _envelopes(self, pairs: list[tuple[str | Topic, Any]], ids: list[str] | None) -> list[tuple[int, Envelope]]:
        count, limit, known = self.partition_count, self.settings.message_bytes_max, self.directory.known_types
        checks = bool(known)
        places: dict[str | Topic, tuple[int, str, int]] = {}
        made = []
        for n, (to, message) in enumerate(pairs):
            place = places.get(to)
            if place is None:
                place = places[to] = _place(to, count)
            partition, address, kind = place
            try:
                body = _encode(message)
            except (TypeError, msgspec.EncodeError, OverflowError) as error:
                raise WrongType(f"message {n} to {to!r} can't be stored: {error}") from error
            if len(body) > limit:
                raise TooLarge(f"message {n} to {to!r} has {len(body)} bytes; the limit is {limit}")
            if checks and kind == Kind.MESSAGE and (type := known.get(address)) is not None:
                type.check_message(body, address)
            made.append(
                (partition, Envelope(address, Raw(body), kind, ids[n]) if ids else Envelope(address, Raw(body), kind))
            )
        return made

    def _body(self, to: str, message: Any) -> Raw:
        try:
            body = _encode(message)
        except (TypeError, msgspec.EncodeError, OverflowError) as error:
            raise WrongType(f"message to {to!r} can't be stored: {error}") from error
        if len(body) > self.settings.message_bytes_max:
            raise TooLarge(f"message to {to!r} has {len(body)} bytes; the limit is {self.settings.message_bytes_max}")
        return Raw(body)

    async def _send(
        self, pairs: list[tuple[str | Topic, Any]], envelopes: list[tuple[int, Envelope]], deadline_s: float | None
    ) -> None:
        if self.closed:
            raise ClientClosed("this client is closed")
        if self.refused is not None:
            raise self.refused
        if not envelopes:
            await trio.lowlevel.checkpoint()
            return
        limit_s = self.settings.publish_deadline_s if deadline_s is None else deadline_s
        ticket, sent = Ticket(), 0
        with trio.move_on_after(limit_s):
            while sent < len(envelopes):
                sent = await self._buffer(envelopes, sent, ticket)
            if not ticket.done:
                event = self._settled[ticket] = trio.Event()
                try:
                    await event.wait()
                finally:
                    self._settled.pop(ticket, None)
        if sent == len(envelopes) and ticket.done and not ticket.doubtful:
            return
        unstored = self._unstored(pairs, envelopes, ticket, sent)
        if self.refused is not None:
            raise self.refused
        raise Backlogged(
            f"{len(unstored)} of {len(pairs)} messages are not known to be stored after {limit_s} s: "
            "the cluster does not keep up, or does not answer",
            unstored,
        )

    async def _buffer(self, envelopes: list[tuple[int, Envelope]], start: int, ticket: Ticket) -> int:
        while self._buffer_bytes > self.settings.buffer_bytes_max:
            self._room = trio.Event()
            await self._room.wait()
        lanes, limit = self._lanes, self.settings.buffer_bytes_max
        end = start
        for partition, envelope in envelopes[start:] if start else envelopes:
            lane = lanes.get(partition)
            if lane is None:
                lane = lanes[partition] = OutLane(self.sender, self.settings, self.formats.encode)
            size_bytes = len(envelope.body) + 40
            lane.add(envelope, ticket, size_bytes)
            self._buffer_bytes += size_bytes
            if partition not in self._pumping:
                self._pumping.add(partition)
                self._nursery.start_soon(self._pump, lane, partition)
            end += 1
            if self._buffer_bytes > limit:
                break
        return end

    def _unstored(
        self, pairs: list[tuple[str | Topic, Any]], envelopes: list[tuple[int, Envelope]], ticket: Ticket, sent: int
    ) -> list[tuple[str | Topic, Any]]:
        """What of these messages is not known to be stored; what was never tried is taken back."""
        if ticket.doubtful:
            return pairs
        waiting: set[int] = set()
        for lane in {partition: self._lanes[partition] for partition, _ in envelopes[:sent]}.values():
            waiting |= {id(w.envelope) for w in (*lane.frozen, *lane.waiting) if w.ticket is ticket}
            before = lane.waiting_bytes
            lane.withdraw(ticket)
            self._buffer_bytes -= before - lane.waiting_bytes
        return [
            pair
            for n, (pair, (_, envelope)) in enumerate(zip(pairs, envelopes, strict=True))
            if n >= sent or id(envelope) in waiting
        ]

    # -- the lanes' pumps -------------------------------------------------------------------------

    async def _pump(self, lane: OutLane, partition: int) -> None:
        """Do what the lane says, until nothing waits. Not cancelled with any caller: a frozen slot is finished."""
        pauses = 0
        try:
            while (step := lane.next_step(self._elapsed.now_s())) is not None:
                before = lane.waiting_bytes
                if await self._do(lane, partition, step):
                    pauses = 0
                else:
                    pauses += 1
                    await self._pause(pauses, step)
                self._buffer_bytes -= before - lane.waiting_bytes if lane.waiting_bytes < before else 0
                if self._buffer_bytes <= self.settings.buffer_bytes_max:
                    self._room.set()
        finally:
            self._pumping.discard(partition)

    async def _do(self, lane: OutLane, partition: int, step: Step) -> bool:
        try:
            if step.action is Action.WRITE:
                if not await self.allegiance.renew():
                    return False
                if not self.allegiance.knows(lane.formation):
                    self._tell(lane.forsake())
                    return True
                await self.grid.set(Map.INBOX, partition, step.key, step.value)
                if not self.allegiance.holds():
                    lane.unsure()
                    return False
                self._tell(lane.stored(self._elapsed.now_s()))
            elif step.action is Action.LOOK:
                gone = await self.grid.get(Map.INBOX, partition, step.key) is None
                lane.looked(gone)
                return gone
            elif step.action is Action.BEGIN:
                if trio.current_time() >= self._learned_s + LEARN_EVERY_S:  # lanes often begin all at once
                    await self.learn_format()
                if self.refused is not None:
                    return False
                if not await self.allegiance.renew():
                    return False
                formation = self.allegiance.formation
                begun_s = self._elapsed.now_s()  # before it is known, so that no later watermark is taken for older
                watermark = await announced(self.grid, partition)
                if watermark is None:
                    return False
                lane.begun(watermark, self.now_ms(), begun_s, formation)
            else:
                self._tell(lane.give_up())
        except GridError:
            if step.action is Action.WRITE:
                lane.unsure()
            return False
        return True

    async def _pause(self, attempt: int, step: Step) -> None:
        if step.action is Action.LOOK:
            await trio.sleep(min(0.1, 0.001 * 2 ** min(attempt - 1, 10)))
            return
        settings = self.settings
        await trio.sleep(min(settings.retry_pause_max_s, settings.retry_pause_s * 2 ** min(attempt - 1, 10)))

    async def learn_format(self) -> None:
        """See what the cluster writes now, if it can be seen. What this version can't read ends all that waits."""
        self._learned_s = trio.current_time()
        try:
            found = await find(self.grid)
            if found is not None:
                self.formats.declare(found.format)
        except GridError:
            pass  # with the next lane, then
        except UnreadableFormat as error:
            self.refused = error
            for event in (*self._settled.values(), *(question.answered for question in self._questions.values())):
                event.set()

    def _tell(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if (event := self._settled.get(ticket)) is not None:
                event.set()

    # -- asking -----------------------------------------------------------------------------------

    async def ask(self, to: str, message: Any, *, id: str = "", deadline_s: float | None = None) -> Any:
        """A message that wants the handler's result: returns it once the turn is committed.

        Raises `UnknownJob`, `JobFailed`, or `NotDone` after the deadline (the turn may still run).
        """
        body = self._body(checked_address(to), message)
        if self.directory.checks_types():
            await self.directory.learn_types({to})
            if (type := self.directory.known_types.get(to)) is not None:
                type.check_message(bytes(body), to)
        envelope = Envelope(to, body, Kind.MESSAGE, id)
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
        self, partition: int, to: str, arguments: dict[str, Any], *, deadline_s: float | None = None
    ) -> Any:
        """A question to a partition itself (see `commands`). Asked again if need be: commands may be repeated."""
        limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
        end_s = trio.current_time() + limit_s
        while True:
            left_s = end_s - trio.current_time()
            envelope = Envelope(to, Raw(_encode(arguments)), Kind.COMMAND)
            try:
                return _decode(await self.question(partition, envelope, min(left_s, max(1.0, limit_s / 4))))
            except NotDone:
                if trio.current_time() >= end_s:
                    raise

    async def question(self, partition: int, envelope: Envelope, deadline_s: float | None = None) -> Raw:
        """Send an envelope that wants an answer, and wait for it."""
        limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
        self._question_count += 1
        n = envelope.reply = self._question_count
        question = self._questions[n] = _Question()
        try:
            with trio.move_on_after(limit_s):
                await self._send([(envelope.to, None)], [(partition, envelope)], limit_s)
                await self._await_answer(n, question)
        except Backlogged as backlogged:
            raise NotDone(f"the question to {envelope.to!r} could not be stored within {limit_s} s") from backlogged
        finally:
            del self._questions[n]
        if question.answer is None and self.refused is not None:
            raise self.refused
        if question.answer is None:
            raise await self._no_answer(partition, envelope.to, limit_s)
        self.grid.discard(Map.REPLIES, client_partition(self.sender, self.partition_count), [reply_key(self.sender, n)])
        return _unwrap(question.answer)

    async def _no_answer(self, partition: int, to: str, limit_s: float) -> errors.TenureError:
        whose = f"{to!r}" if to else f"partition {partition}"
        if partition in await self.directory.lost_partitions():
            return PartitionLost(
                f"no answer from {whose}: partition {partition} is lost, as all copies of its data were; "
                "restore its jobs from a snapshot"
            )
        return NotDone(f"no answer from {whose} within {limit_s} s; its turn may still run")

    async def _await_answer(self, n: int, question: _Question) -> None:
        """The bell rings, or we look from time to time."""
        partition, pause_s = client_partition(self.sender, self.partition_count), self.settings.reply_poll_s
        while True:
            with trio.move_on_after(pause_s):
                await question.answered.wait()
                return
            try:
                stored = await self.grid.get(Map.REPLIES, partition, reply_key(self.sender, n))
                if stored is not None:
                    self._hear(stored)
            except GridError:
                pass
            pause_s = min(2.0, pause_s * 1.5)

    def on_replies(self, events: list[EntryEvent]) -> None:
        """Answers that came in."""
        for event in events:
            if event.value is not None:
                self._hear(event.value)

    def _hear(self, stored: bytes) -> None:
        try:
            answers = decode(stored, list[Answer])
        except errors.Final:
            answers = []  # the poll finds no answer either, and the deadline says so
        if stored[:1] != bytes((self.formats.declared,)):
            self._nursery.start_soon(self.learn_format)
        for answer in answers:
            if (question := self._questions.get(answer.n)) is not None and question.answer is None:
                question.answer = answer
                question.answered.set()


def _unwrap(answer: Answer) -> Raw:
    if answer.ok:
        return answer.body
    name, text = msgspec.msgpack.decode(answer.body, type=tuple[str, str])
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.TenureError) and kind is not Backlogged:
        raise kind(text)
    raise AskFailed(f"{name}: {text}")


def _place(to: Any, partition_count: int) -> tuple[int, str, int]:
    """(partition, address, kind of envelope) of what a message is published to."""
    address, kind = (to.name, Kind.TOPIC) if isinstance(to, Topic) else (to, Kind.MESSAGE)
    return partition_of(checked_address(address), partition_count), address, kind


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
        if client.refused is not None:
            raise client.refused
        async with grid.listen(
            Map.REPLIES, client.on_replies, key=(client_partition(sender, grid.partition_count), sender), removals=False
        ):
            try:
                yield client
            finally:
                client.closed = True
                nursery.cancel_scope.cancel()
