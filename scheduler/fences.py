"""Fencing tokens: numbers that only grow over a job's turns, whoever runs them."""

__all__ = ["Fences"]

COUNT_MAX = 2**31
"""Half of what a tenure can number: a group of turns may run past it."""


class Fences:
    """Those of one tenure. They order by (incarnation, epoch, count), and fit into the 63 bits that databases and
    messages hold."""

    def __init__(self, incarnation: int, epoch: int) -> None:
        self._base = (incarnation << 56) | (epoch << 32)
        self._count = 0

    def next(self) -> int:
        """For one more turn that wants one."""
        self._count += 1
        return self._base | self._count

    def are_used_up(self) -> bool:
        """Is it time for a new epoch, that tokens can go on growing?"""
        return self._count > COUNT_MAX
