"""A pipeline over all of its input, once: translate, write aside, commit by a rename."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from tenure.jobs.pipelines.output import Committed, Output
from tenure.jobs.pipelines.sources import Files
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.sources import read_files
from tenure.jobs.spark.stages import Context, apply

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Attempt", "results", "run_batch"]


CONSOLE = "\0console"
"""Stands for the place of text that is only printed."""


class Attempt(Struct, frozen=True):
    """Which run this is, and which try at it."""

    run: str
    number: int = 1


def results(spark: "SparkSession", pipeline: Pipeline) -> "DataFrame":
    """The records that the sink gets: columns key and value."""
    assert isinstance(pipeline.source, Files)
    records = read_files(spark, pipeline.source, pipeline.path(pipeline.source.path))
    for label, stage in zip(pipeline.labels, pipeline.stages, strict=True):
        records = apply(stage, records, Context(spark, pipeline, label))
    return records.select("key", "value")


def run_batch(
    spark: "SparkSession", pipeline: Pipeline, attempt: Attempt, reporter: Reporter, console: IO[str] | None = None
) -> dict[str, Any]:
    """Run it and commit its output. What this run has committed already is not done again."""
    began = time.monotonic()
    with ExitStack() as stack:
        outputs, done = _outputs(pipeline, attempt, stack)
        places = {folder: output.staging for folder, output in outputs.items()}
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="tenure-console-")))
        if pipeline.sink.console and pipeline.sink.text is None:
            places[CONSOLE] = scratch / "text"
        if not places:
            return next(iter(done.values())).result
        count = _write(spark, pipeline, results(spark, pipeline), places)
        result = {"records": count, "seconds": round(time.monotonic() - began, 3)}
        if outputs:
            reporter.confirm()
        for output in outputs.values():
            output.commit(pipeline.name, result, overwrite=pipeline.sink.overwrite)
        if pipeline.sink.console:
            text = pipeline.sink.text
            _print(places[CONSOLE] if text is None else pipeline.path(text), console or sys.stdout)
    return result


def _outputs(pipeline: Pipeline, attempt: Attempt, stack: ExitStack) -> tuple[dict[str, Output], dict[str, Committed]]:
    """The folders that this attempt has to write, and those that its run has committed already."""
    outputs: dict[str, Output] = {}
    done: dict[str, Committed] = {}
    for folder in pipeline.sink.folders:
        output = Output(pipeline.path(folder), attempt.run, attempt.number)
        output.begin()  # from here on no earlier attempt can commit
        stack.callback(output.abandon)
        if marker := output.committed():
            done[folder] = marker
        else:
            outputs[folder] = output
    return outputs, done


def _write(spark: "SparkSession", pipeline: Pipeline, records: "DataFrame", places: dict[str, Path]) -> int:
    """Write the records into all places; how many there are. They are worked out once."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation("results")
    counted = records.observe(observation, F.count(F.lit(1)).alias("records"))
    rows = places.get(str(pipeline.sink.parquet))
    if rows is not None:
        counted.write.mode("append").parquet(str(rows))
    for folder, place in places.items():
        if folder != pipeline.sink.parquet:
            found = counted if rows is None else spark.read.parquet(str(rows))
            found.select(F.concat("key", F.lit(": "), "value")).write.mode("append").text(str(place))
    return int(observation.get["records"])


def _print(folder: Path, console: IO[str]) -> None:
    for part in sorted(folder.glob("part-*")):
        with part.open(encoding="utf-8", newline="\n") as file:
            console.writelines(file)
    console.flush()
