"""The program that does a job's work on Spark: a process of its own, that tells its job how it goes.

    python -m tenure.jobs.spark.driver [PIPELINE.toml]

What is to be done comes from the run file that its wrapper names (see `tenure.jobs.reporting`); by hand, from TOML.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.functions import load_function
from tenure.jobs.pipelines.spec import Pipeline, load_pipeline
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.current import reporting
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.progress import watched
from tenure.jobs.spark.session import session
from tenure.jobs.spark.stream import run_stream
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import Mistake

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
    return run_function(work, reporter) if pipeline is None else _checked_and_run(pipeline, reporter)


def _checked_and_run(pipeline: Pipeline, reporter: Reporter) -> Any:
    check(pipeline, reporter.run.id)
    return run_pipeline(pipeline, reporter)


def run_pipeline(pipeline: Pipeline, reporter: Reporter) -> dict[str, Any]:
    """Run it in a session of its own; its result."""
    run = reporter.run
    with session(pipeline.master, pipeline.spark, pipeline.name, reporter.folder) as spark, watched(spark, reporter):
        if pipeline.streaming:
            return run_stream(spark, pipeline, reporter)
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        return run_batch(spark, pipeline, Attempt(run.id or run.tag, run.attempt), reporter)


def run_function(work: SparkWork, reporter: Reporter) -> Any:
    """Call a function with a session and its arguments; what it returns."""
    function = _function(work)
    with session(work.master, work.spark, reporter.run.job, reporter.folder) as spark, watched(spark, reporter):
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        with reporting(reporter):
            return function(spark, *work.arguments)


def _function(work: SparkWork) -> Any:
    if work.pickled:
        import cloudpickle

        return cloudpickle.loads(work.pickled)  # its job's type has allowed it
    return load_function(work.function, Path(work.folder))


if __name__ == "__main__":
    sys.exit(main())
