"""`tenure demo`: see it."""

import json as json_module
import sys

from tenure.cli.ends import Exit
from tenure.cli.options import USUAL_OUTPUT, Output

__all__ = ["demo"]


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
    import trio

    from tenure.demo import DemoOptions, Ledger, play
    from tenure.demo.stage import Lines, Live, Stage

    options = DemoOptions(jobs=jobs, messages=messages, seed=seed)
    stage: Stage = Live() if sys.stdout.isatty() and not output.json else Lines()
    ledger: Ledger = trio.run(play, options, stage)
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
