"""`tenure demo` and `tenure chaos`: see it, and shake it."""

import json as json_module
import sys
from typing import TYPE_CHECKING

from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_OUTPUT, Output, Seconds

if TYPE_CHECKING:
    from tenure.demo.course import Course

__all__ = ["chaos", "demo"]


def demo(
    *,
    jobs: int = 1_000,
    messages: int = 100_000,
    seed: int | None = None,
    output: Output = USUAL_OUTPUT,
) -> int:
    """See it: three members and two nodes run jobs under load; a node is killed, then a member, and a node joins.

    Ends with the ledger, made from the jobs' own states: what was sent, applied, lost and doubled, and the
    longest that any message waited.

    Parameters
    ----------
    jobs
        How many jobs.
    messages
        How many messages they get in all.
    seed
        Decides who is killed, and the order of messages.
    """
    from tenure.demo import DemoOptions

    return _play(DemoOptions(jobs=jobs, messages=messages, seed=seed).course(), output)


def chaos(
    *,
    seconds: Seconds = 60.0,
    nodes: int = 3,
    members: int = 3,
    jobs: int = 1_000,
    rate: int = 2_000,
    seed: int | None = None,
    output: Output = USUAL_OUTPUT,
) -> int:
    """Shake a real cluster of its own under load: nodes are killed, frozen and drained, members killed and replaced.

    Ends with the ledger, made from the jobs' own states, as `tenure demo` does; exit code 1 if it is not exact. One
    member at a time is hurt, and the next only when all data has its backup again.

    Parameters
    ----------
    seconds
        How long messages are sent. In the last six nothing new happens.
    nodes
        How many nodes there are at first; each that is killed or drained is replaced.
    members
        The same for members.
    jobs
        How many jobs.
    rate
        Messages a second.
    seed
        Decides what happens to whom, and the order of messages; not how quick the machine is.
    """
    from tenure.demo import ChaosOptions

    options = ChaosOptions(seconds=seconds, nodes=nodes, members=members, jobs=jobs, rate=rate, seed=seed)
    return _play(options.course(), output)


def _play(course: "Course", output: Output) -> int:
    import trio

    from tenure.demo import Ledger, play
    from tenure.demo.stage import Lines, Live, Stage

    stage: Stage = Live() if sys.stdout.isatty() and not output.json else Lines()
    ledger: Ledger = trio.run(play, course, stage)
    if output.json:
        print(json_module.dumps(ledger.line()))
    else:
        print()
        for name in ("sent", "applied", "lost", "doubled"):
            print(f"{name:<14}{getattr(ledger, name):>12,}")
        if ledger.disordered:
            print(f"{'out of order':<14}{ledger.disordered:>12,}")
        print(f"{'longest pause':<14}{ledger.longest_pause_ms / 1000:>12.2f} s")
    return Exit.DONE if ledger.is_exact else Exit.FAILED
