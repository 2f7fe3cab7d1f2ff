"""Giving records to the tasks of a stage by the named hash of their keys.

Spark places rows by a hash of its own. To have it place them where ours says, each row gets a token: a number that
Spark's hash sends to exactly the task that our hash has chosen. Spark knows then that rows of one key are together,
and shuffles them only once, also for an aggregate that follows.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["by_key", "tokens", "with_token"]

SEED = 42
MASK = 0xFFFFFFFF


def with_token(records: "DataFrame", task: "Column", tasks: int) -> "DataFrame":
    """The records, given to `tasks` tasks as the column says (from 0), with a column `token`."""
    from pyspark.sql import functions as F

    places = F.array(*(F.lit(token) for token in tokens(tasks)))
    return records.withColumn("token", F.element_at(places, task + 1)).repartition(tasks, "token")


def by_key(records: "DataFrame", hash: str, tasks: int) -> "DataFrame":
    """The records, with a column `token`, each at the task that the hash of its key names."""
    from pyspark.sql import functions as F

    task = F.call_function(f"tenure_{hash}", F.col("key").cast("binary")) % tasks
    return with_token(records, task.cast("int"), tasks)


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
