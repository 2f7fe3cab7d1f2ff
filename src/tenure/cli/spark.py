"""`tenure spark`: pipelines, and other jobs on Spark."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

from tenure.cli.ends import Exit, Failed, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json, print_table, say

if TYPE_CHECKING:
    from tenure.jobs.pipelines import Pipeline

__all__ = ["app"]

Flag = Annotated[bool, Parameter(negative="")]
EVERY_MINUTE = "* * * * *"
app = cyclopts.App(name="spark", help="Data pipelines on Spark: run, submit, watch, end.", help_format="plaintext")


@app.command
def run(
    pipeline: Path,
    /,
    *,
    id: str = "",
    overwrite: Flag = False,
    master: str | None = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Run a pipeline, and wait until it has ended. What is wrong with it is said before anything starts.

    It runs as a job: on the cluster that is named, or on one of its own, which ends with it. A job that it makes there
    is removed when it has ended, unless it writes to a topic or reads one.

    Parameters
    ----------
    pipeline
        The TOML file that declares it.
    id
        The job's id; the pipeline's name, if not said.
    overwrite
        Replace output that is there already, once the new one is complete.
    master
        Where Spark runs, instead of what the file says: local[*], spark://host:port.
    """
    from tenure.cli.spark_run import run_and_watch

    declared = _declared(pipeline, overwrite, master)
    return run_and_watch(declared, id or declared.name, connection)


@app.command
def submit(
    pipeline: Path,
    /,
    *,
    id: str = "",
    overwrite: Flag = False,
    master: str | None = None,
    at: datetime | None = None,
    cron: str = "",
    tz: str = "UTC",
    after: Annotated[list[str] | None, Parameter(negative="")] = None,
    overlap: str = "skip",
    on_demand: Flag = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Make a pipeline a job of a cluster, and return. Without a time it runs now.

    Parameters
    ----------
    pipeline
        The TOML file that declares it.
    id
        The job's id; the pipeline's name, if not said.
    overwrite
        Replace output that is there already, once the new one is complete.
    master
        Where Spark runs, instead of what the file says.
    at
        Run it then, once: 2026-03-01T03:00, in the zone of tz.
    cron
        Run it again and again, as a cron expression says.
    tz
        The time zone of `at` and of the cron expression.
    after
        Run it when these jobs have finished.
    overlap
        When it is to run while it runs: skip, queue, or cancel the older.
    on_demand
        Run it on messages only: `tenure publish ID '{"start": {}}'`.
    """
    from tenure.cli.spark_jobs import on_cluster, submitted
    from tenure.scheduler.timers import check_cron

    if overlap not in ("skip", "queue", "cancel"):
        raise Usage(f"--overlap is skip, queue or cancel, not {overlap!r}.")
    declared = _declared(pipeline, overwrite, master)
    check_cron(cron or EVERY_MINUTE, tz)
    id = id or declared.name
    when = {"at": at and _in_zone(at, tz), "cron": cron, "tz": tz, "after": after or [], "on_demand": on_demand}
    options: dict[str, Any] = {name: value for name, value in when.items() if value} | {"overlap": overlap}
    on_cluster(connection, submitted, declared, id, options)
    _done(connection, {"submitted": id}, f"{id} is submitted: see `tenure spark list`.")
    return Exit.DONE


@app.command(name="list")
def list_jobs(*, connection: Connection = USUAL_CONNECTION) -> int:
    """List pipelines and other Spark jobs: stages, tasks, rates, where they run."""
    from tenure.cli.spark_jobs import listed, on_cluster, row_of

    found = on_cluster(connection, listed)
    if connection.json:
        for job in found:
            print_json({name: job[name] for name in ("id", "type", "status", "activities")})
    else:
        print_table(("id", "type", "state", "run", "place", "what"), map(row_of, found))
    return Exit.DONE


@app.command
def tasks(id: str, /, *, connection: Connection = USUAL_CONNECTION) -> int:
    """List the tasks of a job's run that Spark works on now.

    Parameters
    ----------
    id
        The job's id.
    """
    from tenure.cli.spark_jobs import on_cluster, running_tasks

    found = on_cluster(connection, running_tasks, id)
    if connection.json:
        for task in found:
            print_json(task)
    else:
        columns = ("id", "stage", "index", "attempt", "executor", "host")
        print_table(("task", *columns[1:]), ([task[name] for name in columns] for task in found))
    return Exit.DONE


@app.command
def logs(
    id: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Print what the driver of a job's newest run has said.

    Parameters
    ----------
    id
        The job's id.
    follow
        Go on until the run has ended.
    """
    from tenure.cli.spark_logs import show_logs

    show_logs(id, connection, follow=follow)
    return Exit.DONE


@app.command
def kill(id: str, task: int, /, *, connection: Connection = USUAL_CONNECTION) -> int:
    """End one task of a job's run; Spark runs it again. Its results count once.

    Parameters
    ----------
    id
        The job's id.
    task
        The task's number, as `tenure spark tasks ID` lists it.
    """
    from tenure.cli.spark_jobs import kill_task, on_cluster

    if not on_cluster(connection, kill_task, id, task):
        raise Failed(f"No task {task} of {id} runs: see `tenure spark tasks {id}`.")
    _done(connection, {"killed": task}, f"Task {task} is ended; Spark runs it again.")
    return Exit.DONE


@app.command
def cancel(id: str, /, *, connection: Connection = USUAL_CONNECTION) -> int:
    """End a job's run, and forget those that are queued. The job stays, for its next time.

    Parameters
    ----------
    id
        The job's id.
    """
    from tenure.cli.spark_jobs import cancel_job, on_cluster

    if not on_cluster(connection, cancel_job, id):
        raise Failed(f"{id} does not run.")
    _done(connection, {"cancelled": id}, f"{id} is being cancelled: see `tenure spark list`.")
    return Exit.DONE


def _declared(path: Path, overwrite: bool, master: str | None) -> "Pipeline":
    """The pipeline, checked as far as it can be without Spark."""
    from tenure.jobs.pipelines import load_pipeline
    from tenure.jobs.pipelines.check import check
    from tenure.jobs.spark.java import find_java_home, need_pyspark

    if path.is_dir():
        raise Usage(f"{path} is a folder: name the TOML file in it.")
    declared = load_pipeline(path).changed(master=master, overwrite=overwrite or None)
    check(declared)
    need_pyspark()
    find_java_home()
    return declared


def _in_zone(at: datetime, tz: str) -> datetime:
    from zoneinfo import ZoneInfo

    return at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(tz))


def _done(connection: Connection, result: dict[str, Any], sentence: str) -> None:
    if connection.json:
        print_json(result)
    else:
        say(sentence)
