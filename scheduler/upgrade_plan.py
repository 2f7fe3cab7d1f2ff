"""What an upgrade that is under way has yet to do: kept in the grid, so that whoever goes on with it knows."""

from collections.abc import Callable

import msgspec
import trio
from msgspec import Struct

from tenure.scheduler.errors import UpgradeUnderWay
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.wire import decode, encode

__all__ = ["UpgradePlan", "forget_plan", "freed", "keep_plan", "read_plan"]

PLAN = b"upgrade"
TOUCHED_WITHIN_MS = 20_000
"""A plan that nobody has touched for so long has been left behind."""
LOOK_EVERY_S = 0.5


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
    step: list[str] = []
    """Those that a step has begun to replace, also when some have gone since; empty between steps."""
    token: str = ""
    """What the nodes say that are started for them (see `Coming`)."""

    def touched(self, now_ms: int) -> "UpgradePlan":
        """Still at it."""
        return msgspec.structs.replace(self, touched_ms=now_ms)

    def with_step(self, old: list[str], token: str) -> "UpgradePlan":
        """These are being replaced."""
        return msgspec.structs.replace(self, step=old, token=token)

    def with_replaced(self, old: list[str], new: list[str], now_ms: int) -> "UpgradePlan":
        """These have gone, and those have come."""
        pairs = dict(zip(old, [*new, *("" for _ in old)], strict=False))
        left = [node for node in self.left if node not in pairs]
        return msgspec.structs.replace(
            self, replaced={**self.replaced, **pairs}, left=left, touched_ms=now_ms, step=[], token=""
        )


async def read_plan(grid: Grid) -> UpgradePlan | None:
    """The plan of an upgrade that is under way, or was given up. Raises `GridError`."""
    stored = await grid.get(Map.NODES, 0, PLAN)
    return None if stored is None else decode(stored, UpgradePlan)


async def freed(grid: Grid, now_ms: Callable[[], int], on_wait: Callable[[UpgradePlan], None]) -> None:
    """Returns when nobody is at an upgrade: of one that was killed a moment ago, that is seen when its plan has stood
    still for long. Raises `UpgradeUnderWay` as soon as another process is seen to be at one, and `GridError`."""
    stored = await grid.get(Map.NODES, 0, PLAN)
    if stored is None or _is_free(plan := decode(stored, UpgradePlan), now_ms()):
        return
    on_wait(plan)
    with trio.move_on_after(TOUCHED_WITHIN_MS / 1000):
        while True:
            await trio.sleep(LOOK_EVERY_S)
            now = await grid.get(Map.NODES, 0, PLAN)
            if now == stored:
                continue
            if now is not None and not _is_free(there := decode(now, UpgradePlan), now_ms()):
                raise _under_way(there)
            return
    # By its own clock it may be in the future; and if it is touched after all, it is not let go.
    await grid.replace_if_same(Map.NODES, 0, PLAN, stored, encode(plan.touched(0)))


def _is_free(plan: UpgradePlan, now_ms: int) -> bool:
    return now_ms - plan.touched_ms >= TOUCHED_WITHIN_MS


def _under_way(plan: UpgradePlan) -> UpgradeUnderWay:
    return UpgradeUnderWay(
        f"an upgrade is under way already (by {plan.by}, {len(plan.left)} nodes are left): wait for it, or end that "
        "command"
    )


async def keep_plan(grid: Grid, plan: UpgradePlan, now_ms: int) -> None:
    """This is the plan now. Raises `UpgradeUnderWay` if another process is at one, and `GridError`."""
    while True:
        there = await grid.put_if_absent(Map.NODES, 0, PLAN, encode(plan))
        if there is None:
            return
        other = decode(there, UpgradePlan)
        if other.by != plan.by and not _is_free(other, now_ms):
            raise _under_way(other)
        if await grid.replace_if_same(Map.NODES, 0, PLAN, there, encode(plan)):
            return


async def forget_plan(grid: Grid) -> None:
    """It is done. Raises `GridError`."""
    await grid.delete(Map.NODES, 0, PLAN)
