"""Fencing tokens: numbers that only grow over a job's turns, whoever runs them.

                         62        56                32                                0
    incarnations 0..63:   | 0 inc. |      epoch       |             count              |
    from 64 on:           | 1 | incarnation - 64 |      epoch       |      count       |
                         62  61              46 45              24 23                 0

Restores are few at most places; where they are many (one each night, to see that it can be done), the second form has
room for them. All of its tokens are above those of the first.
"""

__all__ = ["INCARNATION_MAX", "Fences"]

FIRST_FORM = 64
"""So many incarnations have the first form."""
INCARNATION_MAX = FIRST_FORM + 2**16 - 1
"""Above it, tokens would not fit into the 63 bits that databases and messages hold."""


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
