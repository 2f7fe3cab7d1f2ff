"""What simulated clusters are made to do, and how it is judged. Each workload is a module with its own checker."""

from tenure.simulation.workloads.base import Workload
from tenure.simulation.workloads.counters import Counters

__all__ = ["ALL", "Workload"]

ALL: tuple[type[Workload], ...] = (Counters,)
