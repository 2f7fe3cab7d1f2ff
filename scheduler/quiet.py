"""When the jobs of an application are quiet, decided from what all partitions say, one after another. Pure.

    ask all ──► round 1 ──► ask all ──► round 2 ──► ask all ──► round 3 ──► quiet, as of a moment between 1 and 2
                            took all that was sent in 1         took all that was sent in 2

Nobody sees all partitions at one moment, and a message may be on its way from one that was asked already to one that
was asked before. So each says, as of a journal record of its own: what its jobs have still to do, a print of how far
they have come, how many slots it has sent to each partition, and taken from each.

**What it promises.** If the last three rounds, none of which began before the one before it was over, say the same
prints and nothing to do, and each partition had taken by the second what every other had sent by the first, and by the
third what was sent by the second, then at the moment T between the first two: no job of the application had anything to
do, and nothing that its jobs had sent to each other, directly or by a topic, was on its way. It stays so until a
message comes from elsewhere, or a timer comes due.

Why: equal prints mean that none of its jobs had a turn in between. So what they sent was sent before the first round,
was taken by the second, and, as no turn came of it since, had been taken, and done, before the first. A topic's
partition passes a message on in the record in which it takes it: that is one step more, and the third round.
`tests/models/quiet_model.py` checks it in every interleaving of small cases, and that no part can be left out.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

__all__ = [
    "CONTROLLERS",
    "EVERY",
    "ROUNDS",
    "Round",
    "Sighting",
    "Waiting",
    "is_quiet",
    "same",
    "took_all",
    "what_is_waited_for",
]

ROUNDS = 3
EVERY = "*"
"""All applications, but for that of the controllers."""
CONTROLLERS = "tenure"
"""The application of what instructs the cluster: it would wait for itself."""


class Waiting(Struct, frozen=True):
    """Something that is not done."""

    job: str
    """Empty: not of one job."""
    why: str


class Sighting(Struct, frozen=True, kw_only=True):
    """What one partition says, as of one of its journal's records."""

    partition: int
    epoch: int
    node: str
    swept: bool
    """Has it looked, in this epoch, for what was accepted before it was asked first, and taken all of that?"""
    closed: int = 0
    """What clients publish is refused: 1, if it is for one of the application's jobs; 2, if for a topic, too."""
    print: bytes
    """Changes with every turn of the application's jobs here."""
    jobs: int
    turns: int
    """Of those that are there, all that they ever had."""
    timers: int = 0
    """Timers that are set, and not due."""
    first_due_ms: int = 0
    busy: dict[str, int] = {}
    """Why it is not quiet -> how often."""
    examples: list[Waiting] = []
    sent: dict[int, int] = {}
    """partition -> slots sent to it"""
    taken: dict[int, int] = {}
    """partition -> slots taken from it"""


Round = Sequence[Sighting]
"""What all partitions say, by number."""


def is_quiet(rounds: Sequence[Round]) -> bool:
    """Were the application's jobs quiet between the first two of the last three rounds? See the top of this file."""
    if len(rounds) < ROUNDS:
        return False
    last = rounds[-ROUNDS:]
    return (
        not any(seen.busy or not seen.swept for round in last for seen in round)
        and all(same(before, after) for before, after in pairwise(last))
        and all(took_all(before, after) for before, after in pairwise(last))
    )


def same(before: Round, after: Round) -> bool:
    """Had no job of the application a turn between these two?"""
    # Another owner may not have looked yet for what its predecessor had seen, and not taken.
    return all((was.print, was.epoch) == (now.print, now.epoch) for was, now in zip(before, after, strict=True))


def took_all(before: Round, after: Round) -> bool:
    """Had each partition taken by the second what all had sent by the first?"""
    return all(
        after[receiver].taken.get(sender.partition, 0) >= count
        for sender in before
        for receiver, count in sender.sent.items()
    )


def what_is_waited_for(rounds: Sequence[Round], *, examples_max: int = 3) -> str:
    """For people, in a line. Empty: nothing, or nothing is known yet."""
    if not rounds:
        return ""
    last = rounds[-1]
    counts: dict[str, int] = {}
    examples: list[Waiting] = []
    for seen in last:
        for why, count in seen.busy.items():
            counts[why] = counts.get(why, 0) + count
        examples += [waiting for waiting in seen.examples if waiting.job]
    if counts:
        what = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items(), key=lambda item: -item[1]))
        shown = ", ".join(f"{waiting.job} ({waiting.why})" for waiting in examples[:examples_max])
        more = ", …" if len(examples) > examples_max else ""
        return what if not shown else f"{what}: {shown}{more}"
    if unswept := sum(not seen.swept for seen in last):
        return f"{unswept:,} partitions that have not looked yet"
    if len(rounds) > 1 and not took_all(rounds[-2], last):
        return "messages on their way between partitions"
    if len(rounds) > 1 and not same(rounds[-2], last):
        turns = sum(seen.turns for seen in last) - sum(seen.turns for seen in rounds[-2])
        return f"turns that go on: {turns:,} since the last look" if turns > 0 else "partitions that change hands"
    return "another look, to be sure"
