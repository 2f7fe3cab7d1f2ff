"""Is this the cluster that commands have seen here before? Somebody has to say so when all came back empty."""

from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.connect import parse_cluster
from tenure.nodes.memory import Memory, follows, seen_memory
from tenure.nodes.whereabouts import embedded_clusters
from tenure.scheduler.errors import Mistake

if TYPE_CHECKING:
    from tenure.scheduler.cluster import Cluster

__all__ = ["another_than_before"]

NOTES_MAX = 1000


def another_than_before(address: str, cluster: "Cluster", *, accept: bool = False) -> str:
    """What is to be said of it; empty: it is the one that was seen at this address, or was put there on purpose, or
    none was seen. With `accept`, it is the right one from now on. What can't be noted down is no reason to stop."""
    if address in embedded_clusters():
        return ""  # with a name of its own each time
    settings = parse_cluster(address)
    memory = seen_memory(settings.cluster_name, settings.addresses)
    try:
        known = memory.recall()
    except (OSError, Mistake):
        known = None
    if known is not None and not accept and not follows(known, cluster):
        return (
            f"this is another cluster, {cluster.formation}, than the one that was seen at {address} before, "
            f"{known.formation}, and nobody has put it there on purpose: all members were stopped at the same time, "
            "and came back empty"
        )
    if known is None or known.formation != cluster.formation:
        with suppress(OSError):
            memory.note(cluster)
            _prune(memory)
    return ""


def _prune(memory: Memory) -> None:
    """Of clusters that come and go, notes stay."""
    notes = sorted(memory.file.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for note in notes[:-NOTES_MAX]:
        note.unlink(missing_ok=True)
