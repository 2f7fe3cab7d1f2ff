"""The memory grid: virtual members in this process. Fast and dutiful; with `Faults`, as bad as a real grid can be."""

from tenure.scheduler.grid.memory.cluster import MemoryCluster
from tenure.scheduler.grid.memory.grid import MemoryGrid

__all__ = ["MemoryCluster", "MemoryGrid"]
