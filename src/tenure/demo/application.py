"""The demo's jobs: each keeps count of what it gets from each sender; the ledger is made from their states alone."""

import time
from typing import Any

import tenure

__all__ = ["Account"]


@tenure.job("account")
class Account(tenure.Job):
    """Messages carry their sender, a number that grows by one for this sender and job, and when they were sent."""

    last: dict[str, int] = {}
    """sender -> the highest number that came"""
    missing: dict[str, list[int]] = {}
    """sender -> lower numbers that did not"""
    applied: int = 0
    doubled: int = 0
    disordered: int = 0
    waited_ms_max: int = 0
    """The longest that a message waited, from being handed to the publisher until this turn."""

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        sender, n = message["sender"], message["n"]
        last = self.last.get(sender, 0)
        if n > last:
            if n > last + 1:
                self.missing.setdefault(sender, []).extend(range(last + 1, n))
            self.last[sender] = n
            self.applied += 1
        elif n in self.missing.get(sender, ()):
            self.missing[sender].remove(n)
            self.applied += 1
            self.disordered += 1
        else:
            self.doubled += 1
        self.waited_ms_max = max(self.waited_ms_max, time.time_ns() // 1_000_000 - message["at_ms"])
