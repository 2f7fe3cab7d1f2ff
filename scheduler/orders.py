"""What others want of a node: an entry beside its heartbeat, which it reads with every beat.

    leave ──► draining: its partitions go to others ──► it ends, and takes the order away
    drain ──► draining: its partitions go to others ──► it stays, and owns nothing, until it is told otherwise

An order to leave is kept apart from others, too: who gives up a drain at the same moment takes back the drain alone.

All nodes can be told to *hold* before they are told to leave: autoscalers change nothing from then on, and what leaves
launches nothing. Who asks for it says so again and again, and waits until all nodes say that they have heard of it.

An order outlives the node's freezes, not the node: names of nodes are never used again.
"""

from collections.abc import Iterable

from msgspec import Struct

from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.wire import decode, encode

__all__ = ["HOLD", "HOLD_AGAIN_S", "Order", "give_order", "hold", "leave_key", "let_go", "order_key", "orders_to"]

ORDER_LIFETIME_S = 3600.0
"""An order that nobody is there to follow goes by itself."""
HOLD = b"hold"
"""The key of what tells all nodes to hold, in the map of nodes."""
HOLD_LIFETIME_S, HOLD_AGAIN_S = 15.0, 3.0
"""It goes by itself when who asked for it has gone."""


class Order(Struct, frozen=True, kw_only=True):
    """To one node."""

    leave: bool = False
    """Hand everything over, and end."""
    drain: bool = False
    """Hand everything over, and stay. An order with neither takes that back."""


def order_key(node: str) -> bytes:
    """Where orders to this node are."""
    return b"order/" + node.encode()


def leave_key(node: str) -> bytes:
    """Where its order to leave is, besides: what is there, no other order replaces."""
    return b"leave/" + node.encode()


async def give_order(grid: Grid, node: str, order: Order) -> bool:
    """Returns once it is stored. False: it was told to leave, and is told nothing else. Raises `GridError`."""
    if order.leave:
        await grid.set(Map.NODES, 0, leave_key(node), encode(order), ttl_s=ORDER_LIFETIME_S)
    elif (await orders_to(grid, [node]))[node].leave:
        return False  # also for older versions, which look, and give orders, in one place alone
    await grid.set(Map.NODES, 0, order_key(node), encode(order), ttl_s=ORDER_LIFETIME_S)
    return True


async def orders_to(grid: Grid, nodes: Iterable[str]) -> dict[str, Order]:
    """What these nodes are told. Raises `GridError`."""
    keys = {node: (leave_key(node), order_key(node)) for node in nodes}
    stored = await grid.get_all(Map.NODES, 0, [key for pair in keys.values() for key in pair])
    found = {}
    for node, pair in keys.items():
        orders = [_read(stored[key]) for key in pair if key in stored]
        found[node] = next((order for order in orders if order.leave), orders[-1] if orders else Order())
    return found


def _read(stored: bytes) -> Order:
    try:
        return decode(stored, Order)
    except TenureError:
        return Order()  # of a version that can't be read here


async def hold(grid: Grid) -> None:
    """Tell all nodes to hold, for a while. Raises `GridError`."""
    await grid.set(Map.NODES, 0, HOLD, encode(Order()), ttl_s=HOLD_LIFETIME_S)


async def let_go(grid: Grid) -> None:
    """Hold no longer. Raises `GridError`."""
    await grid.delete(Map.NODES, 0, HOLD)
