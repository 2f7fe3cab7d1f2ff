"""Autoscaling on Spark: locally another number of tasks for each batch, on a cluster executors that come and go."""

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.jobs.pipelines.autoscale import Scaler
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import Aggregate, Stage
from tenure.jobs.spark.session import local_cores

__all__ = ["Scaling", "allocation"]


SHUFFLED_FOR = 10
"""An executor that others may still read from goes after so many times as long without work."""


class Scaling:
    """The stages of a stream, with as many tasks as its rate asks for. Aggregates keep theirs."""

    def __init__(self, pipeline: Pipeline, now_s: float) -> None:
        self._stages = pipeline.stages
        wanted = [stage.tasks for stage in self._stages if stage.tasks is not None and not isinstance(stage, Aggregate)]
        marks = pipeline.autoscale
        self._scaler = None if marks is None or not wanted else Scaler(marks, max(wanted), now_s)
        self._before_s = now_s

    @property
    def tasks(self) -> int | None:
        """How many there are now; None: that is not scaled."""
        return None if self._scaler is None else self._scaler.tasks

    def stages(self, records: int, now_s: float) -> Sequence[Stage]:
        """The stages for the next batch, which so many records have come in since the last one."""
        if self._scaler is None:
            return self._stages
        elapsed_s, self._before_s = max(now_s - self._before_s, 1e-3), now_s
        tasks = self._scaler.follow(records / elapsed_s, now_s)
        return [
            stage if stage.tasks is None or isinstance(stage, Aggregate) else replace(stage, tasks=tasks)
            for stage in self._stages
        ]


def allocation(pipeline: Pipeline) -> dict[str, str]:
    """Spark's settings that let a cluster follow; none on a local master, whose cores stay the same."""
    marks = pipeline.autoscale
    if marks is None or local_cores(pipeline.master) is not None:
        return {}
    prefix, idle_s = "spark.dynamicAllocation", max(1, round(marks.settle_s))
    return {
        f"{prefix}.enabled": "true",
        f"{prefix}.shuffleTracking.enabled": "true",
        f"{prefix}.minExecutors": str(marks.tasks_min),
        f"{prefix}.maxExecutors": str(marks.tasks_max),
        f"{prefix}.executorIdleTimeout": f"{idle_s}s",
        # Otherwise they stay until Java's collector finds that nobody reads what batches long over have shuffled.
        f"{prefix}.shuffleTracking.timeout": f"{SHUFFLED_FOR * idle_s}s",
    }
