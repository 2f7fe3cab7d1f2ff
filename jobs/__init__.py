"""Job types that ship, and what processes report with. Nothing is imported before it is used: importing a job type
registers it, and with it lets the nodes of an application run it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.jobs.activity_job import ActivityJob, Finished, finished_topic
    from tenure.jobs.autoscaler import Autoscaler
    from tenure.jobs.lifecycle import Lifecycle
    from tenure.jobs.process import ProcessJob
    from tenure.jobs.reporting import Fenced, Reporter

__all__ = ["ActivityJob", "Autoscaler", "Fenced", "Finished", "Lifecycle", "ProcessJob", "Reporter", "finished_topic"]

_HOMES = {
    "ActivityJob": "activity_job",
    "Autoscaler": "autoscaler",
    "Fenced": "reporting",
    "Finished": "activity_job",
    "Lifecycle": "lifecycle",
    "ProcessJob": "process",
    "Reporter": "reporting",
    "finished_topic": "activity_job",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"tenure.jobs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tenure.jobs' has no attribute {name!r}")
