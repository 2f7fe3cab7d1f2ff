"""An exhaustive check of definitions (docs/decisions/0025; `scheduler/definitions.py`, `defining.py`, `tombstones.py`)
on small cases.

python definitions_model.py                   every interleaving of each case below: no violation
python definitions_model.py --without RULE    one rule left out finds a violation; --rules: each in turn

Clients, one after the other, make one job what they want by compare-and-set, and two nodes compete for its partition.
A client may die at any moment; a node may stop between any two steps and go on much later, as a zombie. A write
answered 'unknown' was applied by the primary alone (and is lost if that dies), or lands at any later moment, or never.
What is seen, by reads and events, may be any value that there ever was, or nothing. A commit is atomic and fenced
(journal_model.py). Jobs end by themselves, too. Violations: a generation that starts twice; a schedule that makes two
jobs; a change that is confirmed and is not so; a message called undeliverable though its job was made; a dead end,
from which 'the job is as its definition says' is cut off.
"""

import sys
from typing import NamedTuple

RULES = {
    "proved": "an owner pauses, resumes and removes only by a definition that it has proved to be current",
    "current": "and makes a job of such a one only",
    "wanted": "what is wanted is compared, not only revisions: older versions acted on what they had seen",
    "absence": "absence is proved (put_if_absent): a read proves nothing",
    "committed": "a job's wish to end is committed before its definition says so",
    "gone": "a tombstone is forgotten when the journal has no such job",
    "journaled": "and when the journal has its generation as given",
    "conditional": "and only as it was seen (remove_if_same)",
    "given": "who makes a job gives it a generation above those that the journal has as given",
    "after": "the journal is looked at after the definition was read, not before",
    "replaced": "clients put definitions in the place of tombstones, never where there is nothing",
    "births": "no two definitions have the same bytes",
    "mine": "a client that does not know whether its job was made looks at the birth of the tombstone",
    "patience": "and does not try again when tombstones may have been forgotten since it began",
}


class Bounds(NamedTuple):
    wishes: tuple             # of the clients, one after the other: + scheduled, - removed, p(aused), r(unning)
    surprises: int            # unknown outcomes and false absences
    deaths: int               # of the primary
    openings: int
    ages: int                 # how often may a tombstone's retention pass?
    ends: int                 # how often may the job end by itself?
    message: int = 0          # is there one, when the first wish is granted?
    older: int = 0            # how often may an owner of an older version act on what it has seen?


CASES = [Bounds(*numbers) for numbers in (
    (("+", "-"), 2, 1, 1, 0, 0), (("+", "p", "r"), 1, 1, 1, 0, 0), (("+", "p", "r"), 1, 1, 2, 0, 0, 0, 1),
    (("+", "-"), 1, 0, 2, 0, 0, 1), (("+",), 1, 0, 2, 1, 1), (("+", "+"), 1, 0, 1, 1, 1), (("+", "+"), 0, 0, 2, 1, 1),
    (("+", "-", "+"), 0, 0, 2, 1, 0), (("+", "+", "+"), 0, 0, 1, 2, 2))]
ATTEMPTS = 3                  # of a client at one wish


class Definition(NamedTuple):
    wanted: str               # + running, p(aused), - removed
    generation: int           # 0: of a job that never was
    revision: int
    birth: tuple              # (who, how many before); of a definition: (its wish, …)
    aged: bool = False        # of a tombstone: has its retention passed?


class Client(NamedTuple):     # the one whose turn it is
    tries: int = 0
    there: Definition | None = None
    mine: tuple = ()          # births of what it may have made
    late: bool = False        # has a retention passed since it began?
    revision: int = 0         # it waits until its owner says that this is reached
    dead: bool = False


class Record(NamedTuple):
    generation: int
    revision: int
    status: str


class Journal(NamedTuple):
    record: Record | None
    given: int
    started: tuple            # generations
    made: tuple               # births


class Node(NamedTuple):
    epoch: int
    journal: Journal          # as far as it knows
    proved: Definition | None
    forgets: Definition | None


