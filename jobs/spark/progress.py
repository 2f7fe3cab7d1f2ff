"""What Spark is doing, told to the job a few times a second."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.jobs.reporting import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["watched"]

LOOK_EVERY_S = 0.5


@contextmanager
def watched(spark: "SparkSession", reporter: Reporter, group: str = "") -> Iterator[None]:
    """Report stages, tasks and records while the block runs; only those of a job group, if one is named."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, reporter, over, group), name="tenure-progress", daemon=True)
    reporter.started(application=spark.sparkContext.applicationId, master=spark.sparkContext.master)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(spark: "SparkSession", reporter: Reporter, over: threading.Event, group: str) -> None:
    last = None
    while not over.wait(LOOK_EVERY_S):
        seen = _look(spark, group)
        if seen is None or seen == last:
            continue
        last = seen
        reporter.stage("spark", seen.stage, seen.stages)
        reporter.progress(seen.done, seen.total)
        reporter.metrics(records_read=seen.records)


class Seen(NamedTuple):
    """One look at all that this application has done and is doing."""

    stage: int
    stages: int
    done: int
    total: int
    records: int


def _look(spark: "SparkSession", group: str) -> Seen | None:
    context: Any = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    found = [stages.apply(number) for number in range(stages.length())]
    if group:
        ours = _stages_of(spark, group)
        found = [stage for stage in found if stage.stageId() in ours]
    if not found:
        return None
    active = [stage.stageId() for stage in found if str(stage.status()) == "ACTIVE"]
    counted = [stage for stage in found if str(stage.status()) != "SKIPPED"]
    return Seen(
        stage=max(active, default=-1) + 1,
        stages=len(found),
        done=sum(stage.numCompleteTasks() for stage in counted),
        total=sum(stage.numTasks() for stage in counted),
        records=sum(stage.inputRecords() for stage in counted),
    )


def _stages_of(spark: "SparkSession", group: str) -> set[int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    return {stage for job in jobs if job is not None for stage in job.stageIds}
