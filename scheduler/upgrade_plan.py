"""What an upgrade that is under way has yet to do: kept in the grid, so that whoever goes on with it knows."""

from collections.abc import Callable

import msgspec
import trio
from msgspec import Struct

from tenure.scheduler.errors import UpgradeUnderWay
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.wire import decode, encode

__all__ = ["OwnPlan", "UpgradePlan", "freed", "read_plan"]

PLAN = b"upgrade"
STANDS_STILL_S = 20.0
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

    def is_let_go(self) -> bool:
        """Has the process that was at it ended, or stood still for too long? Another may go on with it."""
        return self.touched_ms == 0

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


async def freed(grid: Grid, on_wait: Callable[[UpgradePlan], None]) -> None:
    """Returns when nobody is at an upgrade: of one that was killed, that is seen when its plan has stood still for
    long. Raises `UpgradeUnderWay` as soon as another process is seen to be at one, and `GridError`.

    What counts is whether the plan moves while this process looks: clocks of two machines say nothing of each other.
    """
    stored = await grid.get(Map.NODES, 0, PLAN)
    if stored is None or decode(stored, UpgradePlan).is_let_go():
        return
    on_wait(decode(stored, UpgradePlan))
    with trio.move_on_after(STANDS_STILL_S):
        while True:
            await trio.sleep(LOOK_EVERY_S)
            now = await grid.get(Map.NODES, 0, PLAN)
            if now == stored:
                continue
            if now is not None and not (there := decode(now, UpgradePlan)).is_let_go():
                raise _under_way(there)
            return
    # If it is moved after all, it is not let go.
    await grid.replace_if_same(Map.NODES, 0, PLAN, stored, encode(decode(stored, UpgradePlan).touched(0)))


def _under_way(plan: UpgradePlan) -> UpgradeUnderWay:
    return UpgradeUnderWay(
        f"an upgrade is under way already (by {plan.by}, {len(plan.left)} nodes are left): wait for it, or end that "
        "command"
    )


class OwnPlan:
    """One process's plan: taken where there is none, or one that was let go, and then moved from its own last value.

    A process that was suspended for long finds another's, or none because another has carried it out: it has lost it.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._is_held = False
        self._may_be: list[bytes] = []
        """What is stored, if it is ours: the last value that is known to be, and those whose outcome is not known."""

    async def keep(self, plan: UpgradePlan) -> None:
        """This is the plan now. Raises `UpgradeUnderWay` if it is not (any more) ours to say, and `GridError`: then it
        may be or not, and is known after the next try."""
        new = encode(plan)
        if new not in self._may_be:
            self._may_be.append(new)
        if not (await self._move(new) if self._is_held else await self._take(new)):
            raise UpgradeUnderWay(
                f"this upgrade (by {plan.by}) stood still for long, and another command has gone on with it or ended "
                "it since. See `tenure upgrade status`"
            )
        self._is_held, self._may_be = True, [new]

    async def forget(self, plan: UpgradePlan) -> None:
        """It is done. Raises as `keep` does."""
        await self.keep(plan)  # nobody takes it within the next seconds
        await self._grid.delete(Map.NODES, 0, PLAN)

    async def _take(self, new: bytes) -> bool:
        while True:
            there = await self._grid.put_if_absent(Map.NODES, 0, PLAN, new)
            if there is None or there == new:
                return True
            other = decode(there, UpgradePlan)
            if there not in self._may_be and not other.is_let_go():
                raise _under_way(other)
            if await self._grid.replace_if_same(Map.NODES, 0, PLAN, there, new):
                return True

    async def _move(self, new: bytes) -> bool:
        for was in self._may_be:
            if await self._grid.replace_if_same(Map.NODES, 0, PLAN, was, new):
                return True
        return False
