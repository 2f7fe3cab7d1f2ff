"""A pipeline over all of its input, once: translate, write aside, commit by a rename."""

import os
import secrets
import shutil
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
from tenure.jobs.pipelines.topics import TOPIC_RESULTS
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.processed import ProcessedLog
from tenure.jobs.spark.sources import read_files
from tenure.jobs.spark.stages import Context, apply
from tenure.jobs.spark.writing import CONSOLE, TOPIC, print_text, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Attempt", "results", "run_batch"]


class Attempt(Struct, frozen=True):
    """Which run this is, and which try at it."""

    run: str
    number: int = 1


def results(spark: "SparkSession", pipeline: Pipeline, processed: ProcessedLog | None = None) -> "DataFrame":
    """The records that the sink gets: columns key and value."""
    assert isinstance(pipeline.source, Files)
    records = read_files(spark, pipeline.source, pipeline.path(pipeline.source.path))
    for label, stage in zip(pipeline.labels, pipeline.stages, strict=True):
        records = apply(stage, records, Context(spark, pipeline, label, processed))
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
        if pipeline.sink.topic is not None:
            places[TOPIC] = _topic_results(pipeline, attempt)
        if not places:
            _print(pipeline, console)
            return next(iter(done.values())).result
        processed = None
        if (logs := places.pop(str(pipeline.processed), None)) is not None:
            processed = ProcessedLog(logs)
            stack.callback(processed.close)
        count = write(pipeline, results(spark, pipeline, processed), places)
        result: dict[str, Any] = {"records": count, "seconds": round(time.monotonic() - began, 3)}
        if TOPIC in places:
            result["topic_results"] = sorted(str(part) for part in places[TOPIC].glob("part-*"))
        if outputs or TOPIC in places:
            reporter.confirm()
        for output in outputs.values():
            output.commit(pipeline.name, result, overwrite=pipeline.sink.overwrite)
        _print(pipeline, console, places.get(CONSOLE))
    return result


def _print(pipeline: Pipeline, console: IO[str] | None, place: Path | None = None) -> None:
    """Print the results; of a console that is a file, go on where an earlier attempt was ended."""
    if pipeline.sink.console:
        text = pipeline.sink.text
        place = place if text is None else pipeline.path(text)
        assert place is not None
        print_text(
            place, console or sys.stdout, skip_bytes=0 if console is None else os.fstat(console.fileno()).st_size
        )


def _topic_results(pipeline: Pipeline, attempt: Attempt) -> Path:
    """A folder for messages, this attempt's own; those of attempts that did not get to their end go."""
    folder = pipeline.state_folder / TOPIC_RESULTS
    for left in folder.glob(f"{attempt.run}.*"):
        shutil.rmtree(left, ignore_errors=True)
    return folder / f"{attempt.run}.{attempt.number}-{secrets.token_hex(4)}"


def _outputs(pipeline: Pipeline, attempt: Attempt, stack: ExitStack) -> tuple[dict[str, Output], dict[str, Committed]]:
    """The folders that this attempt has to write, and those that its run has committed already."""
    outputs: dict[str, Output] = {}
    done: dict[str, Committed] = {}
    for folder in pipeline.outputs:
        output = Output(pipeline.path(folder), attempt.run, attempt.number)
        output.begin()  # from here on no earlier attempt can commit
        stack.callback(output.abandon)
        if marker := output.committed():
            done[folder] = marker
        else:
            outputs[folder] = output
    return outputs, done
