"""How large a journal record may become: about so many bytes are counted while it is a draft.

    taking, definitions, timers ──► up to their shares ─┐
    turns ────────────────────────► one after the other ┴─► the draft is full ──► commit ──► go on with the next

Nothing begins in a draft that is full. What one turn may add has a limit of its own, so a record has one too.
"""

from typing import TYPE_CHECKING

from tenure.scheduler.wire import Envelope

if TYPE_CHECKING:
    from tenure.scheduler.live import Live
    from tenure.scheduler.settings import NodeSettings

__all__ = ["ENVELOPE_BYTES", "JOB_BYTES", "PAGE_BYTES_MAX", "Budget", "envelope_bytes", "job_bytes"]

ENVELOPE_BYTES = 110
"""An envelope's without its texts and its body: numbers, the key of its slot, what begins each field."""
JOB_BYTES = 300
"""A job's record without its state and what few jobs have."""
SLACK_SHARE = 16
"""Estimates may be wrong by this share of a record."""
PAGE_BYTES_MAX = 2**19
"""An answer that is a list goes on in the next page after so many."""


def envelope_bytes(envelope: Envelope) -> int:
    """About as many as it has in a record."""
    return (
        ENVELOPE_BYTES
        + len(envelope.body)
        + len(envelope.to)
        + len(envelope.id)
        + len(envelope.source)
        + len(envelope.topic)
    )


def job_bytes(live: "Live") -> int:
    """About as many as its record has."""
    size = JOB_BYTES + len(live.id) + len(live.state)
    if live.failure is not None:
        size += len(live.failure.error) + len(live.failure.traceback)
    if live.topics:
        size += sum(map(len, live.topics))
    if live.activities:
        size += sum(
            500 + sum(map(len, (activity.work, activity.details, activity.notes, activity.result, activity.error)))
            for activity in live.activities
        )
    return size + len(live.pickled)


class Budget:
    """What a draft of this node may hold before it is committed."""

    def __init__(self, settings: "NodeSettings") -> None:
        self.full_bytes = settings.record_bytes_max - settings.turn_bytes_max - settings.record_bytes_max // SLACK_SHARE
        """Nothing more begins in a draft that has so many."""
        self.taken_bytes = self.full_bytes // 2
        """What comes in fills no more of it: turns go on in every record."""
        self.seen_bytes = self.full_bytes // 4
        """The same for definitions and timers, so that messages are taken in every record."""
