"""Numbers and times in texts are read and written exactly."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.pipelines.amounts import moment_text, number_of, number_text, time_us
from tenure.jobs.pipelines.durations import microseconds
from tenure.jobs.pipelines.errors import BadOption

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@settings(deadline=None)
@given(st.decimals(-(10**18) + 1, 10**18 - 1, places=18))
def test_numbers_come_back_as_they_are(number):
    text = number_text(number)
    assert Decimal(text) == number
    assert "E" not in text
    assert not ("." in text and text.endswith(("0", ".")))
    assert number_of(text) == number


@pytest.mark.parametrize("text", ["", "x", "1e3", "1.", ".5", "1 2", "٣", "NaN", "Infinity", "1_000", "1\n", "1" * 19])
def test_what_is_no_number(text):
    assert number_of(text) is None


def test_zero_has_one_text():
    assert {number_text(Decimal(text)) for text in ("0", "-0", "0.000", "-0.0")} == {"0"}


@settings(deadline=None)
@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.sampled_from(["", "Z", "+00:00", "-03:30", "+14:00"]),
    st.sampled_from("T "),
)
def test_times(moment, zone, between):
    text = moment.isoformat(sep=between) + zone
    away = timedelta(0)
    if ":" in zone:
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:])) * (-1 if zone[0] == "-" else 1)
    expected = (moment.replace(tzinfo=timezone(away)) - EPOCH) // timedelta(microseconds=1)
    assert time_us(text) == expected
    assert time_us(moment_text(expected)) == expected


def test_seconds_are_times_too():
    assert time_us("0") == 0
    assert time_us("1.5") == 1_500_000
    assert time_us("-0.0000001") == -1
    assert moment_text(-1) == "1969-12-31T23:59:59.999999Z"
    assert moment_text(60_000_000) == "1970-01-01T00:01:00Z"


@pytest.mark.parametrize(
    "text", ["", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T24:00:00Z", "0000-01-01T00:00:00Z", "now"]
)
def test_what_is_no_time(text):
    assert time_us(text) is None


@pytest.mark.parametrize(
    ("span", "us"),
    [
        (2.5, 2_500_000),
        ("90", 90_000_000),
        ("90s", 90_000_000),
        ("1 minute", 60_000_000),
        ("5m", 300_000_000),
        ("20 ms", 20_000),
        ("3 milliseconds", 3_000),
        ("1.5 Hours", 5_400_000_000),
        ("2 days", 172_800_000_000),
    ],
)
def test_spans(span, us):
    assert microseconds(span, "window") == us


@pytest.mark.parametrize("span", ["", "soon", "-1s", "1 fortnight", "s"])
def test_what_is_no_span(span):
    with pytest.raises(BadOption, match="window = "):
        microseconds(span, "window")
