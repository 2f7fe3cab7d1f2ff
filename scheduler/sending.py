"""The sending side of a client: what waits to be stored, and the pumps that write it into the lanes.

    send ──► buffer (bounded) ──► a pump for each partition with something to send ──► slots (`outlanes`)

A pump does what its lane says. No caller waits for another's messages, and none stops a pump by giving up.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio

from tenure.scheduler.deadline import checked_limit
from tenure.scheduler.errors import Backlogged, ClientClosed, ClusterReplaced, Final, Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.held_back import HeldBack, told
from tenure.scheduler.outlanes import Action, OutLane, Step, Ticket, Waiting
from tenure.scheduler.pace import run_clock
from tenure.scheduler.soon import Signal, Soon
from tenure.scheduler.topic import Topic
from tenure.scheduler.watermark import announced
from tenure.scheduler.wire import Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["Sending"]

LEARN_EVERY_S = 1.0
SOON_S = 0.25
"""Most messages are stored sooner."""


class Sending:
    """How one client sends."""

    def __init__(self, client: "GridClient", nursery: trio.Nursery) -> None:
        self.client, self.grid, self.settings = client, client.grid, client.settings
        self.sender, self.formats, self.now_ms = client.sender, client.formats, client.now_ms
        self.closed = False
        self.refused: Final | None = None
        """Why this client can do nothing here any more: the cluster writes what it can't read, or its connection is
        closed for good."""
        self._nursery = nursery
        self._elapsed, self.allegiance = client.elapsed, client.allegiance
        self.held_back = HeldBack(client, self, nursery)
        self._lanes: dict[int, OutLane] = {}
        self._pumping: set[int] = set()
        self._settled: dict[Ticket, Signal] = {}
        self._soon, self._clock = Soon(nursery, SOON_S), run_clock()
        self._buffer_bytes = 0
        self._room = trio.Event()
        self._times_let_go = 0
        """How often those who waited were told not to."""

    def let_go(self) -> None:
        """Let nobody wait any longer."""
        self._times_let_go += 1
        self._room.set()
        for bell in self._settled.values():
            bell.give()

    def close(self) -> None:
        """Send nothing more: nobody need wait for it."""
        self.closed = True
        self.let_go()

    def refuse(self, reason: Final) -> None:
        """Send nothing more, and let go of those who wait for it."""
        self.refused = reason
        self.let_go()

    async def send(
        self, pairs: list[tuple[str | Topic, Any]], envelopes: list[tuple[int, Envelope]], deadline_s: float | None
    ) -> None:
        """Returns once all of these are stored. Raises `Backlogged` with those of `pairs` that are not known to be."""
        if self.closed:
            raise ClientClosed("this client is closed")
        if self.refused is not None:
            raise self.refused
        if not envelopes:
            await trio.lowlevel.checkpoint()
            return
        limit_s = self.settings.publish_deadline_s if deadline_s is None else deadline_s
        if self.allegiance.replaced and not await self.allegiance.renew() and self.allegiance.replaced:
            raise ClusterReplaced(self.allegiance.replaced, pairs)
        ticket = Ticket()
        try:
            await self._store(envelopes, ticket, checked_limit(limit_s))
            sent = ticket.sent
            if sent == len(envelopes) and ticket.done and not ticket.doubtful:
                return
            full = self.held_back.why({envelope.to for _, envelope in envelopes[sent:]}, ticket)
            unstored = self._unstored(pairs, envelopes, ticket, sent)
        finally:
            self._settled.pop(ticket, None)
            if ticket.pending:
                self.held_back.withdraw(ticket)
        if self.refused is not None:
            raise self.refused
        if self.allegiance.replaced:
            raise ClusterReplaced(self.allegiance.replaced, unstored)
        why = self.allegiance.why_not or told(full) or "the cluster does not keep up, or does not answer"
        when = "as this client was closed" if self.closed else f"after {limit_s} s"
        raise Backlogged(
            f"{len(unstored)} of {len(pairs)} messages are not known to be stored {when}: {why}",
            unstored,
            full,
        )

    async def _store(self, envelopes: list[tuple[int, Envelope]], ticket: Ticket, limit_s: float) -> None:
        """Send them, and wait, unless those who wait are let go; the ticket has how many of them there was time for."""
        end_s = self._clock() + limit_s
        if limit_s > self._soon.late_s and self._buffer_bytes <= self.settings.buffer_bytes_max:
            self._buffer(envelopes, ticket)
            if ticket.sent == len(envelopes) and (ticket.done or await self._soon.comes(self._bell(ticket))):
                return
        with trio.move_on_at(end_s):
            await self._store_all(envelopes, ticket)

    def _bell(self, ticket: Ticket) -> Signal:
        """Rung when all of a caller's messages are settled, or when it is let go."""
        bell = self._settled.get(ticket)
        if bell is None:
            bell = self._settled[ticket] = Signal()
        return bell

    async def _store_all(self, envelopes: list[tuple[int, Envelope]], ticket: Ticket) -> None:
        times_let_go = self._times_let_go
        while ticket.sent < len(envelopes):
            while self._buffer_bytes > self.settings.buffer_bytes_max:
                if self._room.is_set():  # others may wait for the one that is there
                    self._room = trio.Event()
                await self._room.wait()
                if times_let_go != self._times_let_go:
                    return
            self._buffer(envelopes, ticket)
        if not ticket.done:
            await self._bell(ticket).wait()

    def _buffer(self, envelopes: list[tuple[int, Envelope]], ticket: Ticket) -> None:
        """As many of the next as there is room for."""
        lanes, pumping, limit, held = self._lanes, self._pumping, self.settings.buffer_bytes_max, self.held_back
        full, careful = held.by_job, held.careful
        for partition, envelope in envelopes[ticket.sent :] if ticket.sent else envelopes:
            size_bytes = len(envelope.body) + 40
            ticket.sent += 1
            if (full or careful) and envelope.kind == Kind.MESSAGE and held.holds(partition, envelope.to):
                held.add(Waiting(envelope, ticket, size_bytes))
                continue
            lane = lanes.get(partition)
            if lane is None:
                lane = self._new_lane(partition)
            lane.add(envelope, ticket, size_bytes)
            if partition not in pumping:
                pumping.add(partition)
                self._nursery.start_soon(self._pump, lane, partition)
            self._buffer_bytes = buffered = self._buffer_bytes + size_bytes
            if buffered > limit:
                break

    def _new_lane(self, partition: int) -> OutLane:
        lane = self._lanes[partition] = OutLane(self.sender, self.settings, self.formats.encode)
        return lane

    def hold_back(self, partition: int, jobs: set[str]) -> list[Waiting]:
        """Take out what waits for jobs that take no more."""
        lane = self._lanes.get(partition)
        if lane is None:
            return []
        held = lane.take_out(jobs)
        self._make_room(lane)
        return held

    def jobs_waiting(self, partition: int) -> list[str]:
        """The jobs that messages wait for, in this lane."""
        lane = self._lanes.get(partition)
        messages = (waiting.envelope for waiting in (lane.waiting if lane else ()))
        return list({envelope.to: None for envelope in messages if envelope.kind == Kind.MESSAGE})

    def let_go_on(self, partition: int, waiting: Iterable[Waiting]) -> None:
        """Send what was held back, in this order, behind what was sent before."""
        lane = self._lanes.get(partition) or self._new_lane(partition)
        for one in waiting:
            lane.put(one)
            self._buffer_bytes += one.size_bytes
        if partition not in self._pumping:
            self._pumping.add(partition)
            self._nursery.start_soon(self._pump, lane, partition)

    def settle(self, ticket: Ticket) -> None:
        """One message of this ticket is not sent any more, and its caller knows it."""
        ticket.pending -= 1
        if not ticket.pending:
            ticket.done = True
            self._tell([ticket])

    def _unstored(
        self, pairs: list[tuple[str | Topic, Any]], envelopes: list[tuple[int, Envelope]], ticket: Ticket, sent: int
    ) -> list[tuple[str | Topic, Any]]:
        """What of these messages is not known to be stored; what was never tried is taken back."""
        waiting = {id(held.envelope) for held in self.held_back.of(ticket)}
        for lane in {partition: self._lanes.get(partition) for partition, _ in envelopes[:sent]}.values():
            if lane is None:  # all of it was held back
                continue
            waiting |= {id(w.envelope) for w in (*lane.frozen, *lane.waiting) if w.ticket is ticket}
            lane.withdraw(ticket)
            self._make_room(lane)
        if ticket.doubtful:
            return pairs
        return [
            pair
            for n, (pair, (_, envelope)) in enumerate(zip(pairs, envelopes, strict=True))
            if n >= sent or id(envelope) in waiting
        ]

    async def _pump(self, lane: OutLane, partition: int) -> None:
        """Do what the lane says, until nothing waits. Not cancelled with any caller: a frozen slot is finished."""
        pauses = 0
        try:
            while lane.has_something() and (step := lane.next_step(now_s := self._elapsed.now_s())) is not None:
                if await self._do(lane, partition, step, now_s):
                    pauses = 0
                else:
                    pauses += 1
                    await self._pause(pauses, step)
                self._make_room(lane)
        finally:
            self._pumping.discard(partition)

    def _make_room(self, lane: OutLane) -> None:
        # The lane counts what it lets go of: while a pump waits for the grid, others add to its lane and withdraw.
        self._buffer_bytes -= lane.freed_bytes()
        if self._buffer_bytes <= self.settings.buffer_bytes_max:
            self._room.set()

    async def _do(self, lane: OutLane, partition: int, step: Step, now_s: float) -> bool:
        try:
            if step.action is Action.WRITE:
                if not self.allegiance.is_fresh(now_s) and not await self._is_known(lane):
                    return False
                if not self.allegiance.knows(lane.formation):
                    self._tell(lane.forsake())
                    return True
                await self.grid.set(Map.INBOX, partition, step.key, step.value)
                if not self.allegiance.holds(now_s := self._elapsed.now_s()):
                    lane.unsure()
                    return False
                self._tell(lane.stored(now_s))
            elif step.action is Action.LOOK:
                gone = await self.grid.get(Map.INBOX, partition, step.key) is None
                lane.looked(gone)
                return gone
            elif step.action is Action.BEGIN:
                if trio.current_time() >= self.client.learned_s + LEARN_EVERY_S:  # lanes often begin all at once
                    await self.client.learn_format()
                if self.refused is not None:
                    return False
                if not await self._is_known(lane):
                    return False
                formation, incarnation = self.allegiance.formation, self.allegiance.incarnation
                begun_s = self._elapsed.now_s()  # before it is known, so that no later watermark is taken for older
                watermark = await announced(self.grid, partition)
                if watermark is None:
                    return False
                lane.begun(watermark, self.now_ms(), begun_s, formation, incarnation)
            else:
                self._tell(lane.give_up())
        except (GridError, Undecodable, UnreadableFormat):  # a damaged watermark: nobody knows where to begin
            if step.action is Action.WRITE:
                lane.unsure()
            return False
        return True

    async def _is_known(self, lane: OutLane) -> bool:
        """Do acknowledgements count? Where the cluster is gone, what was tried there will not be tried again."""
        known = await self.allegiance.renew()
        if self.allegiance.replaced:
            self._tell(lane.give_up())
        return known

    async def _pause(self, attempt: int, step: Step) -> None:
        if step.action is Action.LOOK:
            await trio.sleep(min(0.1, 0.001 * 2 ** min(attempt - 1, 10)))
            return
        settings = self.settings
        await trio.sleep(min(settings.retry_pause_max_s, settings.retry_pause_s * 2 ** min(attempt - 1, 10)))

    def _tell(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if (bell := self._settled.get(ticket)) is not None:
                bell.give()
