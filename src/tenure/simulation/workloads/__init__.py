"""What simulated clusters are made to do, and how it is judged. Each workload is a module with its own checker."""

from tenure.simulation.workloads.abandoned import Abandoned
from tenure.simulation.workloads.asking import Asking
from tenure.simulation.workloads.backups import Backups
from tenure.simulation.workloads.base import Workload
from tenure.simulation.workloads.beside import Beside
from tenure.simulation.workloads.closing import Closing
from tenure.simulation.workloads.comebacks import Comebacks
from tenure.simulation.workloads.counters import Counters
from tenure.simulation.workloads.errands import Errands
from tenure.simulation.workloads.failing import Failing
from tenure.simulation.workloads.fencing import Fencing
from tenure.simulation.workloads.heavy import Heavy
from tenure.simulation.workloads.juggling import Juggling
from tenure.simulation.workloads.lifecycle import Lifecycle
from tenure.simulation.workloads.newborns import Newborns
from tenure.simulation.workloads.passing import Passing
from tenure.simulation.workloads.restoring import Restoring
from tenure.simulation.workloads.slow import Slow
from tenure.simulation.workloads.steps import Steps
from tenure.simulation.workloads.storm import Storm
from tenure.simulation.workloads.timing import Timing
from tenure.simulation.workloads.topics import Broadcasts, Topics
from tenure.simulation.workloads.transfers import Transfers
from tenure.simulation.workloads.upgrading import Upgrading

__all__ = ["BULK", "NOT_YET", "OTHERS", "SAVING", "SPECIAL", "Workload"]

BULK: tuple[type[Workload], ...] = (Counters, Transfers, Storm)
"""Many messages each."""
OTHERS: tuple[type[Workload], ...] = (
    Asking,
    Broadcasts,
    Failing,
    Fencing,
    Juggling,
    Lifecycle,
    Slow,
    Steps,
    Timing,
    Topics,
)
"""Few messages, each with more to it."""
SAVING: tuple[type[Workload], ...] = (Backups,)
"""Beside the others in some seeds: they look at what is kept outside of the cluster."""
SPECIAL: tuple[type[Workload], ...] = (
    Abandoned,
    Beside,
    Closing,
    Comebacks,
    Errands,
    Heavy,
    Newborns,
    Passing,
    Restoring,
    Upgrading,
)
"""Instead of the bulk, in some seeds: they bring settings and hazards of their own."""
NOT_YET: dict[type[Workload], str] = {}
"""Drawn by no seed until what they find is mended, and why; by name (`--workload`) they can be run."""
