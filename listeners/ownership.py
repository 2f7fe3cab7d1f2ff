"""The ownership listener: members, migrations, merges, lost partitions, and this client's own connection."""

from collections.abc import Iterable

from tenure.scheduler.grid.port import OwnershipEvent
from tenure.scheduler.node import Node

__all__ = ["OwnershipChanges"]


class OwnershipChanges:
    """Migration drives the handoff: the node looks at once who should own what."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._unheard: frozenset[int] = frozenset()
        """The partitions on members that are leaving."""
        self._primaries: tuple[str | None, ...] = ()

    def __call__(self, event: OwnershipEvent) -> None:
        if event is OwnershipEvent.MERGED:
            # What we believe may belong to the side that lost: open anew.
            self.node.drop()
        elif event in (OwnershipEvent.PARTITION_LOST, OwnershipEvent.RECONNECTED):
            self._look_for_events({*self.node.tenures, *self.node.heard})
        else:
            self._mind_leaving()
        self.node.look()

    def _mind_leaving(self) -> None:
        """What members that leave did not tell is looked for: while they have a partition (see `Sweeping`), and once
        more when somebody else has it. The first that one gives away shows that: it was not looked at before."""
        ownership = self.node.grid.ownership()
        before, partitions = self._unheard, range(len(ownership.primaries))
        self._unheard = frozenset(partition for partition in partitions if ownership.is_unheard(partition))
        moved = zip(range(len(self._primaries)), self._primaries, ownership.primaries, strict=False)
        given_away = {partition for partition, old, new in moved if old != new and old in ownership.leaving}
        self._primaries = ownership.primaries
        self._look_for_events((before ^ self._unheard) | given_away)

    def _look_for_events(self, partitions: Iterable[int]) -> None:
        tenures, opening = self.node.tenures, self.node.heard
        for partition in partitions:
            if (tenure := tenures.get(partition)) is not None:
                tenure.sweep_soon()
            if (heard := opening.get(partition)) is not None:
                heard.again = True
