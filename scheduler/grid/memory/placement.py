"""Which members should hold which partitions: a pure function of who is there and what they hold."""

from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["Row", "rebalanced", "survivors"]

Row = tuple[str, ...]
"""The members that hold a partition, the primary first."""


def survivors(rows: Iterable[Row], members: Iterable[str]) -> list[Row]:
    """The rows when only `members` are left: the first backup that lives becomes primary."""
    left = frozenset(members)
    return [tuple(member for member in row if member in left) for row in rows]


def rebalanced(rows: Sequence[Row], members: Sequence[str], copies: int) -> list[Row]:
    """Rows with primaries and backups spread evenly, `copies` of each, moving no more than that needs."""
    if not members:
        return [() for _ in rows]
    rows = survivors(rows, members)
    rows = _even(_fill(rows, members, 1), members, 0)
    rows = _fill([row[:copies] for row in rows], members, copies)
    for place in range(1, min(copies, len(members))):
        rows = _even(rows, members, place)
    return rows


def _fill(rows: list[Row], members: Sequence[str], copies: int) -> list[Row]:
    """Give rows that are too short the members that hold least in that place."""
    for place in range(min(copies, len(members))):
        load = Counter(dict.fromkeys(members, 0))
        load.update(row[place] for row in rows if len(row) > place)
        for partition, row in enumerate(rows):
            if len(row) == place:
                chosen = min((member for member in members if member not in row), key=lambda member: load[member])
                load[chosen] += 1
                rows[partition] = (*row, chosen)
    return rows


def _even(rows: list[Row], members: Sequence[str], place: int) -> list[Row]:
    """Level the load of one place. A member that is a backup already is the cheapest new primary: they swap."""
    load = Counter(dict.fromkeys(members, 0))
    load.update(row[place] for row in rows)
    low, remainder = divmod(len(rows), len(members))
    for partition, row in enumerate(rows):
        giver = row[place]
        if load[giver] <= low or (load[giver] == low + 1 and remainder and min(load.values()) >= low):
            continue
        takers = sorted(
            (member for member in members if member not in row[:place] and load[member] < load[giver] - 1),
            key=lambda member: (load[member], member not in row),
        )
        if not takers:
            continue
        taker = takers[0]
        load[giver] -= 1
        load[taker] += 1
        swapped = [taker if member == giver else giver if member == taker else member for member in row]
        # Where the taker held no copy, the giver becomes the first backup, and the last one is cut when full.
        rows[partition] = tuple(swapped) if taker in row else (*row[:place], taker, *row[place + 1 :])
    return rows
