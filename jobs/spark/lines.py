"""Text files as records whose keys have exact line numbers, although Spark reads a file in several places at once.

Spark numbers the records of a partition, and says which part of which file each came from. Which parts a partition
has is asked of its plan; how many lines there are before a part is counted by bytes. So no record passes through
Python, and files are not read twice by Spark.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tenure.jobs.pipelines.counting import line_starts
from tenure.jobs.pipelines.lines import Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["escaped", "keyed_lines", "parts_of"]

COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst")
INDEX_MASK = (1 << 33) - 1
"""The lower part of Spark's growing ids counts the records of a partition; the upper one is the partition."""


class Part(NamedTuple):
    """A part of a file, as a partition reads it."""

    partition: int
    url: str
    path: str
    start: int
    end: int

    @property
    def urls(self) -> tuple[str, str]:
        """As Spark may write it in metadata: with one slash behind `file:`, or with three."""
        return plain(self.url), f"file://{plain(self.url).removeprefix('file:')}"


def keyed_lines(spark: "SparkSession", inputs: Sequence[Input]) -> "DataFrame":
    """Columns key, value and line: the number of the line in its file."""
    from pyspark.sql import functions as F

    if not inputs:
        return spark.createDataFrame([], "key string, value string, line bigint")
    text = spark.read.text([escaped(path) for path in inputs])
    located = text.select(
        F.make_valid_utf8("value").alias("value"),
        F.col("_metadata.file_path").alias("url"),
        F.col("_metadata.file_block_start").alias("start"),
        F.spark_partition_id().alias("partition"),
        F.monotonically_increasing_id().bitwiseAND(F.lit(INDEX_MASK)).alias("index"),
    )
    parts = list(parts_of(text))
    counted = _counted_by_spark(located) if any(part.path.endswith(COMPRESSED) for part in parts) else {}
    shown = {str(path): path.shown for path in inputs}
    rows = [
        (part.partition, url, part.start, shown[part.path], first)
        for part, first in zip(parts, _firsts(parts, counted), strict=True)
        for url in part.urls
    ]
    table = spark.createDataFrame(rows, "partition int, url string, start bigint, shown string, first bigint")
    found = located.join(F.broadcast(table), ["partition", "url", "start"], "left")
    unplanned = F.raise_error(F.concat(F.lit("this part of a file was not planned: "), "url", F.lit(" "), "start"))
    line = F.when(F.col("first").isNull(), unplanned.cast("bigint")).otherwise(F.col("index") + F.col("first"))
    key = F.when(line.isNotNull(), F.concat("shown", F.lit(":"), line.cast("string")))
    return found.select(key.alias("key"), "value", line.alias("line"))


def escaped(path: str) -> str:
    """A path whose signs mean themselves, though Spark takes patterns."""
    return "".join(f"\\{sign}" if sign in "\\*?[]{}^" else sign for sign in path)


def plain(url: str) -> str:
    """With one slash."""
    return "file:/" + url.removeprefix("file:").lstrip("/")


def parts_of(text: "DataFrame") -> Iterator[Part]:
    """The parts of files, in the order in which the partitions read them."""
    for number, partition in enumerate(text._jdf.queryExecution().toRdd().partitions()):
        for file in partition.files():
            uri, start = file.toPath().toUri(), file.start()
            yield Part(number, uri.toString(), uri.getPath(), start, start + file.length())


def _firsts(parts: Sequence[Part], counted: dict[tuple[int, str, int], int]) -> Iterator[int]:
    """For each part: the number of its first line, less what its partition has read before."""
    firsts, lengths = _lines(parts, counted)
    read: dict[int, int] = defaultdict(int)
    for part in parts:
        place = part.path, part.start
        yield firsts[place] - read[part.partition]
        read[part.partition] += lengths[place]


def _lines(
    parts: Sequence[Part], counted: dict[tuple[int, str, int], int]
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """The number of each part's first line, and of its lines."""
    files: dict[str, list[Part]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: (part.path, part.start)):
        files[part.path].append(part)
    alone = len({part.partition for part in parts}) == len(parts)
    firsts: dict[tuple[str, int], int] = {}
    lengths: dict[tuple[str, int], int] = {}
    for path, of_file in files.items():
        if path.endswith(COMPRESSED):
            lines = [counted.get((part.partition, plain(part.url), part.start), 0) for part in of_file]
            bounds = [0, *(sum(lines[: number + 1]) for number in range(len(lines)))]
        elif alone and len(of_file) == 1:
            bounds = [0, 0]  # nobody needs to know how long it is
        else:
            bounds = [0, *line_starts(path, [part.end for part in of_file])]
        for part, (first, end) in zip(of_file, pairwise(bounds), strict=True):
            firsts[path, part.start] = first
            lengths[path, part.start] = end - first
    return firsts, lengths


def _counted_by_spark(located: "DataFrame") -> dict[tuple[int, str, int], int]:
    counts = located.groupBy("partition", "url", "start").count().collect()
    return {(row["partition"], plain(row["url"]), row["start"]): row["count"] for row in counts}
