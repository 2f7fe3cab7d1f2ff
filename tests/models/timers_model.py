"""An exhaustive check of a job's timers (docs/architecture.md: Run) on small cases.

python timers_model.py                   every interleaving of each case below: no violation
python timers_model.py --without RULE    one rule left out finds a violation; --rules: each in turn

A job has a timer that rings once and one that recurs at every even time. Its turns take time: timers may ring while one
runs, it may ask for several things, and it succeeds, or fails and has asked for nothing. The partition may get another
owner at any moment, whose clock is behind. Held against it is what a reader of the guide expects, said without timers:
what rings once does so for each time that it was set, unless it was set anew or cleared first; what recurs rings for no
time twice, and for none that was passed while it was not wanted.
"""

import sys
from typing import NamedTuple

RULES = {
    "wishes": "a turn keeps what it asks for, not the timer as it was; its success changes the timer as it is by then",
    "success": "it changes nothing before its turn has succeeded",
    "passed": "what recurs never rings for a time at or before one that has rung",
    "kept": "that is remembered when the timer that recurs is cleared",
}
CASES = [(5, 3, 0, 2), (5, 2, 1, 2), (6, 2, 2, 1), (4, 3, 1, 1)]
"""(until, turns, how far the next owner's clock is behind, wishes of a turn)"""
KEEP = None


class Timer(NamedTuple):
    due: int = 0
    cron: int = 0                 # when it rings next; 0: nothing recurs
    passed: int = 0


class Turn(NamedTuple):
    before: Timer                 # as it was when the turn first asked
    due: int | None = KEEP        # what it has asked for
    cron: int | None = KEEP       # the clock's time when it did; 0: cleared
    asked: int = 0
    wishes: int = 0


class World(NamedTuple):
    now: int
    behind: int                   # the clock of this owner
    timer: Timer
    turn: Turn | None
    turns: int
    rung: tuple                   # ("due" | "cron", time)
    due: int                      # what should ring once, and
    wants: bool                   # does it want what recurs?
    since: int                    # and since when, on the clock by which it asked
    owed: tuple                   # times that recur and must have rung


class Violation(Exception):
    pass


START = World(1, 0, Timer(), None, 0, (), 0, False, 0, ())


def next_even(after):
    return after + 2 - after % 2


def merged(timer, turn, without):
    base = turn.before if "wishes" in without and turn.wishes else timer
    due = base.due if turn.due is KEEP else turn.due
    if turn.cron is KEEP:
        return Timer(due, base.cron, base.passed)
    passed = 0 if "passed" in without or ("kept" in without and not base.cron) else base.passed
    return Timer(due, next_even(max(turn.cron, passed)) if turn.cron else 0, base.passed)


def ring(w):
    clock, timer, rung, owed = w.now - w.behind, w.timer, w.rung, w.owed
    if timer.due and timer.due <= clock:
        if w.due != timer.due:
            raise Violation(f"rings for {timer.due}, and should for {w.due or 'nothing'}: {rung}")
        w, timer, rung = w._replace(due=0), timer._replace(due=0), (*rung, ("due", timer.due))
    if timer.cron and timer.cron <= clock:
        if not w.wants or timer.cron <= w.since or ("cron", timer.cron) in rung:
            raise Violation(f"rings for {timer.cron}, wanted since {w.since if w.wants else 'never'}: {rung}")
        rung = (*rung, ("cron", timer.cron))
        timer = timer._replace(cron=next_even(max(timer.cron, clock)), passed=max(timer.cron, clock))
    return w._replace(timer=timer, rung=rung, owed=owed)


def steps(w, case, without):
    until, turns, behind, wishes_max = case
    clock = w.now - w.behind
    if w.now < until:
        yield ring(w._replace(now=w.now + 1))
    if behind and not w.behind:                          # another owner; what runs is lost
        yield ring(w._replace(behind=behind, turn=None))
    if w.turn is None:
        if w.turns < turns:
            yield w._replace(turn=Turn(w.timer), turns=w.turns + 1)
        return
    turn = w.turn
    if turn.wishes < wishes_max:
        asked = turn if turn.wishes else turn._replace(before=w.timer)
        for due, cron in ((clock + 1, KEEP), (clock, KEEP), (KEEP, clock), (0, 0)):
            new = asked._replace(wishes=asked.wishes + 1)
            new = new._replace(due=due) if due is not KEEP else new
            new = new._replace(cron=cron) if cron is not KEEP else new
            w2 = w._replace(turn=new)
            yield ring(w2._replace(timer=merged(w.timer, new, without))) if "success" in without else w2
    yield w._replace(turn=None)                          # it fails
    done = w._replace(turn=None, timer=merged(w.timer, turn, without))
    if turn.due is not KEEP:
        done = done._replace(due=turn.due)
    if turn.cron is not KEEP:
        done = done._replace(wants=bool(turn.cron), since=turn.cron)
    yield ring(done)


def judge(w, case):
    """At the end: has all rung that should have?"""
    if w.due and w.due <= w.now - w.behind:
        raise Violation(f"{w.due} has not rung: {w.rung}")
    if w.wants and w.turn is None:
        wanted = set(range(next_even(w.since), w.now - w.behind + 1, 2))
        if missing := {time for time in wanted if time > w.timer.passed}:
            raise Violation(f"{missing} should have rung: {w.rung}")
    if w.wants != bool(w.timer.cron) or w.due != w.timer.due:
        raise Violation(f"the timers are {w.timer}; wanted are {w.due} and {w.wants}")


def check(case, without):
    worlds, seen = [START], {START}
    for world in worlds:
        judge(world, case)
        for following in steps(world, case, without):
            if following not in seen:
                seen.add(following)
                worlds.append(following)
    return len(worlds)


def verdict(without):
    try:
        return f"no violation in {sum(check(case, without) for case in CASES)} states"
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
