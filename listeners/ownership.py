"""The ownership listener: members, migrations, merges, lost partitions, and this client's own connection."""

from tenure.scheduler.grid.port import OwnershipEvent
from tenure.scheduler.node import Node

__all__ = ["OwnershipChanges"]


class OwnershipChanges:
    """Migration drives the handoff: the node looks at once who should own what."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self, event: OwnershipEvent) -> None:
        if event is OwnershipEvent.MERGED:
            # What we believe may belong to the side that lost: open anew.
            self.node.drop()
        elif event in (OwnershipEvent.PARTITION_LOST, OwnershipEvent.RECONNECTED):
            for tenure in list(self.node.tenures.values()):
                tenure.sweep_soon()
            for heard in self.node.heard.values():
                heard.again = True
        self.node.look()
