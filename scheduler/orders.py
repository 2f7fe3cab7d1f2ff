"""What others want of a node: an entry beside its heartbeat, which it reads with every beat.

    leave ──► draining: its partitions go to others ──► it ends, and takes the order away
    drain ──► draining: its partitions go to others ──► it stays, and owns nothing, until it is told otherwise

An order outlives the node's freezes, not the node: names of nodes are never used again.
"""

from msgspec import Struct

from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.wire import encode

__all__ = ["Order", "give_order", "order_key"]

ORDER_LIFETIME_S = 3600.0
"""An order that nobody is there to follow goes by itself."""


class Order(Struct, frozen=True, kw_only=True):
    """To one node."""

    leave: bool = False
    """Hand everything over, and end."""
    drain: bool = False
    """Hand everything over, and stay. An order with neither takes that back."""


def order_key(node: str) -> bytes:
    """Where orders to this node are."""
    return b"order/" + node.encode()


async def give_order(grid: Grid, node: str, order: Order) -> None:
    """Returns once it is stored. Raises `GridError`."""
    await grid.set(Map.NODES, 0, order_key(node), encode(order), ttl_s=ORDER_LIFETIME_S)
