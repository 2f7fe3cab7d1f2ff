"""Is it true, when `tenure.scheduler.quiet` says that an application is quiet?

A few partitions, each with one job of the application; messages between them, and by a topic. An observer asks all
partitions in any order, round after round, while everything else goes on. Every interleaving is looked at. Whenever the
decision (the very code that decides in earnest) says quiet, the world must have been so between the first and the
second of its rounds: no job with something to do, no message of theirs on its way.

A turn takes a message of `n` and sends one of `n - 1`: to the next partition, or to the topic's, which passes it on in
the record in which it takes it. What is on its way arrives at any time, in order for each pair of partitions.

Run it alone:  python tests/models/quiet_model.py
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tenure.scheduler import quiet
from tenure.scheduler.quiet import ROUNDS, Round, Sighting

__all__ = ["CASES", "LEFT_OUT", "SLOW_CASES", "Case", "Wrong", "check"]


class Wrong(AssertionError):
    """It was called quiet, and was not."""


class Case(NamedTuple):
    """What there is."""

    partitions: int
    hops: int
    """Of the one message that there is at first, in the first partition's job's queue."""
    topic: int = -1
    """The topic's partition; -1: nothing is published."""
    timers: int = 0
    """So often may a new message come from elsewhere, as from a timer, to the last partition's job."""
    rounds: int = 4


class World(NamedTuple):
    """All that there is at one moment. Tuples, so that it can be looked up."""

    queues: tuple[tuple[int, ...], ...]
    """partition -> messages that wait for its job: hops that are left"""
    turns: tuple[int, ...]
    wires: tuple[tuple[tuple[int, bool], ...], ...]
    """from * partitions + to -> what is on its way: (hops left, to the topic?)"""
    sent: tuple[int, ...]
    taken: tuple[int, ...]
    """The same index, counted."""
    timers: int
    rounds: tuple[tuple[Sighting | None, ...], ...] = ()
    """What the observer has seen: whole rounds, and the one that it is at."""
    quiet_between: tuple[bool, ...] = ()
    """Was the world quiet when this round was over, and the next had not begun?"""

    def is_quiet(self) -> bool:
        return not any(self.queues) and not any(self.wires)


def start(case: Case) -> World:
    count = case.partitions
    queues = ((case.hops,), *((),) * (count - 1))
    return World(queues, (0,) * count, ((),) * count**2, (0,) * count**2, (0,) * count**2, case.timers)


def put(things: tuple[Any, ...], at: int, thing: object) -> tuple[Any, ...]:
    return (*things[:at], thing, *things[at + 1 :])


def send(world: World, case: Case, source: int, to: int, message: tuple[int, bool]) -> World:
    wire = source * case.partitions + to
    return world._replace(
        wires=put(world.wires, wire, (*world.wires[wire], message)),
        sent=put(world.sent, wire, world.sent[wire] + 1),
    )


def run_turn(world: World, case: Case, partition: int) -> World:
    hops, *rest = world.queues[partition]
    world = world._replace(
        queues=put(world.queues, partition, tuple(rest)),
        turns=put(world.turns, partition, world.turns[partition] + 1),
    )
    if hops == 0:
        return world
    if case.topic >= 0 and hops % 2 == 0:
        return send(world, case, partition, case.topic, (hops - 1, True))
    return send(world, case, partition, (partition + 1) % case.partitions, (hops - 1, False))


def take(world: World, case: Case, wire: int) -> World:
    """The next on this wire is taken by its partition; what is for a topic goes on at once."""
    (hops, is_topic), *rest = world.wires[wire]
    to = wire % case.partitions
    world = world._replace(
        wires=put(world.wires, wire, tuple(rest)), taken=put(world.taken, wire, world.taken[wire] + 1)
    )
    if is_topic:
        return send(world, case, to, (to + 1) % case.partitions, (hops, False))
    return world._replace(queues=put(world.queues, to, (*world.queues[to], hops)))


def see(world: World, case: Case, partition: int) -> Sighting:
    count = case.partitions
    return Sighting(
        partition=partition,
        epoch=1,
        node="n",
        swept=True,
        print=bytes((world.turns[partition],)),
        jobs=1,
        turns=world.turns[partition],
        busy={"messages that wait": len(world.queues[partition])} if world.queues[partition] else {},
        sent={to: n for to in range(count) if (n := world.sent[partition * count + to])},
        taken={source: n for source in range(count) if (n := world.taken[source * count + partition])},
    )


def ask(world: World, case: Case, partition: int) -> World:
    """The observer hears of one more; with the last of them a round is over, and decided."""
    rounds = world.rounds
    if not rounds or None not in rounds[-1]:
        rounds = (*rounds, (None,) * case.partitions)
    rounds = put(rounds, len(rounds) - 1, put(rounds[-1], partition, see(world, case, partition)))
    world = world._replace(rounds=rounds)
    if None not in rounds[-1]:
        # Nothing of the next round is seen before this moment, so it lies between the two.
        world = world._replace(quiet_between=(*world.quiet_between, world.is_quiet()))
    return world


