"""What Spark is doing, told to the job a few times a second."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.jobs.reporting import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Rate", "watched"]

LOOK_EVERY_S = 0.5
RATE_OVER_S = 1.0


@contextmanager
def watched(
    spark: "SparkSession", reporter: Reporter, group: str = "", *, counts_records: bool = True
) -> Iterator[None]:
    """Report stages, tasks, executors and records while the block runs; only those of a job group, if one is named.
    A stream counts its records itself."""
    over = threading.Event()
    arguments = spark, reporter, over, group, counts_records
    watcher = threading.Thread(target=_watch, args=arguments, name="tenure-progress", daemon=True)
    reporter.started(application=spark.sparkContext.applicationId, master=spark.sparkContext.master)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(spark: "SparkSession", reporter: Reporter, over: threading.Event, group: str, counts_records: bool) -> None:
    last = None
    rate = Rate(time.monotonic())
    while not over.wait(LOOK_EVERY_S):
        seen = _look(spark, group)
        if seen is None or seen == last:
            continue
        last = seen
        reporter.stage("spark", seen.stage, seen.stages)
        reporter.progress(seen.done, seen.total)
        metrics: dict[str, float] = {"executors": seen.executors} if seen.executors else {}
        if counts_records:
            metrics["records_read"] = seen.records
            metrics["records_per_s"] = rate.at(seen.records, time.monotonic())
        reporter.metrics(**metrics)


class Rate:
    """How fast a number grows, over a second or more."""

    def __init__(self, now_s: float, count: int = 0) -> None:
        self._since_s, self._count, self._per_s = now_s, count, 0.0

    def at(self, count: int, now_s: float) -> float:
        """Now that it is this."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= RATE_OVER_S:
            self._per_s = round(max(0, count - self._count) / elapsed_s, 1)
            self._since_s, self._count = now_s, count
        return self._per_s


class Seen(NamedTuple):
    """One look at all that this application has done and is doing."""

    stage: int
    stages: int
    done: int
    total: int
    records: int
    executors: int
    """Of a cluster; a local master has none."""


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
        executors=context._jsc.sc().statusStore().executorList(True).length() - 1,
    )


def _stages_of(spark: "SparkSession", group: str) -> set[int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    return {stage for job in jobs if job is not None for stage in job.stageIds}
