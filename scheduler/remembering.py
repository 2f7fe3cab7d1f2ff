"""Ids of messages that jobs have had: kept as long as was promised, and no more of them than a partition has room for.

    full ──► clients hold back what is for jobs to which they send with ids (see `holding`), until enough have
             expired ──► they go on

What was promised is kept: an id is never forgotten early. So it is the publisher who is told, as it waits, and at its
deadline (`Backlogged`). What jobs send with ids is remembered in any case, as partitions' lanes never wait.
"""

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Remembering"]

JOBS_A_SLICE = 1000
THIN = 0.9
"""There is room again when so much of the limit is left."""


class Remembering:
    """That of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.settings, self.state = tenure, tenure.settings, tenure.state
        self.is_full = self.is_over(1.0)

    def is_over(self, share: float) -> bool:
        """Are so many times the limits remembered?"""
        state, settings = self.state, self.settings
        return (
            state.remembered_count >= share * settings.remembered_max
            or state.remembered_bytes >= share * settings.remembered_bytes_max
        )

    def added(self) -> None:
        """A record with more of them is committed."""
        if not self.is_full and self.is_over(1.0):
            self.is_full = True
            self.tenure.host.report(
                f"{self.said()}: clients that publish there with ids wait until some have "
                "expired. Set remembered_max and remembered_bytes_max higher, or remember_s of the job types lower"
            )

    def said(self) -> str:
        """For people: how many there are."""
        partition, state = self.tenure.partition, self.state
        return (
            f"partition {partition} remembers {state.remembered_count} ids of messages, {state.remembered_bytes} bytes"
        )

    async def expire(self) -> None:
        """Forget what need not be remembered any more."""
        now_ms = self.tenure.host.clocks.past_ms()
        for n, job in enumerate(list(self.state.remembered), 1):
            while not self.state.forget_expired(job, now_ms):
                await trio.lowlevel.checkpoint()
            if n % JOBS_A_SLICE == 0:
                await trio.lowlevel.checkpoint()
        if self.is_full and not self.is_over(THIN):
            self.is_full = False
            self.tenure.holding.ids_thin()
