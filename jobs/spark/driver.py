"""The program that runs one pipeline on Spark: a process of its own, that tells its job how it goes.

    python -m tenure.jobs.spark.driver [PIPELINE.toml]

What is to be done comes from the run file that its wrapper names (see `tenure.jobs.reporting`); by hand, from TOML.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.spec import Pipeline, load_pipeline, pipeline_of
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.progress import watched
from tenure.jobs.spark.session import session
from tenure.scheduler.activities_port import Run
from tenure.scheduler.errors import Mistake

__all__ = ["main", "run_pipeline"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, 2 refused."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with Reporter.from_environment() as reporter:
        try:
            pipeline = load_pipeline(arguments[0]) if arguments else _declared(reporter.run)
            check(pipeline)
            reporter.result(run_pipeline(pipeline, reporter))
        except Exception as error:  # noqa: BLE001  # whatever it is, its job is told
            reporter.error(told(error), final=isinstance(error, Mistake))
            return 2 if isinstance(error, Mistake) else 1
    return 0


def run_pipeline(pipeline: Pipeline, reporter: Reporter) -> dict[str, Any]:
    """Run it in a session of its own; its result."""
    run = reporter.run
    attempt = Attempt(run.id or run.tag, run.attempt)
    with session(pipeline.master, pipeline.spark, pipeline.name, reporter.folder) as spark:
        reporter.on_cancel(spark.sparkContext.cancelAllJobs)
        with watched(spark, reporter):
            return run_batch(spark, pipeline, attempt, reporter)


def _declared(run: Run) -> Pipeline:
    work: dict[str, Any] = run.work
    return pipeline_of(work["pipeline"], folder=Path(work["folder"]))


if __name__ == "__main__":
    sys.exit(main())
