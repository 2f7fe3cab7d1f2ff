"""What is yet to come in a tenure: by its timers and retries, and because it is at work."""

from collections.abc import Iterator

from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Failure, Status, Timer

__all__ = ["due_times_ms", "is_at_work"]


def due_times_ms(tenure: Tenure) -> Iterator[int]:
    """When its jobs wake or are tried again; not of those that can't run."""
    for id, record in tenure.state.jobs.items():
        live = tenure.lives.by_id.get(id)
        if live is None:
            if tenure.host.type_of(record)[0] is not None:
                yield from _due(record.status, record.timer, record.failure)
        elif not live.stuck:
            yield from _due(live.status, live.timer, live.failure)
    yield from tenure.supervisor.due_times_ms()


def _due(status: str, timer: Timer | None, failure: Failure | None) -> Iterator[int]:
    if timer is not None and status == Status.RUNNING and (due_ms := timer.first_ms()):
        yield due_ms
    if failure is not None and failure.retry_ms:
        yield failure.retry_ms


def is_at_work(tenure: Tenure) -> bool:
    """Is there a turn that runs or could, or something to be committed?"""
    turns = tenure.turns
    if turns.draft.wanted or turns.in_flight is not None or any(tenure.state.outbox.values()):
        return True
    return any(live.running or live.loading or (live.queue and live.may_run()) for live in tenure.lives.by_id.values())
