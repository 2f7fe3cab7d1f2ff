"""An exhaustive check of snapshots (docs/decisions/0012: Snapshots are cuts) on small cases.

python snapshot_model.py                   every interleaving of each case below: no violation
python snapshot_model.py --without RULE    one rule left out finds a violation; --rules: each in turn

Two partitions send to each other, and to themselves; a client sends to both, one message after the other. Lanes are
numbered; a slot is stored at some moment after its commit, and taken later, in order (lanes_model.py shows how). A
coordinator asks for cuts, waits, and writes the manifest; it may give up and begin anew, or die. An owner may lose
its partition at any moment, and with it all that was not committed or stored. Every commit is one step.
Violations: in the world that a manifest restores, a message that some partition has sent is missing, doubled, or
out of order, or one is there that nobody has sent; a message is missing that a client had been told is stored before
the snapshot began; a snapshot that was whole is so no longer; a dead end, from which no manifest can be written.
"""

import sys
from typing import NamedTuple

RULES = {
    "marked": "what a partition sends after its cut is marked with the snapshot's number",
    "first": "a partition commits its own cut before it takes a slot that is marked",
    "stragglers": "an unmarked slot that is taken after the cut is recorded",
    "unmarked": "a marked one is not",
    "until": "recording goes on until all is taken that the senders had numbered at their cuts",
    "known": "how far that is, is known only when all have cut",
    "clients": "what clients send is recorded, too",
    "scan": "it is recorded until a scan of the lanes, begun after the cut, has ended",
    "waiting": "what that scan found and nobody has taken yet is recorded as well",
    "gone": "a captured state goes with its tenure: the successor says so, and the attempt has failed",
    "ours": "an owner that has lost its partition, and goes on for a while, stores nothing: it looks when it has all",
    "number": "each attempt has a number of its own: cuts and marks of an earlier one are none of it",
    "last": "the manifest is written when all parts are there, and not before",
    "base": "what a manifest names is not deleted as long as it is one of those that are kept",
}
PARTITIONS = (0, 1)


class Bounds(NamedTuple):
    sends: int                # messages of each partition, alternately to the other and to itself
    client: int               # messages of the client, alternately to both
    losses: int               # tenures that end in mid-air
    attempts: int             # of the coordinator
    own: int = 0              # do partitions send to themselves, too?


CASES = [Bounds(*numbers) for numbers in ((2, 0, 0, 1, 1), (1, 1, 0, 1), (1, 0, 1, 2), (0, 2, 1, 2), (1, 1, 1, 1))]


class Part(NamedTuple):       # one partition's contribution
    number: int
    applied: tuple            # the messages that it had applied, in order
    sent: int                 # how many it had sent
    cursors: tuple            # how far it had taken each lane
    stragglers: tuple         # (lane, n), recorded since
    hears: bool               # is the scan still to end?
    scanning: bool
    stored: bool
    lost: bool = False        # did its owner lose the partition?


class Partition(NamedTuple):
    applied: tuple            # (lane, n)
    sent: tuple               # (to, mark) of each message
    cursors: tuple            # next slot of the lanes from partition 0, 1, and the client
    cut: int                  # committed
    part: Part | None         # in the owner's memory, or (stored) outside


class World(NamedTuple):
    partitions: tuple
    stored: frozenset         # (lane, to, n): slots that are in the grid, or were
    told: int                 # how many messages the client has been told of
    number: int               # the attempt that is under way; 0: none
    collecting: bool          # have all cut?
    promised: int             # what the client had been told when it began
    manifest: tuple           # parts; (): none
    base: frozenset           # attempts whose files are there
    losses: int
    attempts: int


LANE_OF_CLIENT = 2
EMPTY = Partition((), (), (0, 0, 0), 0, None)
START = World((EMPTY, EMPTY), frozenset(), 0, 0, False, 0, (), frozenset(), 0, 0)


class Violation(Exception):
    pass


def target(lane, n, b):
    """To whom the nth message of a sender goes."""
    if lane == LANE_OF_CLIENT:
        return n % 2
    return lane if b.own and n % 2 else 1 - lane


