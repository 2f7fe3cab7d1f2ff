"""What of a partition is near its bound: said before anybody has to wait."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["NEAR", "Bound", "near"]

NEAR = 0.8


class Bound(NamedTuple):
    """One that is."""

    what: str
    held: int
    limit: int
    setting: str


def near(tenure: "Tenure") -> list[Bound]:
    """Those of its tables and buffers that hold four fifths of what they may, or more."""
    state, settings, letters = tenure.state, tenure.settings, tenure.dead_letters
    fullest = max(tenure.lives.by_id.values(), key=lambda live: len(live.queue), default=None)
    largest = max(tenure.lives.by_id.values(), key=lambda live: live.mail_bytes, default=None)
    bounds = [
        Bound("dead letters", letters.count, settings.dead_letters_max, "dead_letters_max"),
        Bound("bytes of dead letters", letters.size_bytes, settings.dead_letters_bytes_max, "dead_letters_bytes_max"),
        Bound("remembered ids", state.remembered_count, settings.remembered_max, "remembered_max"),
        Bound("bytes of remembered ids", state.remembered_bytes, settings.remembered_bytes_max, "remembered_bytes_max"),
        Bound("unsent bytes", tenure.courier.unsent_bytes, settings.outbox_bytes_max, "outbox_bytes_max"),
    ]
    if fullest is not None and largest is not None:
        count, size = len(fullest.queue), largest.mail_bytes
        bounds += [
            Bound(f"messages for {fullest.id!r}", count, settings.mailbox_messages_max, "mailbox_messages_max"),
            Bound(f"bytes of messages for {largest.id!r}", size, settings.mailbox_bytes_max, "mailbox_bytes_max"),
        ]
    return [bound for bound in bounds if bound.held >= NEAR * bound.limit]
