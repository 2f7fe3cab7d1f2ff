"""Times: when a job wakes. Pure: `now` comes in, due times come out."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from tenure.scheduler.errors import BadSchedule
from tenure.scheduler.wire import SECONDS_MAX, Timer

__all__ = ["TimerWish", "check_cron", "due_at_ms", "due_in_ms", "granted", "next_cron_ms", "ring", "without_due"]

CATCH_UP_MAX = 1000
"""A catch-up fires at most so many missed times; what is beyond is skipped, and logged."""
CLOCKS_APART_MS_MAX = 86_400_000
"""What has rung by a clock that was further ahead than this does not hold a job up."""


def due_in_ms(now_ms: int, delay_s: float) -> int:
    """The due time `delay_s` from now."""
    if not isinstance(delay_s, int | float) or isinstance(delay_s, bool) or not 0 <= delay_s <= SECONDS_MAX:
        raise BadSchedule(f"a delay is a number of seconds from 0 to a hundred years, not {delay_s!r}")
    return now_ms + max(1, round(delay_s * 1000))


def due_at_ms(when: datetime) -> int:
    """The due time of an aware datetime; a naive one could mean anything and is refused."""
    if not isinstance(when, datetime):
        raise BadSchedule(f"a time is a datetime, not {when!r}")
    if when.tzinfo is None or when.utcoffset() is None:
        raise BadSchedule(
            f"{when!r} has no time zone; say datetime.now(UTC), or datetime(…, tzinfo=ZoneInfo('Europe/Paris'))"
        )
    return max(1, round(when.timestamp() * 1000))


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule(f"no time zone {name!r}; names look like 'Europe/Paris' or 'UTC'") from None


def check_cron(expression: str, zone: str) -> None:
    """Raises `BadSchedule` if this is no cron expression, or never comes due."""
    next_cron_ms(expression, zone, round(datetime.now(UTC).timestamp() * 1000))


def next_cron_ms(expression: str, zone: str, after_ms: int) -> int:
    """The first time after `after_ms` that the expression names, on that zone's clock."""
    local = datetime.fromtimestamp(after_ms / 1000, _zone(zone))
    try:
        times = CronSim(expression, local)
    except CronSimError as error:
        raise BadSchedule(f"{expression!r} is no cron expression (minute hour day month weekday): {error}") from error
    for found in times:
        # Of an hour that comes twice, CronSim names the first: on its second pass, what is found may have been.
        if (due_ms := round(found.timestamp() * 1000)) > after_ms:
            return due_ms
    raise BadSchedule(f"{expression!r} never comes due")


class TimerWish(NamedTuple):
    """What a turn asked of its job's timers. None: nothing, so that this kind stays as it is."""

    due_ms: int | None = None
    """0: none any more."""
    cron: tuple[str, str] | None = None
    """(expression, zone); an empty expression: none any more."""
    asked_ms: int = 0
    """When it asked for that."""


def granted(timer: Timer | None, wish: TimerWish, by: int = 0) -> Timer | None:
    """The timer after a turn that asked for this, and that has succeeded. `timer` is as it is by then: it may have rung
    while the turn ran. No time that has rung recurs, also where the clock of who asks is behind that of who rang."""
    timer = timer or Timer()
    if wish.due_ms is not None:
        timer = replace(timer, due_ms=wish.due_ms, due_by=by if wish.due_ms else 0)
    if wish.cron is not None:
        (expression, zone), after_ms = wish.cron, wish.asked_ms
        if timer.cron_passed_ms - after_ms <= CLOCKS_APART_MS_MAX:
            after_ms = max(after_ms, timer.cron_passed_ms)
        cron_due_ms = next_cron_ms(expression, zone, after_ms) if expression else 0
        timer = replace(timer, cron=expression, zone=zone, cron_due_ms=cron_due_ms)
    return _or_none(timer)


def without_due(timer: Timer) -> Timer | None:
    """The same, when what rings once has rung."""
    return _or_none(replace(timer, due_ms=0, due_by=0))


def _or_none(timer: Timer) -> Timer | None:
    return timer if timer.due_ms or timer.cron or timer.cron_passed_ms else None


def ring(timer: Timer, now_ms: int, policy: str, grace_ms: int) -> tuple[Timer | None, list[tuple[str, int]]]:
    """What a timer that is due fires under a misfire policy, and the timer that remains.

    Returns the events as ("timeout" | "cron", due time). Late by no more than the grace is on time.
    """
    fired: list[tuple[str, int]] = []
    due_ms, due_by, cron_due_ms, passed_ms = timer.due_ms, timer.due_by, timer.cron_due_ms, timer.cron_passed_ms
    if due_ms and due_ms <= now_ms:
        if policy != "skip" or now_ms - due_ms <= grace_ms:
            fired.append(("timeout", due_ms))
        due_ms = due_by = 0
    if cron_due_ms and cron_due_ms <= now_ms:
        missed = _missed(timer, now_ms) if policy == "catch_up" else [cron_due_ms]
        if policy != "skip" or now_ms - cron_due_ms <= grace_ms:
            fired.extend(("cron", due) for due in missed)
        passed_ms = max(cron_due_ms, now_ms)
        cron_due_ms = next_cron_ms(timer.cron, timer.zone, passed_ms)
    return _or_none(Timer(due_ms, timer.cron, timer.zone, cron_due_ms, passed_ms, due_by)), fired


def _missed(timer: Timer, now_ms: int) -> list[int]:
    missed: list[int] = []
    due = timer.cron_due_ms
    while due <= now_ms and len(missed) < CATCH_UP_MAX:
        missed.append(due)
        due = next_cron_ms(timer.cron, timer.zone, due)
    return missed