def numbered(lane, to, count, b):
    """How many of a sender's first messages go to this partition."""
    return sum(target(lane, n, b) == to for n in range(count))


def nth(lane, to, slot, b):
    """Which of a sender's messages stands in this slot of its lane to a partition."""
    return [n for n in range(slot * 2 + 2) if target(lane, n, b) == to][slot]


def steps(w, b, without):
    for p in PARTITIONS:
        yield from partition_steps(w, p, b, without)
    if w.told < b.client:
        n = w.told
        slot = (LANE_OF_CLIENT, n % 2, numbered(LANE_OF_CLIENT, n % 2, n, b))
        if slot not in w.stored:
            yield w._replace(stored=w.stored | {slot})                  # stored, and not told yet
        yield w._replace(stored=w.stored | {slot}, told=n + 1)
    yield from coordinator_steps(w, b, without)


def put(w, p, partition):
    return w._replace(partitions=tuple(partition if i == p else x for i, x in enumerate(w.partitions)))


def partition_steps(w, p, b, without):
    me = w.partitions[p]
    if len(me.sent) < b.sends:                                          # a turn sends
        mark = me.cut if "marked" not in without else 0
        yield put(w, p, me._replace(sent=(*me.sent, mark)))
    for n in range(len(me.sent)):                                       # what is committed goes out, sooner or later
        to = target(p, n, b)
        slot = (p, to, numbered(p, to, n, b))
        if slot not in w.stored:
            yield w._replace(stored=w.stored | {slot})
            break
    if w.number > me.cut:                                               # it is asked for its cut
        yield put(w, p, cut(w, me, w.number))
    for lane in (0, 1, LANE_OF_CLIENT):
        slot = (lane, p, me.cursors[lane])
        if slot in w.stored:
            yield from take(w, p, me, slot, b, without)
    if me.part is not None and not me.part.stored:
        yield from part_steps(w, p, me, b, without)
    if w.losses < b.losses:                                             # its owner is gone
        kept = me.part if me.part is not None and (me.part.stored or "gone" in without) else None
        if "gone" in without and me.part is not None and not me.part.stored:
            # The successor goes on with what it has: its own state.
            kept = me.part._replace(applied=me.applied, sent=len(me.sent), cursors=me.cursors)
        if "ours" in without and me.part is not None and not me.part.stored:
            # It hears of nothing that its successor takes; nor does its scan find that, once that is taken.
            kept = me.part._replace(lost=True)
        yield put(w, p, me._replace(part=kept))._replace(losses=w.losses + 1)


def cut(w, me, number):
    part = Part(number, me.applied, len(me.sent), me.cursors, (), True, False, False)
    return me._replace(cut=number, part=part)


def take(w, p, me, slot, b, without):
    lane, _, n = slot
    mark = 0 if lane == LANE_OF_CLIENT else w.partitions[lane].sent[nth(lane, p, n, b)]
    if mark > me.cut and "first" not in without:
        me = cut(w, me, mark)                                           # a record of its own, just before
    cursors = tuple(n + 1 if i == lane else x for i, x in enumerate(me.cursors))
    part = me.part
    if part is not None and not part.stored and not part.lost:
        if lane == LANE_OF_CLIENT:
            belongs = part.hears and "clients" not in without
        else:
            belongs = (mark < part.number or "unmarked" in without) and "stragglers" not in without
        if belongs:
            part = part._replace(stragglers=(*part.stragglers, (lane, n)))
    yield put(w, p, me._replace(applied=(*me.applied, (lane, n)), cursors=cursors, part=part))


def part_steps(w, p, me, b, without):
    part = me.part
    if part.hears and not part.scanning:
        yield put(w, p, me._replace(part=part._replace(scanning=True)))
    if part.hears and (part.scanning or "scan" in without):
        # An entry that is there from beginning to end is seen. Those of before are, whenever it ends.
        waits = tuple(
            (LANE_OF_CLIENT, n)
            for lane, to, n in sorted(w.stored)
            if lane == LANE_OF_CLIENT and to == p and n >= me.cursors[LANE_OF_CLIENT]
        )
        found = waits if "waiting" not in without and "clients" not in without and "scan" not in without else ()
        ended = part._replace(hears=False, scanning=False, stragglers=(*part.stragglers, *found))
        yield put(w, p, me._replace(part=ended))
    known = w.collecting or "known" in without
    if not part.hears and part.number == w.number and known and is_complete(w, p, b, without):
        yield put(w, p, me._replace(part=part._replace(stored=True)))._replace(base=w.base | {part.number})


