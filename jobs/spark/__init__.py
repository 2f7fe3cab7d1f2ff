"""Spark as a place where jobs work: the only part of Tenure that imports pyspark, and only when it runs."""

from typing import Any

from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.spark.current import current_reporter

__all__ = ["current_reporter", "run"]


def run(pipeline: Pipeline) -> dict[str, Any]:
    """Run a pipeline in this process, and return its result. Its functions may be any that Python has.

    Raises a `Mistake` before Spark starts; afterwards `BadRecord`, `CommandFailed` or `PipelineFailed`, with the cause.
    """
    from tenure.jobs.pipelines.check import check
    from tenure.jobs.spark.driver import run_pipeline
    from tenure.jobs.spark.failures import told
    from tenure.jobs.spark.silent import SilentReporter

    check(pipeline)
    if pipeline.needs_job:
        raise BadOption("topics are for jobs: run this pipeline by `tenure spark run`, or as a PipelineJob")
    try:
        return run_pipeline(pipeline, SilentReporter(pipeline.name))
    except Exception as error:
        raise told(error) from error
