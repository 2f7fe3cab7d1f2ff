"""What turns are called: a name that is the same on every node that tries, and of no other turn.

    JOB/GENERATION/ORIGIN/SENDER.LANE.SLOT.INDEX     a message
    JOB/GENERATION/ORIGIN/timeout.BY@DUE             a timer; BY tells which turn had set it
    JOB/GENERATION/ORIGIN/cron@DUE, …/resumed@EPOCH, …/activity@WHICH, …/started, …/stopped

ORIGIN is the cluster in which the event came into being: two clusters, or two restores of one snapshot, never name two
turns alike. What waited in a snapshot keeps its name. Events that an older version took have no origin: they keep the
name that they had under it, without origin and BY.
"""

import zlib

from tenure.scheduler.keys import split_slot_key
from tenure.scheduler.wire import Envelope, Kind

__all__ = ["EVENTS", "set_by", "step_turn", "turn_id"]

EVENTS = {
    Kind.MESSAGE: "message",
    Kind.START: "started",
    Kind.STOP: "stopped",
    Kind.RESUMED: "resumed",
    Kind.TIMEOUT: "timeout",
    Kind.CRON: "cron",
    Kind.ACTIVITY: "activity",
}


def turn_id(job: str, generation: int, envelope: Envelope) -> str:
    """Derived from what woke the job, so it is the same on every node that tries."""
    origin = envelope.origin
    if not origin:
        return step_turn(job, generation, envelope)
    if envelope.kind == Kind.TIMEOUT and envelope.source:
        return f"{job}/{generation}/{origin}/timeout.{envelope.source}@{envelope.index}"
    return f"{job}/{generation}/{origin}/{_event(envelope)}"


def step_turn(job: str, generation: int, envelope: Envelope) -> str:
    """What journaled steps know their turn by: of no other turn that this job has not finished. Older versions know it
    by this too, so a step is found again whichever version goes on with its turn."""
    return f"{job}/{generation}/{_event(envelope)}"


def set_by(turn: str) -> int:
    """What a timer remembers of the turn that set it, so that two of one time have two names. Never 0."""
    return zlib.crc32(turn.encode("utf-8", "surrogatepass")) or 1


def _event(envelope: Envelope) -> str:
    kind = envelope.kind
    if kind == Kind.MESSAGE:
        sender, lane, n = split_slot_key(envelope.slot) or (b"", 0, 0)
        return f"{sender.hex()}.{lane}.{n}.{envelope.index}"
    if kind in (Kind.TIMEOUT, Kind.CRON, Kind.RESUMED):
        return f"{EVENTS[kind]}@{envelope.index}"
    if kind == Kind.ACTIVITY:
        return f"activity@{envelope.source}"
    return EVENTS.get(kind, "question")
