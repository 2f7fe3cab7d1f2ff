"""One seed, one run: build a cluster, work, break things, heal, wait for quiet, judge."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import trio
from trio.testing import MockClock

from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.jobtype import Registry
from tenure.simulation.chaos import Chaos
from tenure.simulation.determinism import deterministic
from tenure.simulation.formats import newer_format
from tenure.simulation.histories import Findings
from tenure.simulation.operations import Operations
from tenure.simulation.plan import Calls, draw, fitted, small
from tenure.simulation.processes import form, run_client
from tenure.simulation.stage import World
from tenure.simulation.threads import virtual_threads
from tenure.simulation.trace import Trace
from tenure.simulation.workloads import BULK, NOT_YET, OTHERS, SAVING, SPECIAL, Workload

__all__ = ["Outcome", "run_seed"]

READS_MAX = 500_000
"""Reading the clock so often while it stands still is being busy for ever."""
WORKLOADS_MAX = 3
SAVING_SHARE = 0.12
SPECIAL_SHARE = 0.25
TOLD_BEFORE = (Fault.CONNECTION_KILLED, Fault.CONNECTION_FROZEN)
"""What the grid sees of a process that was killed or frozen, which was counted then."""
REGISTRY = Registry(*(type for workload in (*BULK, *OTHERS, *SAVING, *SPECIAL, *NOT_YET) for type in workload.types))
"""The application of every simulated node."""


@dataclass
class Outcome:
    """What came of one seed."""

    seed: int
    operations: Operations
    trace: Trace
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    workloads: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    core_s: float = 0.0
    """Of one core's time: a simulation waits for nothing."""


class _Clock:
    """Virtual time, read at less cost than `MockClock` does it; and a run in which it stands still is ended."""

    def __init__(self) -> None:
        self.clock = MockClock(autojump_threshold=0)
        self.world: World | None = None
        self._at_s = -1.0
        self._reads = 0
        self.clock.current_time = self.current_time  # type: ignore[method-assign]

    def current_time(self) -> float:
        now_s: float = self.clock._virtual_base
        if now_s != self._at_s:
            self._at_s, self._reads = now_s, 0
        self._reads += 1
        if self._reads == READS_MAX and self.world is not None:
            self.world.nursery.start_soon(self._stands_still, self.world)
        return now_s

    async def _stands_still(self, world: World) -> None:
        world.violate(f"busy for ever: time stands still at {trio.current_time():.3f} s")


def run_seed(seed: int, *, detailed: bool = False, workloads: Sequence[type[Workload]] = ()) -> Outcome:
    """Run it. The same seed gives the same outcome and the same trace, whatever else this process has done."""
    outcome = Outcome(seed, Operations(), Trace(detailed=detailed))
    begun_s = time.process_time()
    with deterministic(seed), virtual_threads(seed), newer_format():
        clock = _Clock()
        trio.run(_run, outcome, workloads, clock, clock=clock.clock)
    outcome.core_s = time.process_time() - begun_s
    return outcome


async def _run(outcome: Outcome, workloads: Sequence[type[Workload]], clock: _Clock) -> None:
    dice = Random(f"{outcome.seed} plan")
    async with trio.open_nursery() as nursery:
        plan = draw(dice)
        chosen = tuple(workloads) or _choose(outcome.seed, dice)
        wishes = small(Random(f"{outcome.seed} limits")) | _wishes(chosen)
        plan = fitted(plan, wishes, _calls(chosen), Random(f"{outcome.seed} calls"))
        world = clock.world = World(outcome.seed, plan, REGISTRY, nursery, outcome.trace)
        works = [workload(world) for workload in chosen]
        outcome.operations, outcome.violations = world.operations, world.violations
        outcome.workloads = [type(work).__name__ for work in works]
        outcome.trace.tell("plan", f"{plan.nodes} nodes, {plan.members} members, {plan.partitions} partitions")
        try:
            await _whole(world, works)
        finally:
            counts = {fault.value: count for fault, count in world.faults.counts.items() if fault not in TOLD_BEFORE}
            outcome.faults = Counter(counts) + world.strikes
            outcome.virtual_s = trio.current_time()
        nursery.cancel_scope.cancel()


def _choose(seed: int, dice: Random) -> tuple[type[Workload], ...]:
    """Bulk and others; in some seeds a special one instead of the bulk, which brings a world of its own."""
    special = Random(f"{seed} special")
    if special.random() < SPECIAL_SHARE:
        chosen = special.choice(SPECIAL)
        return (chosen,) if chosen.alone else (chosen, special.choice(OTHERS))
    chosen_ones = (dice.choice(BULK), *dice.sample(OTHERS, dice.randint(1, WORKLOADS_MAX - 1)))
    return (*chosen_ones, *_choose_saving(seed))


def _choose_saving(seed: int) -> tuple[type[Workload], ...]:
    dice = Random(f"{seed} saving")
    return (dice.choice(SAVING),) if dice.random() < SAVING_SHARE else ()


def _wishes(chosen: tuple[type[Workload], ...]) -> dict[str, Any]:
    return {name: value for workload in chosen for name, value in workload.settings.items()}


def _calls(chosen: tuple[type[Workload], ...]) -> Calls | None:
    return next((workload.calls for workload in chosen if workload.calls is not None), None)


async def _whole(world: World, works: list[Workload]) -> None:
    await form(world)
    chaos = Chaos(world)
    for _ in range(world.plan.nodes):
        chaos.start_node()
    await run_client(world, lambda client: _prepare(world, client, works))
    world.trace.tell("run", "prepared")
    async with trio.open_nursery() as drives:
        for work in works:
            for drive in work.drives():
                drives.start_soon(partial(run_client, world, drive, register=chaos.clients.append))
        await chaos.run([strike for work in works for strike in work.strikes])
        world.working = False
        await chaos.heal()
        drives.cancel_scope.deadline = trio.current_time() + world.drives_end_s_max
    if drives.cancel_scope.cancelled_caught:
        world.violate(f"a client's calls did not come to an end within {world.drives_end_s_max} s after all was healed")
    since = "after the last fault had healed"
    if world.random.random() < 0.5:
        await run_client(world, lambda client: _await_quiet(world, client, works, since))
        since = "after all nodes were replaced"
        chaos.replace_all()
    # What is done twice may come late.
    await trio.sleep(world.faults.late_s_max)
    await run_client(world, lambda client: _await_quiet(world, client, works, since))


async def _prepare(world: World, client: GridClient, works: list[Workload]) -> None:
    for work in works:
        await work.prepare(client)


async def _await_quiet(world: World, client: GridClient, works: list[Workload], since: str) -> None:
    """Nothing may be wrong, and nothing may be left waiting for long."""
    deadline_s = trio.current_time() + world.plan.quiet_s_max
    pause_s = 0.2
    while True:
        # First of all, as our own questions are slots too.
        found = Findings(waiting=[] if world.has_ended() else _unread(world))
        for work in works:
            found.add(await work.examine(client))
        found.add(world.journal.findings())
        if found.wrong:
            world.violate("; ".join(found.wrong[:10]))
        if not found.waiting:
            break
        if trio.current_time() >= deadline_s:
            world.violate(f"not quiet {world.plan.quiet_s_max} s {since}: {'; '.join(found.waiting[:10])}")
        await trio.sleep(pause_s)
        pause_s = min(4.0, pause_s * 2)
    world.trace.tell("run", f"quiet {since}")


def _unread(world: World) -> list[str]:
    left = {p: len(slots) for p in range(world.plan.partitions) if (slots := world.cluster.inbox(p))}
    return [f"slots that nobody reads or clears (by partition): {left}"] if left else []
