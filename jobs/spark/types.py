"""Spark jobs: `import tenure.jobs.spark.types` (or `from tenure.jobs import PipelineJob`) in an application lets its
nodes run them.

    pipeline = load_pipeline("hello.toml")
    await client.schedule(PipelineJob, id="hello", **parameters(pipeline), cron="0 3 * * *")
    await client.schedule(SparkJob, id="report", function="reports:monthly", arguments=["2026-03"])
"""

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from tenure.jobs.activity_job import ActivityJob
from tenure.jobs.pipelines.spec import Pipeline, pipeline_of
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import PickledJobsRefused, WrongType
from tenure.scheduler.jobtype import job

__all__ = ["PipelineJob", "SparkJob", "parameters"]


def parameters(pipeline: Pipeline) -> dict[str, Any]:
    """The parameters of the `PipelineJob` that runs a pipeline. Raises `NotPicklable` for a function without a name."""
    return {"pipeline": pipeline.declared(), "folder": str(Path(pipeline.folder).absolute())}


@job("pipeline")
class PipelineJob(ActivityJob, kw_only=True):
    """A declared pipeline, run by Spark outside the node, once for each start. Its result is in `last`, and goes to
    the jobs that come after it. See `ActivityJob` for when it is started.

    An order may replace parts of the declaration: `{"start": {"source": {"text": "monday.txt"}}}`, and name a file
    for what goes to the console: `{"start": {"console": "/tmp/results"}}`.
    """

    kind: ClassVar[str] = "spark"

    pipeline: dict[str, Any]
    """The pipeline, as TOML has it."""
    folder: str
    """What its paths are relative to; the same on every node's machine."""

    def work(self, start: dict[str, Any]) -> Any:
        declared = {**self.pipeline, **{name: value for name, value in start.items() if name != "console"}}
        pipeline_of(declared, folder=self.folder)
        work = SparkWork(pipeline=declared, folder=self.folder, console=start.get("console", ""))
        return msgspec.to_builtins(work)


@job("spark")
class SparkJob(ActivityJob, kw_only=True):
    """A PySpark function or script, run outside the node, once for each start.

    The function is called with a session, then the arguments; what it returns, made of what JSON can hold, is the
    job's result; `tenure.jobs.spark.current_reporter()` lets it tell how far it is, and ask whether it still counts.
    A script makes its own session, with the job's settings as defaults, and its own `Reporter.from_environment()`.
    """

    kind: ClassVar[str] = "spark"
    allow_pickled: ClassVar[bool] = False
    """Set it in the application to let clients send functions as pickles: whoever may schedule then runs any code."""

    function: str = ""
    """`module:function`, or `file.py:function` in `folder`."""
    pickled: bytes = b""
    """Instead: the function, by `cloudpickle.dumps`."""
    script: str = ""
    """Instead: a Python file in `folder`."""
    arguments: list[Any] = []
    """Of a script, texts."""
    folder: str = "."
    """Where modules, files and relative paths are."""
    master: str = "local[*]"
    spark: dict[str, str] = {}
    """Settings of Spark, resources among them: `{"spark.executor.memory": "4g"}`."""

    def work(self, start: dict[str, Any]) -> Any:
        own = {name: getattr(self, name) for name in ("function", "script", "arguments", "folder", "master", "spark")}
        if self.pickled or start.get("pickled"):
            if not self.allow_pickled:
                raise PickledJobsRefused(
                    "this application runs no pickled Spark functions: name one with function =, "
                    "or set SparkJob.allow_pickled = True in it"
                )
            own["pickled"] = self.pickled
        try:
            work = msgspec.convert({**own, **start}, SparkWork)
        except msgspec.ValidationError as error:
            raise WrongType(f"a Spark job can't be started so: {error}") from error
        return msgspec.to_builtins(work)
