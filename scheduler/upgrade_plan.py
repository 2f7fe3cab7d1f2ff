"""What an upgrade that is under way has yet to do: kept in the grid, so that whoever goes on with it knows."""

import msgspec
from msgspec import Struct

from tenure.scheduler.errors import UpgradeUnderWay
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.wire import decode, encode

__all__ = ["UpgradePlan", "forget_plan", "keep_plan", "read_plan"]

PLAN = b"upgrade"
TOUCHED_WITHIN_MS = 20_000
"""A plan that nobody has touched for so long has been left behind."""


class UpgradePlan(Struct, frozen=True, kw_only=True):
    """Which nodes are to be replaced, and which have been."""

    by: str
    """Names the process that carries it out."""
    command: str
    replaced: dict[str, str] = {}
    """old -> new; new is empty where a command elsewhere sees to it"""
    left: list[str]
    at_ms: int
    touched_ms: int

    def touched(self, now_ms: int) -> "UpgradePlan":
        """Still at it."""
        return msgspec.structs.replace(self, touched_ms=now_ms)

    def with_replaced(self, old: list[str], new: list[str], now_ms: int) -> "UpgradePlan":
        """These have gone, and those have come."""
        pairs = dict(zip(old, [*new, *("" for _ in old)], strict=False))
        left = [node for node in self.left if node not in pairs]
        return msgspec.structs.replace(self, replaced={**self.replaced, **pairs}, left=left, touched_ms=now_ms)


async def read_plan(grid: Grid) -> UpgradePlan | None:
    """The plan of an upgrade that is under way, or was given up. Raises `GridError`."""
    stored = await grid.get(Map.NODES, 0, PLAN)
    return None if stored is None else decode(stored, UpgradePlan)


async def keep_plan(grid: Grid, plan: UpgradePlan, now_ms: int) -> None:
    """This is the plan now. Raises `UpgradeUnderWay` if another process is at one, and `GridError`."""
    while True:
        there = await grid.put_if_absent(Map.NODES, 0, PLAN, encode(plan))
        if there is None:
            return
        other = decode(there, UpgradePlan)
        if other.by != plan.by and now_ms - other.touched_ms < TOUCHED_WITHIN_MS:
            raise UpgradeUnderWay(
                f"an upgrade is under way already (by {other.by}, {len(other.left)} nodes are left): wait for it, or "
                "end that command"
            )
        if await grid.replace_if_same(Map.NODES, 0, PLAN, there, encode(plan)):
            return


async def forget_plan(grid: Grid) -> None:
    """It is done. Raises `GridError`."""
    await grid.delete(Map.NODES, 0, PLAN)
