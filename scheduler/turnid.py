"""What turns are called: a name that is the same on every node that tries, and of no other turn."""

from tenure.scheduler.keys import split_slot_key
from tenure.scheduler.wire import Envelope, Kind

__all__ = ["EVENTS", "turn_id"]

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
    if envelope.kind in (Kind.TIMEOUT, Kind.CRON, Kind.RESUMED):
        return f"{job}/{generation}/{EVENTS[envelope.kind]}@{envelope.index}"
    if envelope.kind == Kind.ACTIVITY:
        return f"{job}/{generation}/activity@{envelope.source}"
    if envelope.kind != Kind.MESSAGE:
        return f"{job}/{generation}/{EVENTS.get(envelope.kind, 'question')}"
    sender, lane, n = split_slot_key(envelope.slot) or (b"", 0, 0)
    return f"{job}/{generation}/{sender.hex()}.{lane}.{n}.{envelope.index}"