class World(NamedTuple):
    primary: Definition | None
    backup: Definition | None
    ever: frozenset           # what there ever was
    flying: frozenset         # (old, new): may still land
    client: Client
    told: str                 # a(cknowledged) or u(nknown), for each wish
    journal: Journal
    nodes: tuple
    epoch: int
    births: int
    message: str              # w(aiting), b(uried), d(one)
    used: tuple               # surprises, deaths, ages, ends, older


EMPTY = Journal(None, 0, (), ())
START = World(None, None, frozenset(), frozenset(), Client(), "", EMPTY, (Node(0, EMPTY, None, None),) * 2, 0, 0, "",
              (0, 0, 0, 0, 0))


class Violation(Exception):
    pass


def used(w, n):
    return w._replace(used=tuple(u + (i == n) for i, u in enumerate(w.used)))


def put(w, value, weak=False):
    ever = w.ever | {value} if value is not None else w.ever
    return w._replace(primary=value, backup=w.backup if weak else value, ever=ever)


def same(a, b, without):
    if a is None or b is None:
        return a is b
    if "births" in without:
        a, b = a._replace(birth=()), b._replace(birth=())
    return a._replace(aged=False) == b._replace(aged=False)


def replaced(w, b, old, new, without):
    """(the world after the write, its answer): a conditional write with all that may become of it."""
    applies = same(w.primary, old, without)
    yield (put(w, new), True) if applies else (w, False)
    if w.used[0] < b.surprises:
        s = used(w, 0)
        if applies:
            yield put(s, new, weak=True), None
        if old != new:
            yield s._replace(flying=s.flying | {(old, new)}), None


def steps(w, b, without):
    for old, new in w.flying:                           # it arrives late, or never
        rest = w._replace(flying=w.flying - {(old, new)})
        yield rest
        if same(w.primary, old, without):
            yield put(rest, new)
    if w.used[1] < b.deaths and w.backup != w.primary:  # the primary dies
        yield used(w._replace(primary=w.backup), 1)
    if w.backup != w.primary:                           # or its backup has it at last
        yield w._replace(backup=w.primary)
    if w.used[2] < b.ages:
        aged = [v and v._replace(aged=v.wanted == "-") for v in (w.primary, w.backup)]
        yield used(w._replace(primary=aged[0], backup=aged[1], client=w.client._replace(late=True)), 2)
    if len(w.told) < len(b.wishes):
        yield from client_steps(w, b, without)
    for i in (0, 1):
        yield from node_steps(w, i, b, without)


# -- clients ------------------------------------------------------------------------------------------

def client_steps(w, b, without):
    c, wish = w.client, b.wishes[len(w.told)]
    def end(world, told):
        message = "w" if b.message and not w.told and told == "a" else world.message
        return world._replace(client=Client(), told=w.told + told, message=message)
    if c.tries or c.revision:
        yield end(w, "u")                               # it dies, or its deadline passes; another one has the next wish
    if c.revision:
        return                                          # its owner confirms: see below
    if c.there is None and c.tries < ATTEMPTS:
        there = w.primary
        if there is None:
            there, w = Definition("-", 0, 0, ("t", w.births)), w._replace(births=w.births + 1)
            if "replaced" not in without or wish != "+":
                w = put(w, there)
        yield w._replace(client=c._replace(there=there, tries=c.tries + 1))
    elif c.there is not None:
        yield from change(w, b, without, wish, end)


