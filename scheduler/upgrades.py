"""The end of an upgrade: the cluster declares the newest format that all its nodes read.

Until then the older version can be gone back to. From then on, nodes that can't read the declared format leave, and
can't join; so do clients.
"""

from typing import Any

import msgspec
import trio
from msgspec import Struct

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.cluster import MARKER
from tenure.scheduler.errors import NotDone, UpgradeUnfinished
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.nodes_seen import said_nodes
from tenure.scheduler.wire import decode, encode

__all__ = ["FormatsSeen", "finalize", "formats_seen"]


class FormatsSeen(Struct, frozen=True):
    """What the cluster writes, and what it could."""

    declared: int
    newest: int
    """The newest that any node reads."""
    behind: dict[str, tuple[int, ...]]
    """Nodes that don't read the newest, and what they read."""


def formats_of(declared: int, nodes: list[NodeInfo]) -> FormatsSeen:
    """What follows from what these nodes say."""
    newest = max((number for node in nodes for number in node.reads), default=declared)
    return FormatsSeen(declared, newest, {node.id: node.reads for node in nodes if newest not in node.reads})


async def formats_seen(grid: Grid, *, deadline_s: float = 30.0) -> FormatsSeen:
    """How things stand. Raises `NotDone`."""
    with trio.move_on_after(deadline_s):
        while True:
            try:
                stored = await grid.get(Map.NODES, 0, MARKER)
                if stored is not None:
                    return formats_of(int(_fields(stored).get("format", 1)), await said_nodes(grid))
            except GridError:
                pass
            await trio.sleep(0.1)
    raise NotDone(f"the cluster's marker could not be read within {deadline_s:g} s")


async def finalize(grid: Grid, *, deadline_s: float = 30.0) -> FormatsSeen:
    """Declare the newest format. Raises `UpgradeUnfinished` if a node that is there, or was a few seconds ago, does
    not read it. A node that joins at the same time sees what is declared, and leaves again if it can't read that."""
    with trio.move_on_after(deadline_s):
        while True:
            try:
                stored = await grid.get(Map.NODES, 0, MARKER)
                if stored is not None:
                    fields = _fields(stored)
                    seen = formats_of(int(fields.get("format", 1)), await said_nodes(grid))
                    _refuse_if_behind(seen)
                    if seen.newest <= seen.declared:
                        return seen
                    # All other fields stay as they are, also those of a newer version.
                    raised = encode({**fields, "format": seen.newest})
                    if await grid.replace_if_same(Map.NODES, 0, MARKER, stored, raised):
                        return msgspec.structs.replace(seen, declared=seen.newest)
            except GridError:
                pass
            await trio.sleep(0.1)
    raise NotDone(f"the new format could not be declared within {deadline_s:g} s; it may have been: ask again")


def _refuse_if_behind(seen: FormatsSeen) -> None:
    if seen.behind:
        who = "; ".join(f"{node} reads {', '.join(map(str, reads))}" for node, reads in sorted(seen.behind.items()))
        raise UpgradeUnfinished(
            f"format {seen.newest} can't be declared, as not all nodes read it: {who}. Replace these nodes first."
        )


def _fields(stored: bytes) -> dict[str, Any]:
    return decode(stored, dict[str, Any])