def steps(world: World, case: Case) -> Iterator[World]:
    for partition, queue in enumerate(world.queues):
        if queue:
            yield run_turn(world, case, partition)
    for wire, on_it in enumerate(world.wires):
        if on_it:
            yield take(world, case, wire)
    if world.timers:
        last = case.partitions - 1
        yield world._replace(timers=world.timers - 1, queues=put(world.queues, last, (*world.queues[last], case.hops)))
    current = world.rounds[-1] if world.rounds else ()
    if None in current:
        asked = [partition for partition, seen in enumerate(current) if seen is None]
    elif len(world.rounds) < case.rounds:
        asked = list(range(case.partitions))
    else:
        asked = []
    for partition in asked:
        yield ask(world, case, partition)


Decision = Callable[[list[Round]], bool]


def judge(world: World, decide: Decision, rounds: int) -> None:
    """If it is called quiet now, it was so after the first of the rounds that this was decided by."""
    if len(world.rounds) < rounds or None in world.rounds[-1]:
        return
    if decide(list(world.rounds)) and not world.quiet_between[len(world.rounds) - rounds]:
        raise Wrong(f"called quiet after {len(world.rounds)} rounds, while it was not:\n{world}")


def check(case: Case, decide: Decision = quiet.is_quiet, rounds: int = ROUNDS) -> tuple[int, int]:
    """Look at every state that can come about; returns how many there are, and in how many it was called quiet."""
    first = start(case)
    seen, waiting, decided = {key(first)}, [first], 0
    while waiting:
        world = waiting.pop()
        judge(world, decide, rounds)
        if world.rounds and None not in world.rounds[-1] and decide(list(world.rounds)):
            decided += 1
            continue
        for after in steps(world, case):
            if (known := key(after)) not in seen:
                seen.add(known)
                waiting.append(after)
    return len(seen), decided


def key(world: World) -> object:
    """Two worlds that go on alike: of what was seen, only what can still matter."""
    told = tuple(
        tuple(
            None if seen is None else (bool(seen.busy), seen.print, tuple(seen.sent.items()), tuple(seen.taken.items()))
            for seen in round
        )
        for round in world.rounds[-ROUNDS:]
    )
    return (*world[:6], told, world.quiet_between[-ROUNDS:], len(world.rounds))


# -- what can't be left out -----------------------------------------------------------------------


def without_counts(rounds: list[Round]) -> bool:
    """Nothing to do and no turn since: but what is on its way?"""
    last = rounds[-ROUNDS:]
    return (
        len(last) == ROUNDS
        and not any(seen.busy for round in last for seen in round)
        and all(quiet.same(before, after) for before, after in pairwise(last))
    )


def without_prints(rounds: list[Round]) -> bool:
    """Nothing to do and nothing on its way: but what came and was done in between?"""
    last = rounds[-ROUNDS:]
    return (
        len(last) == ROUNDS
        and not any(seen.busy for round in last for seen in round)
        and all(quiet.took_all(before, after) for before, after in pairwise(last))
    )


def in_two_rounds(rounds: list[Round]) -> bool:
    """As it is, without the third round."""
    last = rounds[-2:]
    return (
        len(last) == 2
        and not any(seen.busy for round in last for seen in round)
        and quiet.same(*last)
        and quiet.took_all(*last)
    )


def in_one_sum(rounds: list[Round]) -> bool:
    """All that was sent, in one round, against all that was taken in the same: seen at different moments."""
    last = rounds[-1]
    sent = sum(sum(seen.sent.values()) for seen in last)
    return not any(seen.busy for seen in last) and sent == sum(sum(seen.taken.values()) for seen in last)


CASES = {  # case -> how many states there are
    Case(2, 3): 5_073,
    Case(2, 1, timers=1, rounds=3): 11_949,
    Case(3, 3, rounds=3): 9_053,
    Case(3, 2, topic=1, rounds=3): 5_172,
}
SLOW_CASES = {
    Case(2, 4, topic=1): 30_034,
    Case(2, 2, timers=1): 205_382,
}
LEFT_OUT = {  # what is left out -> the decision without it, its rounds, and a case that shows why not
    "counts": (without_counts, ROUNDS, Case(2, 1, rounds=3)),
    "prints": (without_prints, ROUNDS, Case(2, 0, timers=1, rounds=3)),
    "the third round": (in_two_rounds, 2, Case(2, 2, topic=1, rounds=2)),
    "rounds": (in_one_sum, 1, Case(2, 1, timers=1, rounds=1)),
}

if __name__ == "__main__":
    for some in CASES | SLOW_CASES:
        print(some, *check(some))
    for name, (decide, rounds, some) in LEFT_OUT.items():
        try:
            print(name, "can be left out?", check(some, decide, rounds))
        except Wrong:
            print(name, "needed")
