"""`tenure demo`: see it."""

import json as json_module
import sys

from tenure.cli.ends import Exit
from tenure.cli.options import Output

__all__ = ["demo"]


def demo(
    *,
    jobs: int = 1_000,
    messages: int = 100_000,
    seed: int | None = None,
    output: Output = Output(),
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
        print(f"\nsent           {ledger.sent:>12,}\napplied        {ledger.applied:>12,}\nlost           {ledger.lost:>12,}")
        print(f"doubled        {ledger.doubled:>12,}\nlongest pause  {ledger.longest_pause_ms / 1000:>10.2f} s")
        if ledger.disordered:
            print(f"out of order   {ledger.disordered:>12,}")
    return Exit.DONE if ledger.is_exact else Exit.FAILED
