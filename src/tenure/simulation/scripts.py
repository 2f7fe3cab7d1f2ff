"""Faults in a row, each where the one before has just made the protocol's next step matter.

Drawn at random they would meet once in many thousands of seeds. They are the paths by which the journal's
model shows that its rules are needed; a script tries to walk one, and gives up where the cluster goes another way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.wire import Record, RecordKind
from tenure.simulation.watched import Ambush, Call

if TYPE_CHECKING:
    from tenure.simulation.chaos import Chaos
    from tenure.simulation.processes import NodeProcess

__all__ = [
    "kill_primary",
    "lone_writes",
    "owned",
    "sleeping_owner",
    "stalled_opening",
    "stalled_reader",
    "undelivered",
    "weak_tail",
]

Writing = Callable[[str, int, int, Record], bool]
BATCH_ENDS = (0, 4, 20, 52)
"""Whoever replays a journal reads 1, 4, 16, 32 slots at once. After one of these it has to read on."""


class _Written:
    """Waits for a journal record to be written; `act` is called at that very moment."""

    def __init__(self, chaos: "Chaos", fits: Writing, act: Callable[[str, int, int, Record], None]) -> None:
        self.event = trio.Event()
        self._watchers = chaos.world.journal.watchers
        self._fits, self._act = fits, act

    def __enter__(self) -> "_Written":
        self._watchers.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self in self._watchers:
            self._watchers.remove(self)

    def __call__(self, writer: str, partition: int, slot: int, record: Record) -> None:
        if not self.event.is_set() and self._fits(writer, partition, slot, record):
            self.event.set()
            self._act(writer, partition, slot, record)

    async def within(self, limit_s: float) -> bool:
        with trio.move_on_after(limit_s):
            await self.event.wait()
        return self.event.is_set()


def _nothing(*_: object) -> None: ...


def owned(chaos: "Chaos", prefer: Callable[[int], bool] | None = None) -> "tuple[int, NodeProcess] | None":
    """A partition and the living node that opened it last."""
    awake = {node.name: node for node in chaos.awake()}
    choices = [(p, awake[owner]) for p, owner in sorted(chaos.world.journal.owners.items()) if owner in awake]
    if prefer is not None:
        choices = [choice for choice in choices if prefer(choice[0])] or choices
    return chaos.dice.choice(choices) if choices else None


def kill_primary(chaos: "Chaos", partition: int) -> None:
    """The member dies that alone holds a weak write, if the loss of one may be borne."""
    if chaos.spare_member() is not None and (primary := chaos.cluster.primary(partition)) is not None:
        chaos.cluster.kill_member(primary)
        chaos.world.nursery.start_soon(_add_member_later, chaos)


async def _add_member_later(chaos: "Chaos") -> None:
    await trio.sleep(1.0)
    chaos.cluster.add_member()


async def weak_tail(chaos: "Chaos") -> None:
    """An owner dies as only the primary holds its last record; it is read by the next owner; then the primary dies,
    and then that owner."""
    found = owned(chaos)
    if found is None or chaos.spare_member() is None:
        return
    partition, owner = found
    world = chaos.world

    def die(*_: object) -> None:
        world.struck("node-killed", f"{owner.name}, whose last record is weak")
        owner.kill()

    world.faults.weak_s = None
    owner.grid.weak_at = partition
    with _Written(chaos, lambda w, p, s, r: (w, p) == (owner.name, partition), die) as last:
        if not await last.within(3.0):
            return
    chaos.start_node()
    with _Written(chaos, lambda w, p, s, r: p == partition and r.kind == RecordKind.OPENING, _nothing) as opened:
        if not await opened.within(6.0):
            return
    await trio.sleep(chaos.dice.choice((0.0, 0.3, 1.0)))
    kill_primary(chaos, partition)
    await trio.sleep(chaos.dice.choice((0.0, 1.5)))
    if (newest := world.journal.owners.get(partition)) is not None:
        for node in chaos.awake():
            if node.name == newest and len(chaos.awake()) > 1:
                world.struck("node-killed", f"{node.name}, which has read a weak record")
                node.kill()


async def lone_writes(chaos: "Chaos") -> None:
    """For a while a partition's writes reach its primary alone; then the primary dies."""
    if chaos.spare_member() is None:
        return
    partition = chaos.dice.randrange(chaos.cluster.partition_count)
    chaos.world.faults.weak_s = None
    chaos.world.faults.once(Fault.WEAK, partition=partition, times=chaos.dice.choice((3, 10)))
    await trio.sleep(chaos.dice.uniform(0.3, 1.5))
    kill_primary(chaos, partition)


async def undelivered(chaos: "Chaos") -> None:
    """What an owner sends to other partitions arrives in part, and it dies before it knows what did."""
    found = owned(chaos)
    if found is None:
        return
    partition, owner = found
    world, dice = chaos.world, chaos.dice
    sendings = dice.choice((2, 3, 4))

    def sends(writer: str, p: int, slot: int, record: Record) -> bool:
        nonlocal sendings
        sendings -= (writer, p) == (owner.name, partition) and bool(record.outbox)
        return sendings == 0

    def die(*_: object) -> None:
        world.struck("node-killed", f"{owner.name}, whose sendings are on their way")
        owner.kill()

    world.faults.once(Fault.APPLIED_UNKNOWN, map=Map.INBOX, connection=owner.grid, times=dice.choice((1, 2)))
    world.faults.once(Fault.DROPPED_UNKNOWN, map=Map.INBOX, connection=owner.grid, times=20)
    with _Written(chaos, sends, die) as sent:
        await sent.within(4.0)
    if len(chaos.living()) < world.plan.nodes:
        chaos.start_node()


