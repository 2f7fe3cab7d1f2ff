"""Entry listeners: lane slots and definitions that came into partitions of the paired member."""

from tenure.scheduler.grid.port import EntryEvent
from tenure.scheduler.keys import HEAD
from tenure.scheduler.node import Node

__all__ = ["DefinitionEntries", "HeadEntries", "InboxEntries"]


class InboxEntries:
    """New lane slots go to the tenure of their partition, if it is open here or about to be; its first sweep finds
    those that were there before."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self, events: list[EntryEvent]) -> None:
        tenures, opening = self.node.tenures, self.node.heard
        for _, partition, key, value in events:
            if value is not None:
                if (tenure := tenures.get(partition)) is not None:
                    tenure.hear_slot(key, value)
                elif (heard := opening.get(partition)) is not None:
                    heard.slots[key] = value


class HeadEntries:
    """A head that was written says, in a handoff, that its partition was closed or opened."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self, events: list[EntryEvent]) -> None:
        ring = self.node.handoffs.ring
        for _, partition, key, value in events:
            if value is not None and key == HEAD:
                ring(partition, value)


class DefinitionEntries:
    """New and changed definitions start, pause and stop jobs at once."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self, events: list[EntryEvent]) -> None:
        tenures, opening = self.node.tenures, self.node.heard
        for _, partition, key, value in events:
            if value is None:
                continue
            try:
                id = key.decode()
            except UnicodeDecodeError:
                continue  # the sweep reports it
            if (tenure := tenures.get(partition)) is not None:
                tenure.offer_definition(id, value)
            elif (heard := opening.get(partition)) is not None:
                heard.definitions[id] = value
