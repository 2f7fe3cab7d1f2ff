"""Fencing tokens: numbers that only grow over a job's turns, whoever runs them.

                         62        56                32                                0
    incarnations 0..63:   | 0 inc. |      epoch       |             count              |
    from 64 on:           | 1 | incarnation - 64 |      epoch       |      count       |
                         62  61              46 45              24 23                 0

Restores are few at most places; where they are many (one each night, to see that it can be done), the second form has
room for them. All of its tokens are above those of the first.

A new cluster begins with the incarnation of its day, and its partitions with the epoch of their second: outside systems
that have seen tokens of another cluster, under the same ids, find those of one that is formed later higher, and none
twice. (By clocks; within a cluster and over its restores no clock counts.) Clusters that older versions formed began
with one.
"""

__all__ = ["INCARNATION_MAX", "Fences", "first_epoch", "first_incarnation", "restored_epoch"]

FIRST_FORM = 64
"""So many incarnations have the first form."""
INCARNATION_MAX = FIRST_FORM + 2**16 - 1
"""Above it, tokens would not fit into the 63 bits that databases and messages hold."""

DAY_MS = 86_400_000
FIRST_DAY_MS = 1_735_689_600_000
"""The first of January 2025: incarnation 64."""
LAST_DAY = 2**15
"""Half of all incarnations are left for restores, whatever the clock says."""
EPOCHS_A_SECOND = 16
SECONDS_MAX = 90_000


def first_incarnation(now_ms: int) -> int:
    """Of a cluster that is formed now."""
    day = (now_ms - FIRST_DAY_MS) // DAY_MS
    return FIRST_FORM + min(day, LAST_DAY) if day >= 0 else 1


def first_epoch(incarnation: int, now_ms: int) -> int:
    """Of a partition that is opened for the first time."""
    if incarnation < FIRST_FORM:
        return 1
    day_began_ms = FIRST_DAY_MS + (incarnation - FIRST_FORM) * DAY_MS
    return 1 + EPOCHS_A_SECOND * max(0, min(SECONDS_MAX, (now_ms - day_began_ms) // 1000))


def restored_epoch(now_ms: int) -> int:
    """At least this is the epoch behind which a restored partition begins: a snapshot may be restored at two places."""
    return EPOCHS_A_SECOND * (now_ms // 1000 % 86_400)


class Fences:
    """Those of one tenure. They order by (incarnation, epoch, count), and fit into the 63 bits that databases and
    messages hold."""

    def __init__(self, incarnation: int, epoch: int) -> None:
        if incarnation < FIRST_FORM:
            self._base, count_bits = (incarnation << 56) | (epoch << 32), 32
        else:
            self._base, count_bits = (1 << 62) | ((incarnation - FIRST_FORM) << 46) | (epoch << 24), 24
        self._count = 0
        # Half of what a tenure can number: a group of turns may run past it.
        self._count_max = 1 << (count_bits - 1)

    def next(self) -> int:
        """For one more turn that wants one."""
        self._count += 1
        return self._base | self._count

    def are_used_up(self) -> bool:
        """Is it time for a new epoch, that tokens can go on growing?"""
        return self._count > self._count_max
