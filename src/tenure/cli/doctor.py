"""`tenure doctor`: a verdict for each thing that the promises rest on, with what to do about it."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tenure.cli.connection import WAYS_BACK, cluster_of, connected_grid
from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json

if TYPE_CHECKING:
    from tenure.members import Verdict
    from tenure.scheduler.grid.port import Grid

__all__ = ["doctor"]

ABOUT_THIS_MACHINE = ("Java", "Hazelcast")
MARKS = {"good": "✓", "warning": "!", "bad": "✗"}


def doctor(
    *,
    strict: Annotated[bool, Parameter(negative="")] = False,
    accept: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Check a cluster: a verdict for each thing that the promises rest on.

    Exit code 0 if nothing is bad, 1 if something is, 3 if no member can be reached.

    Parameters
    ----------
    strict
        Exit code 1 also for what is only a warning (`!`): for alerts.
    accept
        It is meant to be another cluster than the one that was seen at this address before: say so no more.
    """
    import trio

    verdicts, code = trio.run(_examine, connection, strict, accept)
    for verdict in verdicts:
        if connection.json:
            print_json(
                {
                    "about": verdict.about,
                    "standard": verdict.standard.value,
                    "finding": verdict.finding,
                    "next_step": verdict.next_step,
                }
            )
        else:
            line = f"{MARKS[verdict.standard.value]} {verdict.about}: {verdict.finding}"
            print(f"{line}. {verdict.next_step}" if verdict.next_step else line)
    return code


async def _examine(connection: Connection, strict: bool, accept: bool) -> "tuple[list[Verdict], Exit]":
    from tenure.cli.examination import examine_cluster, examine_machine
    from tenure.members import Standard, Verdict
    from tenure.scheduler.grid.hazelcast import CannotConnect

    verdicts = await examine_machine()
    try:
        async with connected_grid(connection) as grid:
            where = ", ".join(member.address for member in grid.ownership().members)
            verdicts.append(Verdict("members", Standard.GOOD, f"{cluster_of(connection)} answers: {where}"))
            verdicts += await examine_cluster(grid, timeout_s=connection.timeout)
            verdicts += await _identity(grid, cluster_of(connection), accept)
    except CannotConnect as error:
        next_step = "Start one with `tenure member`, or name the right cluster with --cluster."
        verdicts.append(Verdict("members", Standard.BAD, str(error).rstrip("."), next_step))
        return verdicts, Exit.UNREACHABLE
    # What this machine lacks is no fault of the cluster's.
    fatal = (Standard.BAD, Standard.WARNING) if strict else (Standard.BAD,)
    ailing = any(verdict.standard in fatal for verdict in verdicts if verdict.about not in ABOUT_THIS_MACHINE)
    return verdicts, Exit.FAILED if ailing else Exit.DONE


async def _identity(grid: "Grid", address: str, accept: bool) -> "list[Verdict]":
    """Is it the cluster that was seen here before? Nothing is said where it is."""
    from tenure.cli.seen import another_than_before
    from tenure.members import Standard, Verdict
    from tenure.scheduler.cluster import find
    from tenure.scheduler.errors import TenureError
    from tenure.scheduler.grid.port import GridError

    try:
        cluster = await find(grid)
    except (GridError, TenureError):
        return []  # that was said
    what = another_than_before(address, cluster, accept=accept) if cluster is not None and grid.address else ""
    return [Verdict("identity", Standard.BAD, what, WAYS_BACK)] if what else []
