"""Writing results as text and Parquet, and to the console."""

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

from tenure.jobs.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CONSOLE", "TOPIC", "parts_of", "print_text", "write"]

CONSOLE = "\0console"
"""Stands for the place of text that is only printed."""
TOPIC = "\0topic"
"""Stands for the place of messages for a topic."""


def write(pipeline: Pipeline, records: "DataFrame", places: dict[str, Path], *, single: bool = False) -> int:
    """Write the records into the places of all folders; how many there are. They are worked out once.

    `single`: Parquet as one file."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation("results")
    found = records.observe(observation, F.count(F.lit(1)).alias("records"))
    rows = places.get(str(pipeline.sink.parquet))
    if rows is not None:
        (found.coalesce(1) if single else found).write.mode("append").parquet(str(rows))
        found = records.sparkSession.read.schema("key string, value string").parquet(str(rows))
    for folder, place in places.items():
        if folder != pipeline.sink.parquet:
            line = F.to_json(F.struct("key", "value")) if folder == TOPIC else F.concat("key", F.lit(": "), "value")
            found.select(line).write.mode("overwrite").text(str(place))
    return int(observation.get["records"])


def parts_of(place: Path) -> list[Path]:
    """The files with the text of a place, which may be one file."""
    return sorted(place.glob("part-*")) if place.is_dir() else [place]


def print_text(place: Path, console: IO[str], *, skip_bytes: int = 0) -> None:
    """Print a file, or the parts in a folder, without so much at their beginning."""
    console.flush()
    # What was printed before may end within a character.
    to = cast(TextIO, console).buffer if skip_bytes else None
    for part in parts_of(place):
        with part.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(min(skip_bytes, size))
            skip_bytes -= min(skip_bytes, size)
            for line in file:
                if to is None:
                    console.write(line.decode())
                else:
                    to.write(line)
    console.flush()
