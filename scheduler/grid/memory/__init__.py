"""The memory grid, in this process: `MemoryCluster` is fast and dutiful, `FaultyCluster` as bad as a real grid."""

from tenure.scheduler.grid.memory.cluster import MemoryCluster
from tenure.scheduler.grid.memory.faults import MEASURED_TROUBLE, Fault, Faults
from tenure.scheduler.grid.memory.faulty_cluster import FaultyCluster
from tenure.scheduler.grid.memory.faulty_grid import FaultyGrid
from tenure.scheduler.grid.memory.grid import MemoryGrid

__all__ = ["MEASURED_TROUBLE", "Fault", "Faults", "FaultyCluster", "FaultyGrid", "MemoryCluster", "MemoryGrid"]
