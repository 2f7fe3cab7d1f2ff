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
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["escaped", "keyed_lines", "parts_of"]

COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst")
LITERAL_PARTS_MAX = 100
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
    parts = list(parts_of(text))
    shown = {str(path): path.shown for path in inputs}
    has_compressed = any(part.path.endswith(COMPRESSED) for part in parts)
    if parts and not has_compressed and len(parts) <= LITERAL_PARTS_MAX and _is_one_each(parts):
        return _keyed_by_partition(text, parts, shown)
    located = text.select(
        F.make_valid_utf8("value").alias("value"),
        F.col("_metadata.file_path").alias("url"),
        F.col("_metadata.file_block_start").alias("start"),
        F.spark_partition_id().alias("partition"),
        _index().alias("index"),
    )
    counted = _counted_by_spark(located) if has_compressed else {}
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


def _is_one_each(parts: Sequence[Part]) -> bool:
    return [part.partition for part in parts] == list(range(len(parts)))


def _keyed_by_partition(text: "DataFrame", parts: Sequence[Part], shown: dict[str, str]) -> "DataFrame":
    """As `keyed_lines`, where each partition reads one part: its number is all that must be asked of a record."""
    from pyspark.sql import functions as F

    # As text, which Spark reads at once: each function called from Python is a message to the JVM and back.
    start = _of_partition([part.start for part in parts])
    first = _of_partition(list(_firsts(parts, {})))
    index = f"(monotonically_increasing_id() & {INDEX_MASK}L) + {first}"
    unplanned = "raise_error(concat('this part of a file was not planned: ', input_file_name()))"
    line = f"if(input_file_block_start() = {start}, {index}, cast({unplanned} AS bigint)) AS line"
    names = [f"{shown[part.path]}:" for part in parts]
    name = F.lit(names[0])
    if len(set(names)) > 1:
        name = F.element_at(F.array(*map(F.lit, names)), F.spark_partition_id() + 1)
    numbered = text.select(F.expr("make_valid_utf8(value) AS value"), F.expr(line), name.alias("name"))
    return numbered.selectExpr("concat(name, cast(line AS string)) AS key", "value", "line")


def _of_partition(numbers: Sequence[int]) -> str:
    """The number of the partition where a record is read, as SQL."""
    if len(set(numbers)) == 1:
        return f"{numbers[0]}L"
    return f"element_at(array({', '.join(f'{number}L' for number in numbers)}), spark_partition_id() + 1)"


def _index() -> "Column":
    """Counts the records of a partition."""
    from pyspark.sql import functions as F

    return F.monotonically_increasing_id().bitwiseAND(F.lit(INDEX_MASK))


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
        elif alone:  # nobody needs to know how long the last one is
            bounds = [0, *line_starts(path, [part.start for part in of_file[1:]]), 0]
        else:
            bounds = [0, *line_starts(path, [part.end for part in of_file])]
        for part, (first, end) in zip(of_file, pairwise(bounds), strict=True):
            firsts[path, part.start] = first
            lengths[path, part.start] = end - first
    return firsts, lengths


def _counted_by_spark(located: "DataFrame") -> dict[tuple[int, str, int], int]:
    counts = located.groupBy("partition", "url", "start").count().collect()
    return {(row["partition"], plain(row["url"]), row["start"]): row["count"] for row in counts}
