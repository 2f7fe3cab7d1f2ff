"""Word of turns in which a node's loop stands still: left in the grid by the watchdog of the node that hangs, and
looked at by whoever owns the partition next.

    a handler doesn't return ──► word: "node A stands in this turn" ──┬─ it returns: the word is taken back
                                                                      └─ the watchdog ends A: "… and has ended"
    next owner:  someone stands in it ──► it waits (all others go on) ──► word taken back, or too old: it runs, counted
                 one has ended of it  ──► it runs, alone and counted
                 two have, or one      ──► its job has failed; the words are deleted
                 whose memory it ate

A hint, like all of the kind: lost, it costs further nodes, until crashes alone have told (`suspicion`); and a turn is
given up only when two nodes have ended of that very one.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["HANGS_MAX", "HANG_PREFIX", "WORD_KEPT_S", "Hang", "Hangs", "hang_key", "some_turn"]

HANG_PREFIX = b"hang/"
"""What the keys of such words begin with, in the map of nodes."""
HANGS_MAX = 2
"""A turn of which so many nodes have ended fails its job."""
WORD_KEPT_S = 3600.0
OLD_AFTER_S = 30.0
PATIENCE_S = 10.0
"""Who has neither come back nor been ended so long after its watchdog should have done it has ended otherwise."""


class Hang(Struct, frozen=True):
    """What one node says of the turn that it stands in. Fields may be added."""

    node: str
    partition: int
    job: str
    turn: str
    """Empty: some turn of this job. Its node could not see which (see `noted`)."""
    where: str = ""
    """The line of the application, for people."""
    ends_after_s: float = 0.0
    """When its watchdog ends it, after this was written; 0: never."""
    ended: bool = False
    memory_mib: float = 0.0
    """What the process had taken, where it had to be ended for that; else 0."""
    alone: bool = False
    """In this turn, with nothing else at work, the process took more than half of what it may: whoever runs it ends of
    it, and one is enough."""


def some_turn(job: str) -> str:
    """What stands for a turn that is not known. No turn is called so."""
    return f"{job}/"


def hang_key(node: str) -> bytes:
    """Where a node's word is."""
    return HANG_PREFIX + node.encode()


class Hangs:
    """What one node has seen of the others' words."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._by_turn: dict[str, list[Hang]] = {}
        self._since_s: dict[bytes, float] = {}
        self._settled: set[bytes] = set()
        """The keys of words that have had their effect."""

    def see(self, words: Mapping[bytes, Hang], now_s: float) -> set[int]:
        """What there is now; returns the partitions for which that changes something."""
        before = self._by_turn
        if not words and not before:
            self._settled.clear()
            return set()
        self._since_s = {key: self._since_s.get(key, now_s) for key in words}
        self._settled &= words.keys()
        found: dict[str, list[Hang]] = {}
        for key, hang in sorted(words.items()):
            if hang.node != self._node and key not in self._settled:
                found.setdefault(hang.turn or some_turn(hang.job), []).append(
                    self._as_it_is(hang, now_s - self._since_s[key])
                )
        self._by_turn = found
        changed = (turn for turn in before.keys() | found.keys() if before.get(turn) != found.get(turn))
        return {hang.partition for turn in changed for hang in (*before.get(turn, ()), *found.get(turn, ()))}

    def _as_it_is(self, hang: Hang, age_s: float) -> Hang:
        has_ended = hang.ended or age_s >= hang.ends_after_s + PATIENCE_S
        return replace(hang, ended=has_ended)

    def any(self) -> bool:
        """Is there any word?"""
        return bool(self._by_turn)

    def about(self, partition: int) -> list[Hang]:
        """The words on turns of this partition."""
        return [hang for hangs in self._by_turn.values() for hang in hangs if hang.partition == partition]

    def partitions(self) -> set[int]:
        """Those that there is word on."""
        return {hang.partition for hangs in self._by_turn.values() for hang in hangs}

    def is_old(self, hang: Hang, now_s: float) -> bool:
        """Has this been here for so long that its turn would have been taken in since, were it not done?"""
        return now_s - self._since_s.get(hang_key(hang.node), now_s) >= OLD_AFTER_S

    def is_standing(self, turn: str, job: str) -> bool:
        """Does somebody stand in this turn, or in some turn of its job, who may come back yet?"""
        words = (*self._by_turn.get(turn, ()), *self._by_turn.get(some_turn(job), ()))
        return any(not hang.ended for hang in words)

    def ended(self, turn: str) -> list[Hang]:
        """The nodes that have ended of it."""
        return [hang for hang in self._by_turn.get(turn, ()) if hang.ended]

    def against(self, turn: str, job: str) -> list[Hang]:
        """The nodes that have ended of it, if that is enough to give it up. One that ended of some turn of this job
        counts, where another one names it."""
        ended = self.ended(turn)
        if ended and not any(hang.alone for hang in ended):
            ended += self.ended(some_turn(job))
        return ended if len(ended) >= HANGS_MAX or any(hang.alone for hang in ended) else []

    def settle(self, *turns: str) -> list[bytes]:
        """They have had their effect; returns the keys under which they are to be deleted."""
        keys = [hang_key(hang.node) for turn in turns for hang in self._by_turn.pop(turn, ())]
        self._settled.update(keys)
        return keys
