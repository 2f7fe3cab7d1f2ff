"""`tenure repair`: what of a cluster's bookkeeping is damaged, and mend what can be mended."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tenure.cli.connection import connected_grid
from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import counted, print_json, say

if TYPE_CHECKING:
    from tenure.scheduler.repairing import Damage

__all__ = ["repair"]


def repair(
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Mend a cluster's bookkeeping, where something has damaged it, and say what can't be mended.

    Jobs are never touched: what only they could tell comes back with a snapshot. Exit code 1 if something is left.

    Parameters
    ----------
    dry_run
        Only say what is damaged, and what would be done.
    """
    import trio

    mended, left = trio.run(_repair, connection, dry_run)
    for damage in (*mended, *left):
        if connection.json:
            done = damage in mended and not dry_run
            said = {"where": damage.where, "finding": damage.finding, "remedy": damage.remedy, "mended": done}
            print_json(said)
        else:
            print(f"{'✓' if damage in mended else '✗'} {damage.where}: {damage.finding}; {damage.remedy}.")
    if not connection.json:
        verb = "would be mended" if dry_run else "mended"
        say(f"{counted(len(mended), 'thing')} {verb}, {len(left)} left.")
    is_well = not any(damage.harms for damage in left) and not (dry_run and mended)
    return Exit.DONE if is_well else Exit.FAILED


async def _repair(connection: Connection, dry_run: bool) -> "tuple[list[Damage], list[Damage]]":
    from tenure.connect import wall_clock_ms
    from tenure.scheduler.repairing import damages

    async with connected_grid(connection) as grid:
        found = await damages(grid, wall_clock_ms())
        mended = [damage for damage in found if damage.mend is not None]
        if not dry_run:
            for damage in mended:
                assert damage.mend is not None
                await damage.mend()
        return mended, [damage for damage in found if damage.mend is None]
