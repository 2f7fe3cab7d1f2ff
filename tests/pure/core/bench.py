"""One partition on a memory grid, with its tenures opened, closed and killed by hand."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.grid.memory import Faults, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import JobType, Registry
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.keys import HEAD, client_partition, journal_key, reply_key, slot_key
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.state import PartitionState
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Answer, Batch, Definition, Envelope, Head, Kind, Record, decode, encode

P = 0
FORMATION = "test"
CLIENT = b"\x01client1"


class Kill9(KeyboardInterrupt):
    """Raised by a handler: the end of its process."""


class Opened:
    """One tenure and the scope that it can be killed by."""

    def __init__(self, tenure: Tenure, crashed: bool) -> None:
        self.tenure, self.crashed = tenure, crashed
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.over = False
        """Did it end because another one had begun?"""

    async def run(self) -> None:
        try:
            with self.scope:
                await self.tenure.run(crashed=self.crashed)
        except TenureOver:
            self.over = True
        except BaseExceptionGroup as group:
            if group.split(Kill9)[0] is None:
                raise
        finally:
            self.ended.set()

    async def kill(self) -> None:
        """As kill -9: nothing is closed."""
        self.scope.cancel()
        await self.ended.wait()

    async def close(self, successor: str = "") -> None:
        """In good order."""
        self.tenure.close(successor)
        await self.ended.wait()

    @property
    def state(self) -> PartitionState:
        return self.tenure.state


class Bench:
    """Partition 0 of one, with a clock, a client that sends by hand, and whatever was reported."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.faults = Faults()
        self.cluster = FaultyCluster(faults=self.faults, partitions=1, members=2)
        self.reports: list[str] = []
        self.skew_ms = 0
        self._nodes = self._questions = self._sent = 0
        self.lane = 1

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(trio.current_time() * 1000) + self.skew_ms

    def grid(self) -> FaultyGrid:
        """A connection."""
        return self.cluster.connect()

    async def form(self) -> None:
        """Make the head, if there is none."""
        await self.grid().put_if_absent(Map.HEADS, P, HEAD, encode(Head(FORMATION, 1)))

    def journal(self, **settings: Any) -> Journal:
        """A journal of its own node's."""
        host = self.host(Registry(), **settings)
        return Journal(
            host.grid,
            P,
            formation=FORMATION,
            settings=host.settings,
            new_id=host.new_id,
            random=Random(self._nodes),
            report=self.reports.append,
        )

    async def opened_journal(self, **settings: Any) -> Journal:
        """Read and opened."""
        await self.form()
        journal = self.journal(**settings)
        await journal.read()
        await journal.open(f"n{self._nodes}", self.now_ms)
        return journal

    def host(self, registry: Registry, **settings: Any) -> Host:
        """A new node's."""
        self._nodes += 1
        return Host(
            self.grid(),
            f"n{self._nodes}",
            registry,
            self.now_ms,
            FORMATION,
            1,
            settings=NodeSettings(**settings),
            random=Random(self._nodes),
            report=self.reports.append,
        )

    async def open(
        self, *types: JobType, hints: bool = True, make: Callable[[Host, Journal], Tenure] = Tenure, **settings: Any
    ) -> Opened:
        """Open the partition on a new node, by force if need be, and serve it."""
        await self.form()
        host = self.host(Registry(*types), **settings)
        journal = Journal(
            host.grid,
            P,
            formation=FORMATION,
            settings=host.settings,
            new_id=host.new_id,
            random=host.random,
            report=self.reports.append,
        )
        await journal.read()
        await journal.open(host.node, self.now_ms)
        tenure = make(host, journal)
        opened = Opened(tenure, crashed=not journal.closed_before)
        if hints:
            self.nursery.start_soon(self._hint, host.grid, tenure)
        self.nursery.start_soon(opened.run)
        return opened

    async def _hint(self, grid: FaultyGrid, tenure: Tenure) -> None:
        def slots(events: list[Any]) -> None:
            for event in events:
                if event.value is not None:
                    tenure.hear_slot(event.key, event.value)

        def definitions(events: list[Any]) -> None:
            for event in events:
                if event.value is not None:
                    tenure.offer_definition(event.key.decode(), event.value)

        grid.hear(frozenset(self.cluster.members))
        async with grid.listen(Map.INBOX, slots), grid.listen(Map.JOBS, definitions):
            await trio.sleep_forever()

    # -- what clients do --------------------------------------------------------------------------

    async def define(
        self, id: str, type: str, *, generation: int = 1, revision: int = 1, wanted: str = "running", **parameters: Any
    ) -> None:
        """Say what a job should be."""
        definition = Definition(type, Raw(msgspec.msgpack.encode(parameters)), generation, revision, wanted)
        await self.grid().set(Map.JOBS, P, id.encode(), encode(definition))

    def message(self, to: str, body: Any = None, **fields: Any) -> Envelope:
        """An envelope."""
        return Envelope(to, Raw(msgspec.msgpack.encode(body)), **fields)

    def slot(self, *envelopes: Envelope) -> tuple[bytes, bytes]:
        """One slot, next in the client's lane."""
        self._sent += 1
        return slot_key(CLIENT, self.lane, self._sent - 1), encode(Batch(list(envelopes)))

    async def send(self, *envelopes: Envelope) -> bytes:
        """One slot; returns its key."""
        key, value = self.slot(*envelopes)
        await self.grid().set(Map.INBOX, P, key, value)
        return key

    async def publish(self, to: str, *bodies: Any, **fields: Any) -> None:
        """Messages to one job, in one slot."""
        await self.send(*(self.message(to, body, **fields) for body in bodies))

    async def ask(self, to: str, body: Any = None, *, kind: int = Kind.MESSAGE, patience_s: float = 60.0) -> Answer:
        """A question, and its answer."""
        self._questions += 1
        n = self._questions
        await self.send(self.message(to, body, kind=kind, reply=n))
        return await self.answer(n, patience_s=patience_s)

    async def answer(self, n: int, *, patience_s: float = 60.0) -> Answer:
        """The answer to question `n`."""
        grid, partition = self.grid(), client_partition(CLIENT, 1)
        with trio.fail_after(patience_s):
            while (stored := await grid.get(Map.REPLIES, partition, reply_key(CLIENT, n))) is None:  # noqa: ASYNC110 (only reading shows it)
                await trio.sleep(0.01)
        return decode(stored, list[Answer])[0]

    async def command(self, op: str, to: str = "", **arguments: Any) -> Answer:
        """A command to the partition."""
        return await self.ask(to, {"op": op, **arguments}, kind=Kind.COMMAND)

    async def state_of(self, id: str) -> Any:
        """A job's state, from its owner."""
        answer = await self.ask(id, kind=Kind.STATE)
        assert answer.ok, answer
        return msgspec.msgpack.decode(answer.body)[2]

    # -- what lies in the grid --------------------------------------------------------------------

    async def record(self, slot: int) -> Record | None:
        """What stands in a journal slot."""
        stored = await self.grid().get(Map.JOURNAL, P, journal_key(slot))
        return None if stored is None else decode(stored, Record)

    async def keys(self, map: Map) -> list[bytes]:
        """All keys of a map."""
        return sorted([entry.key async for page in self.grid().scan(map, P) for entry in page])

    async def until(self, done: Callable[[], bool], patience_s: float = 60.0) -> None:
        """Wait for something to become true."""
        with trio.fail_after(patience_s):
            while not done():  # noqa: ASYNC110 (any condition)
                await trio.sleep(0.005)


async def rest(seconds: float = 1.0) -> None:
    """Let virtual time pass, so that whatever wants to happen does."""
    await trio.sleep(seconds)
