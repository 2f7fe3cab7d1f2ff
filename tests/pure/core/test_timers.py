"""When a cron comes due next, also where clocks are changed."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tenure.scheduler.errors import BadSchedule
from tenure.scheduler.timers import check_cron, next_cron_ms, ring
from tenure.scheduler.wire import Timer

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
