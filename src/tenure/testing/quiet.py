"""What is yet to come in a tenure: by its timers and retries, and because it is at work."""

from collections.abc import Hashable, Iterator, Mapping

from tenure.scheduler.errors import Final
from tenure.scheduler.inlanes import is_passed
from tenure.scheduler.keys import split_slot_key
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Definition, Failure, Status, Timer, decode

__all__ = ["at_work", "due_times_ms", "unstarted", "untaken"]


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


def at_work(tenure: Tenure) -> Iterator[Hashable]:
    """What it is at: turns that run or could, what is to be committed or is on its way. Each by a name of its own."""
    turns, partition = tenure.turns, tenure.partition
    if turns.draft.wanted or turns.in_flight is not None:
        yield partition, "commit", tenure.state.next_slot
    if not tenure.courier.is_quiet():
        yield partition, "outbox", tenure.state.next_slot
    for live in tenure.lives.by_id.values():
        if live.running or live.loading or (live.queue and live.may_run()):
            yield partition, "turn", live.id, live.turns


def untaken(tenure: Tenure, inbox: Mapping[bytes, bytes]) -> Iterator[Hashable]:
    """Messages that are stored, and that it has not taken."""
    lanes = tenure.inlanes
    for key in inbox:
        if split_slot_key(key) and not is_passed(key, lanes.cursors, lanes.watermark, lanes.incarnation):
            yield tenure.partition, "message", key


def unstarted(tenure: Tenure, definitions: Mapping[bytes, bytes]) -> Iterator[Hashable]:
    """Jobs that are scheduled, and that it has not made yet."""
    for key, value in definitions.items():
        id = key.decode(errors="replace")
        live = tenure.lives.by_id.get(id)
        if not (live.exists() if live else id in tenure.state.jobs):
            try:
                if decode(value, Definition).wanted != "removed":
                    yield tenure.partition, "job", id
            except Final:
                pass
