"""When a cron comes due next, also where clocks are changed."""

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduler.errors import BadSchedule
from tenure.scheduler.timers import (
    CLOCKS_APART_MS_MAX,
    TimerWish,
    check_cron,
    due_at_ms,
    due_in_ms,
    granted,
    next_cron_ms,
    ring,
    without_due,
)
from tenure.scheduler.wire import SECONDS_MAX, Timer

PARIS = ZoneInfo("Europe/Paris")
CHANGES = [  # when clocks are changed, in 2025
    ("Europe/Paris", datetime(2025, 3, 30, 1, tzinfo=UTC), datetime(2025, 10, 26, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 3, 9, 7, tzinfo=UTC), datetime(2025, 11, 2, 6, tzinfo=UTC)),
    ("America/Havana", datetime(2025, 3, 9, 5, tzinfo=UTC), datetime(2025, 11, 2, 5, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2025, 10, 4, 15, 30, tzinfo=UTC), datetime(2025, 4, 5, 15, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2025, 4, 6, 2, tzinfo=UTC), datetime(2025, 2, 23, 2, tzinfo=UTC)),
]
CRONS = ["30 2 * * *", "30 1 * * *", "0 0 * * *", "59 0,1,2 * * *", "0-59 1-2 * * *", "45 1 * * SUN", "10,50 2-4 * * *"]
STARRED = ["* * * * *", "*/20 1 * * *", "30 * * * *", "0 */2 * * *", "15 30 2 * * *"]


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def test_on_the_second_pass_of_an_hour_what_the_first_has_had_comes_tomorrow() -> None:
    due = datetime(2025, 10, 26, 2, 30, tzinfo=PARIS)
    second = datetime(2025, 10, 26, 2, 10, tzinfo=PARIS, fold=1)
    tomorrow = datetime(2025, 10, 27, 2, 30, tzinfo=PARIS)
    assert next_cron_ms("30 2 * * *", "Europe/Paris", ms(second.replace(fold=0))) == ms(due)
    assert next_cron_ms("30 2 * * *", "Europe/Paris", ms(due)) == ms(tomorrow)
    assert next_cron_ms("30 2 * * *", "Europe/Paris", ms(second)) == ms(tomorrow)
    assert next_cron_ms("30 2,3 * * *", "Europe/Paris", ms(second)) == ms(due + timedelta(hours=1))
    assert next_cron_ms("*/30 2 * * *", "Europe/Paris", ms(second)) == ms(due.replace(fold=1))


@pytest.mark.parametrize("cron", [*CRONS, *STARRED])
@pytest.mark.parametrize(("zone", "forward", "back"), CHANGES)
def test_the_next_time_is_always_yet_to_come(zone: str, forward: datetime, back: datetime, cron: str) -> None:
    for change in (forward, back):
        local = change.astimezone(ZoneInfo(zone))
        assert (local - timedelta(seconds=1)).utcoffset() != local.utcoffset()
        for minutes in range(-150, 150, 7):
            after_ms = ms(change + timedelta(minutes=minutes)) + 1
            assert next_cron_ms(cron, zone, after_ms) > after_ms


@pytest.mark.parametrize("policy", ["run_once", "skip", "catch_up"])
def test_a_timer_that_is_late_by_a_change_of_clocks_is_not_due_again(policy: str) -> None:
    due_ms = ms(datetime(2025, 10, 26, 2, 30, tzinfo=PARIS))
    now_ms = ms(datetime(2025, 10, 26, 2, 10, tzinfo=PARIS, fold=1))
    timer, fired = ring(Timer(0, "30 2 * * *", "Europe/Paris", due_ms), now_ms, policy, 1000)
    assert timer is not None
    assert timer.cron_due_ms == ms(datetime(2025, 10, 27, 2, 30, tzinfo=PARIS))
    assert fired == ([] if policy == "skip" else [("cron", due_ms)])


@pytest.mark.parametrize("cron", ["every day", "0 0 30 2 *", "0 0 30 2 1-5/9 *", "61 * * * *"])
def test_what_never_comes_due_is_refused(cron: str) -> None:
    with pytest.raises(BadSchedule):
        check_cron(cron, "Europe/Paris")


MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % MINUTE_MS
CRON, ZONE = "* * * * *", "UTC"


def test_a_clock_that_was_a_year_ahead_does_not_hold_up_what_is_armed_again() -> None:
    year_ms = 365 * 86_400_000
    timer, _ = ring(Timer(0, CRON, ZONE, BEGIN_MS), BEGIN_MS + year_ms, "run_once", 1000)
    assert timer is not None
    assert timer.cron_due_ms > BEGIN_MS + year_ms > BEGIN_MS + CLOCKS_APART_MS_MAX
    again = granted(timer, TimerWish(cron=(CRON, ZONE), asked_ms=BEGIN_MS))
    assert again is not None
    assert again.cron_due_ms == BEGIN_MS + MINUTE_MS