async def stalled_reader(chaos: "Chaos") -> None:
    """An owner sleeps; the next one dies with a weak opening, which a third has read when the primary dies; the
    first wakes up and commits into that very slot; the third reads on."""
    found = owned(chaos, lambda partition: chaos.world.cluster.journal_length(partition) in BATCH_ENDS)
    if found is None or len(chaos.awake()) < 2 or chaos.spare_member() is None:
        return
    partition, first = found
    world = chaos.world
    world.struck("node-frozen", f"{first.name}, which owns partition {partition}")
    first.freeze()
    if len(chaos.awake()) < 3:
        chaos.start_node()
    world.faults.weak_s = None
    weak_slot = -1
    second = None

    def die(writer: str, partition: int, slot: int, record: Record) -> None:
        nonlocal weak_slot, second
        weak_slot, second = slot, writer
        for node in chaos.nodes:
            if node.name == writer:
                world.struck("node-killed", f"{writer}, whose opening is weak")
                node.kill()

    def is_opening(writer: str, p: int, slot: int, record: Record) -> bool:
        return p == partition and record.kind == RecordKind.OPENING and writer != first.name

    try:
        for node in chaos.awake():
            node.grid.weak_at = partition
        with _Written(chaos, is_opening, die) as opening:
            if not await opening.within(6.0):
                return
        for node in chaos.awake():
            node.grid.weak_at = None
        stalled = await _stall_reader(chaos, partition, weak_slot)
        if stalled is None:
            return
        kill_primary(chaos, partition)
        await trio.sleep(chaos.dice.choice((0.05, 0.5)))
        first.thaw()
        await trio.sleep(chaos.dice.choice((0.3, 0.8, 2.0)))
        stalled.thaw()
    finally:
        first.thaw()


async def _stall_reader(chaos: "Chaos", partition: int, slot: int) -> "NodeProcess | None":
    """Freeze whichever node reads this slot next, with what it has read in its hands."""
    key, read = slot.to_bytes(8, "big"), trio.Event()
    reader: NodeProcess | None = None

    def fits(call: Call) -> bool:
        is_journal = call.map is Map.JOURNAL and call.partition == partition
        return is_journal and not call.writes and key in (call.result or ())

    def lie_in_wait(node: "NodeProcess") -> None:
        def strike() -> None:
            nonlocal reader
            if reader is None:
                reader = node
                chaos.world.struck("node-frozen", f"{node.name}, in mid-replay")
                node.freeze()
                read.set()

        node.grid.ambush = Ambush(fits, True, strike)

    waiting = chaos.awake()
    for node in waiting:
        lie_in_wait(node)
    with trio.move_on_after(6.0):
        await read.wait()
    for node in waiting:
        node.grid.ambush = None
    return reader


async def stalled_opening(chaos: "Chaos") -> None:
    """A node sleeps between reading the journal's end and writing its opening there; others open, work, write
    images and clear what it has read; then it wakes up."""
    found = owned(chaos)
    if found is None:
        return
    partition, owner = found
    world = chaos.world
    stalled: NodeProcess | None = None
    asleep = trio.Event()

    def lie_in_wait(node: "NodeProcess") -> None:
        def strike() -> None:
            nonlocal stalled
            if stalled is None:
                stalled = node
                world.struck("node-frozen", f"{node.name}, about to open partition {partition}")
                node.freeze()
                asleep.set()

        def fits(call: Call) -> bool:
            return call.map is Map.JOURNAL and call.partition == partition and call.writes and passing() < 0

        left = chaos.dice.choice((0, 1))

        def passing() -> int:
            nonlocal left
            left -= 1
            return left

        node.grid.ambush = Ambush(fits, False, strike)

    world.struck("node-killed", f"{owner.name}, which owns partition {partition}")
    owner.kill()
    chaos.start_node()
    waiting = chaos.awake()
    for node in waiting:
        lie_in_wait(node)
    with trio.move_on_after(6.0):
        await asleep.wait()
    for node in waiting:
        node.grid.ambush = None
    if stalled is None:
        return
    if len(chaos.awake()) < 2:
        chaos.start_node()
    try:
        await trio.sleep(chaos.dice.uniform(4.0, 9.0))
    finally:
        stalled.thaw()


async def sleeping_owner(chaos: "Chaos") -> None:
    """An owner sleeps as it is about to commit; others take over, work and clear; then it commits."""
    found = owned(chaos)
    if found is None:
        return
    partition, owner = found
    asleep = trio.Event()

    def strike() -> None:
        chaos.world.struck("node-frozen", f"{owner.name}, about to commit in partition {partition}")
        owner.freeze()
        asleep.set()

    def fits(call: Call) -> bool:
        return call.map is Map.JOURNAL and call.partition == partition and call.writes

    owner.grid.ambush = Ambush(fits, False, strike)
    with trio.move_on_after(3.0):
        await asleep.wait()
    owner.grid.ambush = None
    if not owner.frozen:
        return
    if len(chaos.awake()) < 2:
        chaos.start_node()
    try:
        await trio.sleep(chaos.dice.uniform(4.0, 9.0))
    finally:
        owner.thaw()
