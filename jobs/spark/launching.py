"""How a run on Spark is started: the command of its driver. What is wrong with it is said before it is launched."""

import os
import sys
from pathlib import Path

import msgspec

from tenure.jobs.folders import state_folder
from tenure.jobs.kinds import Command
from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.functions import look_for
from tenure.jobs.spark import warm
from tenure.jobs.spark.java import find_java_home, need_pyspark
from tenure.jobs.spark.managers import is_elsewhere, manager_of
from tenure.jobs.spark.session import spark_settings
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.activities_port import LaunchRefused, Run
from tenure.scheduler.errors import Mistake, TenureError

__all__ = ["DRIVER", "command"]

DRIVER = "tenure.jobs.spark.driver"
SUBMISSION = "tenure.jobs.spark.submission"
DOORMAN = "tenure.jobs.spark.warm_doorman"


def command(run: Run) -> Command:
    """The driver's command. Raises `LaunchRefused` for what can't run here."""
    try:
        work = msgspec.convert(run.work, SparkWork)
        need_pyspark()
        java_home = find_java_home()
        _check(work, run)
        elsewhere = _is_elsewhere(work)
    except (TenureError, msgspec.ValidationError) as error:
        raise LaunchRefused(f"{type(error).__name__}: {error}") from error
    path = os.pathsep.join([str(Path(work.folder).absolute()), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"JAVA_HOME": str(java_home), "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    if elsewhere:
        return Command(argv=[sys.executable, "-m", SUBMISSION], env=env)
    if work.script:
        settings = spark_settings(work.master, work.spark, run.job or "tenure")
        env["PYSPARK_SUBMIT_ARGS"] = _submit_arguments(settings)
        return Command(argv=[sys.executable, work.script, *work.arguments], env=env, cwd=str(Path(work.folder)))
    if work.warm:
        environ = os.environ | env
        home = warm.home_of(run.work, state_folder(), environ)
        warm.start(home, run.work, environ)
        return Command(argv=[sys.executable, "-m", DOORMAN, str(home)], env=env)
    return Command(argv=[sys.executable, "-m", DRIVER], env=env)


def _check(work: SparkWork, run: Run) -> None:
    """Of the user's code nothing is run here: that is for processes that may end of it."""
    folder = Path(work.folder)
    if not folder.is_dir():
        raise Mistake(f"there is no folder {folder} on this machine")
    if (pipeline := work.declared()) is not None:
        if work.warm and pipeline.streaming:
            raise BadOption("a warm driver is for work that ends soon: leave warm out for a stream")
        check(pipeline, run.id, imports=False)
    elif work.function:
        look_for(work.function, folder)
    elif work.script and not (folder / work.script).is_file():
        raise Mistake(f"there is no script {folder / work.script}")


def _is_elsewhere(work: SparkWork) -> bool:
    """Whether the driver runs on the cluster. Raises `BadOption`."""
    pipeline = work.declared()
    master, settings = (pipeline.master, pipeline.spark) if pipeline else (work.master, work.spark)
    if not is_elsewhere(master, settings):
        return False
    manager_of(master, settings)
    if work.warm:
        raise BadOption("a warm driver runs at the node: leave warm or spark.submit.deployMode out")
    return True


def _submit_arguments(settings: dict[str, str]) -> str:
    import shlex

    pairs = (argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}"))
    return shlex.join([*pairs, "pyspark-shell"])