def is_complete(w, p, b, without):
    """Is all taken that the others had numbered at their cuts?"""
    if "until" in without:
        return True
    for q in PARTITIONS:
        other = w.partitions[q]
        sent = other.part.sent if other.part is not None and other.part.number == w.number else 0
        me = w.partitions[p]
        taken = me.cursors[q]
        if me.part.lost:
            taken = sum(lane == q for lane, _ in (*me.part.applied, *me.part.stragglers))
        if taken < numbered(q, p, sent, b):
            return False
    return True


def coordinator_steps(w, b, without):
    parts = [x.part for x in w.partitions]
    if w.attempts < b.attempts:                                         # it begins, or gives up and begins anew
        number = w.number + 1 if "number" not in without or not w.number else w.number
        yield w._replace(number=number, attempts=w.attempts + 1, collecting=False, promised=w.told)
    if w.number and not w.collecting and all(x.cut >= w.number for x in w.partitions):
        yield w._replace(collecting=True)
    there = [part for part in parts if part is not None and part.number == w.number and part.stored]
    if w.number and (len(there) == 2 or "last" in without and there) and not w.manifest:
        if len(there) < 2:
            raise Violation("a manifest names a part that is not there")
        judge(w, parts, b)
        yield w._replace(manifest=(w.number,))
    if w.manifest and "base" in without:                                # so many are kept, and this is not of them
        yield w._replace(base=w.base - {w.manifest[0]})
    if w.manifest and w.manifest[0] not in w.base:
        raise Violation("a snapshot that was whole has lost its files")


def judge(w, parts, b):
    """The world that is restored of these parts."""
    promised = {lane: part.sent for lane, part in enumerate(parts)}
    for p, part in enumerate(parts):
        whole = [*part.applied, *part.stragglers]
        for lane in PARTITIONS:
            got = [n for x, n in whole if x == lane]
            sent = numbered(lane, p, promised[lane], b)
            if got != list(range(sent)):
                raise Violation(f"partition {p} is restored with {got} of partition {lane}, which had sent {sent}")
        got = [n for x, n in whole if x == LANE_OF_CLIENT]
        if got != list(range(len(got))) or len(got) < numbered(LANE_OF_CLIENT, p, w.promised, b):
            raise Violation(f"partition {p} is restored with {got} of the client, who was told of {w.promised} before")


def check(b, without):
    worlds, numbers, before = [START], {START: 0}, [[]]
    for number, world in enumerate(worlds):             # the list grows as we go
        for following in steps(world, b, without):
            found = numbers.setdefault(following, len(worlds))
            if found == len(worlds):
                worlds.append(following)
                before.append([])
            before[found].append(number)
    alive = [number for number, world in enumerate(worlds) if world.manifest]
    reached = set(alive)
    for number in alive:                                # backwards: from where can a manifest be written?
        alive += (new := set(before[number]) - reached)
        reached |= new
    # A lost part ends an attempt: only who has none left may be stuck.
    stuck = [w for n, w in enumerate(worlds) if n not in reached and (w.attempts < b.attempts or not w.losses)]
    if stuck:
        raise Violation(f"dead end: {stuck[0]}")
    return len(worlds)


def verdict(without):
    try:
        return f"no violation in {sum(check(bounds, without) for bounds in CASES)} states"
    except Violation as violation:
        return f"violation: {violation}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--rules"]:
        for rule, text in RULES.items():
            print(f"without {rule} ({text}):\n    {verdict({rule})}", flush=True)
    else:
        left_out = set(sys.argv[2:]) if sys.argv[1:2] == ["--without"] else set()
        assert left_out <= RULES.keys(), f"the rules are: {', '.join(RULES)}"
        print(answer := verdict(left_out))
        sys.exit(answer.startswith("violation"))
