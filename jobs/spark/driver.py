"""The program that does a job's work on Spark: a process of its own, that tells its job how it goes.

    python -m tenure.jobs.spark.driver [PIPELINE.toml]

What is to be done comes from the run file that its wrapper names (see `tenure.jobs.reporting`); by hand, from TOML.
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
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.control import controlled
from tenure.jobs.spark.current import reporting
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.progress import watched
from tenure.jobs.spark.session import session
from tenure.jobs.spark.stream import run_stream
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "run_function", "run_pipeline"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, 2 refused."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with Reporter.from_environment() as reporter:
        try:
            reporter.result(_do(arguments, reporter))
        except Exception as error:  # noqa: BLE001  # whatever it is, its job is told
            reporter.error(told(error), final=isinstance(error, Mistake))
            return 2 if isinstance(error, Mistake) else 1
    return 0


def _do(arguments: Sequence[str], reporter: Reporter) -> Any:
    if arguments:
        return _checked_and_run(load_pipeline(arguments[0]), reporter)
    work = msgspec.convert(reporter.run.work, SparkWork)
    pipeline = work.declared()
    if pipeline is None:
        return run_function(work, reporter)
    if not work.console:
        return _checked_and_run(pipeline, reporter)
    with open(work.console, "a", encoding="utf-8") as console:
        return _checked_and_run(pipeline, reporter, console)


def _checked_and_run(pipeline: Pipeline, reporter: Reporter, console: IO[str] | None = None) -> Any:
    check(pipeline, reporter.run.id)
    return run_pipeline(pipeline, reporter, console)


def run_pipeline(pipeline: Pipeline, reporter: Reporter, console: IO[str] | None = None) -> dict[str, Any]:
    """Run it in a session of its own; its result."""
    run = reporter.run
    with _working(pipeline.master, pipeline.spark, pipeline.name, reporter) as spark:
        if pipeline.streaming:
            return run_stream(spark, pipeline, reporter, console)
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        return run_batch(spark, pipeline, Attempt(run.id or run.tag, run.attempt), reporter, console)


def run_function(work: SparkWork, reporter: Reporter) -> Any:
    """Call a function with a session and its arguments; what it returns."""
    function = _function(work)
    with _working(work.master, work.spark, reporter.run.job, reporter) as spark, reporting(reporter):
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        return function(spark, *work.arguments)


@contextmanager
def _working(master: str, settings: dict[str, str], name: str, reporter: Reporter) -> "Iterator[SparkSession]":
    folder = reporter.folder
    with session(master, settings, name, folder) as spark, controlled(spark, folder), watched(spark, reporter):
        yield spark


def _function(work: SparkWork) -> Any:
    if work.pickled:
        import cloudpickle

        return cloudpickle.loads(work.pickled)  # its job's type has allowed it
    return load_function(work.function, Path(work.folder))


if __name__ == "__main__":
    sys.exit(main())