def change(w, b, without, wish, end):
    c, there = w.client, w.client.there
    again = c._replace(there=None)
    if wish == "+" and there.wanted == "-":
        if there.generation and there.birth in c.mine and "mine" not in without:
            yield end(w, "a")                           # it was made, and is gone
            return
        if c.mine and c.late and "patience" not in without:
            yield end(w, "u")
            return
        birth = (len(w.told), c.tries)
        new, old = Definition("+", there.generation + 1, there.revision + 1, birth), there
        if "replaced" in without and not there.generation:
            old = None
    elif wish == "+":
        birth, new, old = None, there, there
    elif there.wanted == "-":
        yield end(w, "u")                               # there is no job
        return
    elif wish == "-" and (w.journal.record is None or w.journal.record.generation < there.generation):
        return                                          # not before its owner has made it
    else:
        wanted = {"r": "+"}.get(wish, wish)
        birth, new, old = None, there._replace(wanted=wanted, revision=there.revision + 1), there
    for after, done in replaced(w, b, old, new, without):
        if done is None:
            yield after._replace(client=again._replace(mine=c.mine + ((birth,) if birth else ())))
        elif not done:
            yield after._replace(client=again)
        elif wish == "+" and (not there.generation or there.wanted != "-"):
            yield end(after, "a")
        else:
            yield after._replace(client=again._replace(revision=new.revision))


# -- owners -------------------------------------------------------------------------------------------

def differs(record, definition, without):
    if definition.generation != record.generation:
        return definition.generation > record.generation
    return definition.revision > record.revision or ("wanted" not in without and definition.wanted != record.status)


def node_steps(w, i, b, without):
    node = w.nodes[i]
    def to(changed, world=w):
        return world._replace(nodes=tuple(changed if i == j else n for j, n in enumerate(world.nodes)))
    if w.epoch < b.openings:
        yield to(Node(w.epoch + 1, w.journal, None, None), w._replace(epoch=w.epoch + 1))
    if not node.epoch:
        return
    known, current = node.journal, node.epoch == w.epoch
    def commit(journal, world=w, **changes):
        return to(node._replace(journal=journal, proved=None, **changes), world._replace(journal=journal))
    if node.proved is None and w.primary is not None:
        yield from proofs(w, node, to, b, without)
    elif node.proved is not None and current:
        yield commit(acted(w, known, node.proved, without))
    if current:
        yield from believed(w, node, commit, b, without)
        yield from messages(w, node, to, b, without)
        if known.record and known.record.status == "+" and w.used[3] < b.ends:
            yield from finishes(w, known.record.generation, b, without)
        if node.proved and known.record is None and w.used[3] < b.ends and "committed" in without:
            yield from finishes(w, node.proved.generation, b, without)
        yield from confirmed(w, known, b, without)
    yield from forgetting(w, node, to, current, b, without)


def proofs(w, node, to, b, without):
    """What is current is proved, and given its generation in the same write."""
    known, there = node.journal, w.primary
    new = there
    if known.record is None and there.wanted != "-":
        given = known.given if "after" not in without else 0
        if there.generation <= given and "given" not in without:
            new = there._replace(generation=given + 1, revision=there.revision + 1)
    elif known.record is None or not differs(known.record, there, without):
        return
    for after, done in replaced(w, b, there, new, without):
        yield to(node._replace(proved=new), after) if done else after


def acted(w, known, definition, without):
    record = known.record
    if record is None:
        if definition.wanted == "-":
            return known
        if definition.generation in known.started:
            raise Violation(f"generation {definition.generation} starts again")
        if any(birth[0] == definition.birth[0] for birth in known.made):
            raise Violation(f"one schedule has made two jobs: {definition.birth}")
        return known._replace(
            record=Record(definition.generation, definition.revision, definition.wanted),
            started=(*known.started, definition.generation), made=(*known.made, definition.birth))
    if not differs(record, definition, without):
        return known
    if definition.generation > record.generation or definition.wanted == "-":
        return known._replace(record=None)
    return known._replace(record=record._replace(revision=definition.revision, status=definition.wanted))


def believed(w, node, commit, b, without):
    """What an owner does about what it has merely seen."""
    known = node.journal
    for seen in w.ever:
        if known.record is None and seen.wanted != "-" and "current" in without:
            yield commit(acted(w, known, seen, without))
        if known.record is not None and differs(known.record, seen, without):
            if "proved" in without:
                yield commit(acted(w, known, seen, without))
            elif w.used[4] < b.older and seen.wanted != "-":
                yield commit(acted(w, known, seen, {*without, "wanted"}), used(w, 4))


