"""`tenure doctor`: a verdict for each thing that the promises rest on, with what to do about it."""

from typing import TYPE_CHECKING

from tenure.cli.connection import cluster_of, connected_grid
from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json

if TYPE_CHECKING:
    from tenure.members import Verdict

__all__ = ["doctor"]

MARKS = {"good": "✓", "warning": "!", "bad": "✗"}


def doctor(*, connection: Connection = USUAL_CONNECTION) -> int:
    """Check a cluster: a verdict for each thing that the promises rest on.

    Exit code 0 if nothing is bad, 1 if something is, 3 if no member can be reached.
    """
    import trio

    verdicts, code = trio.run(_examine, connection)
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


async def _examine(connection: Connection) -> "tuple[list[Verdict], Exit]":
    from tenure.cli.examination import examine_cluster, examine_machine
    from tenure.members import Standard, Verdict
    from tenure.scheduler.grid.hazelcast import CannotConnect

    verdicts = await examine_machine()
    try:
        async with connected_grid(connection) as grid:
            where = ", ".join(member.address for member in grid.ownership().members)
            verdicts.append(Verdict("members", Standard.GOOD, f"{cluster_of(connection)} answers: {where}"))
            verdicts += await examine_cluster(grid, timeout_s=connection.timeout)
    except CannotConnect as error:
        next_step = "Start one with `tenure member`, or name the right cluster with --cluster."
        verdicts.append(Verdict("members", Standard.BAD, str(error).rstrip("."), next_step))
        return verdicts, Exit.UNREACHABLE
    return verdicts, Exit.FAILED if any(v.standard is Standard.BAD for v in verdicts) else Exit.DONE
