"""How a run on Spark is started: the command of its driver, for whoever launches it."""

import os
import sys
from pathlib import Path
from typing import Any

from tenure.jobs.kinds import Command
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.spark.java import find_java_home, need_pyspark
from tenure.scheduler.activities_port import LaunchRefused, Run
from tenure.scheduler.errors import TenureError

__all__ = ["DRIVER", "command", "work_of"]

DRIVER = "tenure.jobs.spark.driver"


def command(run: Run) -> Command:
    """The driver's command. Raises `LaunchRefused` where Spark can't run."""
    try:
        need_pyspark()
        java_home = find_java_home()
    except TenureError as error:
        raise LaunchRefused(str(error)) from error
    folder = Path((run.work or {}).get("folder", "."))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Command(argv=[sys.executable, "-m", DRIVER], env={"JAVA_HOME": str(java_home), "PYTHONPATH": path})


def work_of(pipeline: Pipeline) -> dict[str, Any]:
    """What a driver needs to know of a pipeline, made of what JSON can hold."""
    return {"pipeline": pipeline.declared(), "folder": str(Path(pipeline.folder).absolute())}