class Reader:
    """What a reader of the guide expects of a job's timers."""

    def __init__(self) -> None:
        self.due_ms = 0
        self.since_ms: int | None = None
        self.crons: list[int] = []

    def grant(self, wish: TimerWish) -> None:
        if wish.due_ms is not None:
            self.due_ms = wish.due_ms
        if wish.cron is not None:
            self.since_ms = wish.asked_ms if wish.cron[0] else None

    def ring(self, kind: str, due_ms: int, now_ms: int) -> None:
        assert due_ms <= now_ms
        if kind == "timeout":
            assert due_ms == self.due_ms
            self.due_ms = 0
        else:
            assert self.since_ms is not None
            assert self.since_ms < due_ms
            assert due_ms not in self.crons
            self.crons.append(due_ms)


@given(st.integers(0, 2**32), st.sampled_from(("run_once", "skip", "catch_up")))
def test_whatever_is_wished_for_while_timers_ring_is_as_a_reader_expects(seed: int, policy: str) -> None:
    dice, reader = Random(seed), Reader()
    timer: Timer | None = None
    now_ms, wish = BEGIN_MS, None
    for _ in range(60):
        now_ms = max(BEGIN_MS, now_ms + dice.choice((1, 7_000, 25_000, 3 * MINUTE_MS, -4_000)))
        if timer is not None and 0 < timer.first_ms() <= now_ms:
            was_due_ms = timer.due_ms
            timer, fired = ring(timer, now_ms, policy, MINUTE_MS)
            for kind, due_ms in fired:
                reader.ring(kind, due_ms, now_ms)
            if was_due_ms and was_due_ms <= now_ms:
                reader.due_ms = 0  # or it was skipped, as it was late
        if wish is None:
            wish = TimerWish()
        elif dice.random() < 0.4:
            timer = granted(timer, wish)
            reader.grant(wish)
            wish = None
        elif dice.random() < 0.2:
            wish = None  # its turn has failed
        else:
            wish = dice.choice(
                (
                    wish._replace(due_ms=now_ms + dice.choice((-5_000, 1, 30_000))),
                    wish._replace(cron=(CRON, ZONE), asked_ms=now_ms),
                    wish._replace(cron=("*/5 * * * *", ZONE), asked_ms=now_ms),
                    TimerWish(0, ("", "")),
                )
            )
        kept = timer or Timer()
        assert kept.due_ms == reader.due_ms
        assert bool(kept.cron) == (reader.since_ms is not None)
        if kept.cron:
            assert kept.cron_due_ms == next_cron_ms(kept.cron, ZONE, kept.cron_due_ms - 1)
            assert kept.cron_due_ms > kept.cron_passed_ms


def test_delays_and_times_become_due_times_and_what_is_neither_is_refused() -> None:
    assert [due_in_ms(1000, delay_s) for delay_s in (0, 0.0001, 2.5, 3600)] == [1001, 1001, 3500, 3_601_000]
    assert due_in_ms(0, SECONDS_MAX) == SECONDS_MAX * 1000
    for delay in (-0.1, SECONDS_MAX + 1, float("nan"), True, "3", None):
        with pytest.raises(BadSchedule, match="from 0 to a hundred years"):
            due_in_ms(0, delay)  # type: ignore[arg-type]
    assert due_at_ms(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)) == 2000
    assert due_at_ms(datetime(1960, 1, 1, tzinfo=UTC)) == 1
    with pytest.raises(BadSchedule, match="has no time zone"):
        due_at_ms(datetime(2025, 1, 1))
    with pytest.raises(BadSchedule, match="a time is a datetime"):
        due_at_ms("tomorrow")  # type: ignore[arg-type]


@pytest.mark.parametrize("misfire", ["run_once", "skip", "catch_up"])
def test_what_is_due_in_this_very_millisecond_rings(misfire: str) -> None:
    timer = Timer(60_000, "* * * * *", "UTC", 60_000)
    assert ring(timer, 59_999, misfire, 0) == (timer, [])
    left, fired = ring(timer, 60_000, misfire, 0)
    assert fired == [("timeout", 60_000), ("cron", 60_000)]
    assert left == Timer(0, "* * * * *", "UTC", 120_000, 60_000)


def test_what_rings_once_leaves_the_cron_alone() -> None:
    assert without_due(Timer(5, due_by=7)) is None
    assert without_due(Timer(5, "* * * * *", "UTC", 60_000, 1, 7)) == Timer(0, "* * * * *", "UTC", 60_000, 1, 0)
