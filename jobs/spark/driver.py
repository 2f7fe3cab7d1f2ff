"""The program that does a job's work on Spark: a process of its own, that tells its job how it goes.

    python -m tenure.jobs.spark.driver [PIPELINE.toml | --relay FOLDER]

What is to be done comes from the run file that its wrapper names (see `tenure.jobs.reporting`); by hand, from TOML;
on a cluster, from a folder (see `relay`).
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.functions import load_function
from tenure.jobs.pipelines.spec import Pipeline, load_pipeline
from tenure.jobs.reporting import Reporter, load_run
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.control import controlled
from tenure.jobs.spark.current import reporting
from tenure.jobs.spark.failures import is_final, told
from tenure.jobs.spark.progress import watched
from tenure.jobs.spark.relay import relayed
from tenure.jobs.spark.scaling import allocation
from tenure.jobs.spark.session import open_session
from tenure.jobs.spark.stream import run_stream
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["do_work", "main", "run_pipeline"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, 2 refused."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--relay"]:
        folder = Path(arguments[1])
        run = load_run(folder / "run.json").run
        with relayed(folder, run.orphan_after_s) as channel:
            return _report((), Reporter(run, channel))
    return _report(arguments, Reporter.from_environment())


def _report(arguments: Sequence[str], to: Reporter) -> int:
    with to as reporter:
        try:
            reporter.result(_do(arguments, reporter))
        except Exception as error:  # noqa: BLE001  # whatever it is, its job is told
            reporter.error(cause := told(error), final=is_final(cause))
            return 2 if isinstance(error, Mistake) else 1
    return 0


def _do(arguments: Sequence[str], reporter: Reporter) -> Any:
    if arguments:
        named = load_pipeline(arguments[0])
        check(named, reporter.run.id)
        return run_pipeline(named, reporter)
    work = msgspec.convert(reporter.run.work, SparkWork)
    if (pipeline := work.declared()) is not None:
        check(pipeline, reporter.run.id)
        master, settings = pipeline.master, allocation(pipeline) | pipeline.spark
    else:
        if work.function:
            load_function(work.function, Path(work.folder))  # what is wrong with it is told before Spark starts
        master, settings = work.master, work.spark
    streaming = pipeline is not None and pipeline.streaming
    with _working(master, settings, reporter.run.job, reporter, streaming=streaming) as spark:
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        return do_work(work, spark, reporter)


def do_work(work: SparkWork, spark: "SparkSession", reporter: Reporter, console: IO[str] | None = None) -> Any:
    """Do it in this session: a pipeline, or a function. What comes of it."""
    if (pipeline := work.declared()) is None:
        with reporting(reporter):
            return _function(work)(spark, *work.arguments)
    check(pipeline, reporter.run.id)
    if not work.console:
        return _run(pipeline, spark, reporter, console)
    with open(work.console, "a", encoding="utf-8") as file:
        return _run(pipeline, spark, reporter, file)


def run_pipeline(pipeline: Pipeline, reporter: Reporter) -> dict[str, Any]:
    """Run it in a session of its own; its result."""
    settings = allocation(pipeline) | pipeline.spark
    with _working(pipeline.master, settings, pipeline.name, reporter, streaming=pipeline.streaming) as spark:
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        return _run(pipeline, spark, reporter)


def _run(
    pipeline: Pipeline, spark: "SparkSession", reporter: Reporter, console: IO[str] | None = None
) -> dict[str, Any]:
    if pipeline.streaming:
        return run_stream(spark, pipeline, reporter, console)
    run = reporter.run
    return run_batch(spark, pipeline, Attempt(run.id or run.tag, run.attempt), reporter, console)


@contextmanager
def _working(
    master: str, settings: dict[str, str], name: str, reporter: Reporter, *, streaming: bool
) -> "Iterator[SparkSession]":
    folder = reporter.folder
    with (
        open_session(master, settings, name, folder) as spark,
        controlled(spark, folder),
        watched(spark, reporter, counts_records=not streaming),
    ):
        yield spark


def _function(work: SparkWork) -> Any:
    if work.pickled:
        import cloudpickle

        return cloudpickle.loads(work.pickled)  # its job's type has allowed it
    return load_function(work.function, Path(work.folder))


if __name__ == "__main__":
    sys.exit(main())
