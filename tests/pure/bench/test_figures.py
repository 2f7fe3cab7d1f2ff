"""Figures are what they say they are."""

import pytest

from tenure.bench.figures import combine, median_of, percentile, shown


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (99, 10), (100, 10), (0, 1), (1, 1)])
def test_percentile_is_the_smallest_value_that_so_many_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_percentile_of_many() -> None:
    assert percentile(range(1, 1001), 99) == 990
    assert percentile([3.5], 99) == 3.5


def test_median_of_several_tries_shows_them_all() -> None:
    result = median_of([{"a": 3.0, "exact": True}, {"a": 1.0, "exact": True}, {"a": 2.0, "exact": True}])
    assert result == {"a": 2.0, "a_all": [3.0, 1.0, 2.0], "exact": True}


def test_one_inexact_try_spoils_all() -> None:
    assert median_of([{"a": 1, "exact": True}, {"a": 1, "exact": False}])["exact"] is False
    results = {"exact": True}
    combine(results, {"a": 1, "exact": False})
    combine(results, {"b": 1, "exact": True})
    assert results == {"a": 1, "b": 1, "exact": False}


def test_figures_are_shown_with_the_digits_that_mean_something() -> None:
    text = shown({"s": 0.123456, "n": 123456.7, "all": [1.5, 2000.4], "exact": False})
    assert text == "s 0.1235, n 123,457, all 1.5/2,000, exact NO"
