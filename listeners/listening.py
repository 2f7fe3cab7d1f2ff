"""All subscriptions of a node, open together and closed together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.listeners.entries import DefinitionEntries, HeadEntries, InboxEntries
from tenure.listeners.ownership import OwnershipChanges
from tenure.scheduler.assignment import ASSIGNMENT
from tenure.scheduler.grid.port import Map
from tenure.scheduler.node import Node

__all__ = ["listening"]


@asynccontextmanager
async def listening(node: Node) -> AsyncIterator[None]:
    """While open, the node is told of new slots and definitions, and of changes to members and to the assignment."""
    grid = node.grid
    async with (
        grid.listen(Map.INBOX, InboxEntries(node), removals=False),
        grid.listen(Map.HEADS, HeadEntries(node), removals=False),
        grid.listen(Map.JOBS, DefinitionEntries(node), removals=False),
        grid.listen(Map.NODES, lambda events: node.look(), key=(0, ASSIGNMENT), removals=False),
        grid.watch_ownership(OwnershipChanges(node)),
    ):
        yield
