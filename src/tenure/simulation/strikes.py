"""What goes wrong beside all else in the seeds of a workload, as it makes that workload's next step matter."""

from functools import partial
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.formats import FIRST
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.simulation.scripts import kill_primary, owned
from tenure.simulation.watched import Ambush, Call

if TYPE_CHECKING:
    from tenure.simulation.chaos import Chaos
    from tenure.simulation.processes import ClientProcess, NodeProcess

__all__ = [
    "doubtful_definitions",
    "frozen_as_jobs_end",
    "frozen_over_a_restore",
    "late_answers",
    "late_writes",
    "owner_of_the_forgotten",
    "rolling",
    "slow_commits",
    "weak_definitions",
]


async def owner_of_the_forgotten(chaos: "Chaos") -> None:
    """An owner dies soon after it has forgotten a client's lane, which may have come back at that very moment."""
    world, dice = chaos.world, chaos.dice
    forgotten = trio.Event()
    who = ""

    def note(owner: str, partition: int, key: bytes) -> None:
        nonlocal who
        if not forgotten.is_set():
            who = owner
            forgotten.set()

    world.cluster.probed.append(note)
    while world.working:
        await forgotten.wait()
        await trio.sleep(dice.choice((0.1, 0.2, 0.4)))
        for node in chaos.awake():
            if node.name == who and len(chaos.awake()) > 1:
                world.struck("node-killed", f"{node.name}, which has forgotten a client")
                node.kill()
                chaos.start_node()
        await trio.sleep(dice.uniform(0.5, 2.5))
        forgotten = trio.Event()


async def rolling(chaos: "Chaos") -> None:
    """Older nodes are replaced by newer ones, one after the other; until the newer format is declared, some newer ones
    by older ones again."""
    world, dice = chaos.world, chaos.dice
    while world.working:
        await trio.sleep(dice.uniform(0.2, 1.5))
        older = [node for node in chaos.awake() if world.reads.get(node.name) == (FIRST,)]
        goes_back = not world.is_newer_only and dice.random() < 0.15
        leaving = [node for node in chaos.awake() if node not in older] if goes_back else older
        if not leaving:
            continue
        world.starts_older = goes_back
        world.struck("node-replaced", f"{chaos.start_node().name} comes", 4.0)
        await trio.sleep(dice.choice((0.0, 0.5, 1.5)))
        world.starts_older = False
        node = dice.choice(leaving)
        if not node.ended and not node.drained:
            world.struck("node-drained", node.name, 4.0)
            world.nursery.start_soon(node.drain)


async def slow_commits(chaos: "Chaos") -> None:
    """Records are in flight for long, so that all else happens meanwhile."""
    world, dice = chaos.world, chaos.dice
    world.faults.slow_s = (0.05, 0.4)
    while world.working:
        world.faults.once(Fault.SLOW, map=Map.JOURNAL, times=2)
        await trio.sleep(dice.choice((0.05, 0.1, 0.2)))


async def weak_definitions(chaos: "Chaos") -> None:
    """The change of a job's definition reaches its primary alone, and its client dies as it hears of doubt. Events have
    told the owner; then the primary dies, and the definition is what it was before."""
    world, dice = chaos.world, chaos.dice
    while world.working:
        await trio.sleep(dice.uniform(0.3, 2.0))
        clients = chaos.busy_clients()
        if not clients or chaos.spare_member() is None:
            continue
        world.faults.weak_s = None
        at = await _weak_change(chaos, clients)
        if at is not None:
            await trio.sleep(dice.choice((0.05, 0.3, 0.8)))
            kill_primary(chaos, at)
            await trio.sleep(dice.uniform(1.0, 3.0))