def messages(w, node, to, b, without):
    known = node.journal
    if w.message != "w":
        return
    if known.record is not None:
        yield w._replace(message="d")
    elif w.primary is None or (w.primary.wanted == "-" and node.proved is None):
        yield w._replace(message="b")                   # proved: by put_if_absent, or by the tombstone
    elif "absence" in without and w.used[0] < b.surprises:
        if w.primary.wanted == "+":
            raise Violation("a message was called undeliverable, and its job is there")
        yield used(w._replace(message="b"), 0)


def finishes(w, generation, b, without):
    """It asks for its own end: first its definition says so."""
    there = w.primary
    if there is None or there.generation != generation or there.wanted == "-":
        return
    new = there._replace(wanted="-", revision=there.revision + 1)
    for after, _ in replaced(w, b, there, new, without):
        yield used(after, 3)


def confirmed(w, known, b, without):
    c = w.client
    if not c.revision:
        return
    record, there = known.record, w.primary
    wish = b.wishes[len(w.told)]
    is_behind = there is not None and ((there.wanted != "-") if record is None else differs(record, there, without))
    if is_behind and "proved" not in without:           # what is there is proved since it was asked
        return
    if record is not None and (record.revision < c.revision or (wish == "-" and record.revision == c.revision)):
        return
    if record is not None and there is not None and there.revision == c.revision and record.status != there.wanted:
        raise Violation(f"it is confirmed that the job is {there.wanted}, and it is {record.status}")
    message = "w" if b.message and not w.told else w.message
    yield w._replace(client=Client(), told=w.told + "a", message=message)


def forgetting(w, node, to, current, b, without):
    known, there = node.journal, w.primary
    if node.forgets is None:
        is_gone = known.record is None or "gone" in without
        if there is not None and there.wanted == "-" and there.aged and is_gone and (current or node.epoch):
            if there.generation <= known.given or "journaled" in without:
                yield to(node._replace(forgets=there))
            elif current:
                journal = known._replace(given=there.generation)
                yield to(node._replace(forgets=there, journal=journal), w._replace(journal=journal))
        return
    done = to(node._replace(forgets=None))
    if "conditional" in without:
        yield put(done, None)
    elif same(w.primary, node.forgets, without):
        yield put(done, None)
        if w.used[0] < b.surprises:
            yield put(used(done, 0), None, weak=True)
    else:
        yield done


# -- all of it ----------------------------------------------------------------------------------------

def is_good(w, b):
    """All wishes are over, and the job is as its definition says."""
    record, there = w.journal.record, w.primary
    if len(w.told) < len(b.wishes) or w.flying or w.backup != w.primary or w.message == "w":
        return False
    if there is None or there.wanted == "-":
        agrees = record is None
    else:
        agrees = record is not None and (record.generation, record.status) == (there.generation, there.wanted)
    acknowledged = {n for n, told in enumerate(w.told) if told == "a" and b.wishes[n] == "+"}
    return agrees and (not acknowledged or bool(w.journal.made))


def check(b, without):
    worlds, numbers, before = [START], {START: 0}, [[]]
    for number, world in enumerate(worlds):             # the list grows as we go
        for following in steps(world, b, without):
            found = numbers.setdefault(following, len(worlds))
            if found == len(worlds):
                worlds.append(following)
                before.append([])
            before[found].append(number)
    alive = [number for number, world in enumerate(worlds) if is_good(world, b)]
    reached = set(alive)
    for number in alive:                                # backwards: from where can a good end be reached?
        alive += (new := set(before[number]) - reached)
        reached |= new
    if len(reached) < len(worlds):
        raise Violation(f"dead end: {next(w for n, w in enumerate(worlds) if n not in reached)}")
    return len(worlds)


def verdict(without, cases=CASES):
    try:
        return f"no violation in {sum(check(bounds, without) for bounds in cases)} states"
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
