"""Giving records to the tasks of a stage by the named hash of their keys.

Spark places rows by a hash of its own. To have it place them where ours says, each row gets a token: a number that
Spark's hash sends to exactly the task that our hash has chosen. Spark knows then that rows of one key are together:
an aggregate that follows does not shuffle them again. Records keep two columns while their keys stay what they are:
`hash`, and `token_N` where they are at N tasks.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["by_key", "token_of", "tokens", "without_place"]

HASH, TOKEN = "hash", "token_"
SEED = 42
MASK = 0xFFFFFFFF


def by_key(records: "DataFrame", hash: str, tasks: int) -> "DataFrame":
    """The records, each at the task that the hash of its key names; as they are, if they are there already."""
    from pyspark.sql import functions as F

    if f"{TOKEN}{tasks}" in records.columns:
        return records
    columns = [name for name in records.columns if not name.startswith(TOKEN)]
    if HASH not in columns:
        records = records.selectExpr(*columns, f"tenure_{hash}(cast(key AS binary)) AS {HASH}")
        columns.append(HASH)
    elif len(columns) < len(records.columns):
        records = records.select(*columns)
    # As text: each function called from Python is a message to the JVM and back.
    place = F.expr(f"element_at(array({', '.join(map(str, tokens(tasks)))}), cast({HASH} % {tasks} AS int) + 1)")
    # The token is the expression that rows are placed by, not the other way round: so Spark can drop a placement that
    # another one follows.
    return records.repartition(tasks, place).select(*columns, place.alias(f"{TOKEN}{tasks}"))


def token_of(records: "DataFrame") -> list[str]:
    """The column with the records' token, if they have one."""
    return [name for name in records.columns if name.startswith(TOKEN)]


def without_place(records: "DataFrame") -> "DataFrame":
    """The records, whose keys are new."""
    return records.select("key", "value")


@functools.cache
def tokens(tasks: int) -> tuple[int, ...]:
    """For each task the smallest number that Spark sends there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < tasks:
        found.setdefault(_murmur3(number) % tasks, number)
        number += 1
    return tuple(found[task] for task in range(tasks))


def _murmur3(number: int) -> int:
    """Spark's hash of an integer, with its sign: Python's `%` is then Spark's `pmod`."""
    mixed = _rotate(number * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    hash = (_rotate(SEED ^ mixed, 13) * 5 + 0xE6546B64) & MASK
    hash ^= 4
    hash = (hash ^ hash >> 16) * 0x85EBCA6B & MASK
    hash = (hash ^ hash >> 13) * 0xC2B2AE35 & MASK
    hash ^= hash >> 16
    return hash - (1 << 32) if hash >> 31 else hash


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & MASK