async def _weak_change(chaos: "Chaos", clients: "list[ClientProcess]") -> int | None:
    """Let one of these die as it changes a definition; returns the partition, or None where nobody did."""
    doubted = trio.Event()
    changed: list[int] = []

    def doubt(client: "ClientProcess", partition: int) -> None:
        if not changed:
            changed.append(partition)
            chaos.world.struck("client-killed", f"{client.name}, whose definition is weak", 1.0)
            client.kill()
            doubted.set()

    for client in clients:
        client.grid.weakens = partial(doubt, client)
    with trio.move_on_after(3.0):
        await doubted.wait()
    for client in clients:
        client.grid.weakens = None
    return changed[0] if changed else None


async def doubtful_definitions(chaos: "Chaos") -> None:
    """Reads of definitions miss what is there, and see what was there a moment ago."""
    world, dice = chaos.world, chaos.dice
    while world.working:
        await trio.sleep(dice.uniform(0.1, 1.0))
        world.faults.once(dice.choice((Fault.ABSENT, Fault.STALE)), map=Map.JOBS, times=dice.choice((1, 2, 4)))


async def late_answers(chaos: "Chaos") -> None:
    """Answers take long, so that what was asked is asked again."""
    world, dice = chaos.world, chaos.dice
    while world.working:
        await trio.sleep(dice.uniform(0.2, 1.5))
        world.faults.once(Fault.SLOW, map=Map.REPLIES, times=dice.choice((1, 3)))


async def frozen_over_a_restore(chaos: "Chaos") -> None:
    """A node sleeps from before a snapshot is restored until it is over, in the middle of a write to its journal: it
    wakes up as the owner that it was."""
    world, dice = chaos.world, chaos.dice
    await world.restoring.wait()
    found = owned(chaos)
    if found is None:
        return
    partition, owner = found
    await trio.sleep(dice.uniform(0.0, 2.0))
    asleep = trio.Event()

    def strike() -> None:
        world.struck("node-frozen", f"{owner.name}, which owns partition {partition} of what is being replaced", 20.0)
        owner.freeze()
        asleep.set()

    def fits(call: Call) -> bool:
        return call.map in (Map.JOURNAL, Map.IMAGES, Map.HEADS) and call.partition == partition

    owner.grid.ambush = Ambush(fits, dice.random() < 0.5, strike)
    with trio.move_on_after(3.0):
        await asleep.wait()
    owner.grid.ambush = None
    if not owner.frozen:
        return
    if len(chaos.awake()) < 2:
        chaos.start_node()
    try:
        await trio.sleep(dice.uniform(7.0, 14.0))
    finally:
        owner.thaw()


async def frozen_as_jobs_end(chaos: "Chaos") -> None:
    """An owner sleeps as it is about to write that a job has ended, from before a snapshot is restored until it is
    over."""
    world, dice = chaos.world, chaos.dice
    asleep: NodeProcess | None = None

    def lie_in_wait(node: "NodeProcess") -> None:
        def strike() -> None:
            nonlocal asleep
            if asleep is None:
                asleep = node
                world.struck("node-frozen", f"{node.name}, as it writes that a job has ended", 20.0)
                node.freeze()

        node.grid.ambush = Ambush(lambda call: call.map is Map.JOBS and call.writes, False, strike)

    while asleep is None and not world.restoring.is_set():
        for node in chaos.awake():
            if node.grid.ambush is None:
                lie_in_wait(node)
        await trio.sleep(0.1)
    if len(chaos.awake()) < 2:
        chaos.start_node()
    try:
        await world.restoring.wait()
        await trio.sleep(dice.uniform(5.0, 12.0))
    finally:
        if asleep is not None:
            asleep.thaw()


async def late_writes(chaos: "Chaos") -> None:
    """What clients write lands long after they have given it up."""
    world, dice = chaos.world, chaos.dice
    await world.restoring.wait()
    world.faults.late_s_max = 20.0
    while world.working:
        world.faults.once(Fault.LATE_UNKNOWN, map=Map.INBOX, times=dice.choice((1, 3)))
        await trio.sleep(dice.uniform(0.1, 1.0))
