"""What a job type may say of itself, and which states it stores."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake, WrongType
from tenure.scheduler.jobtype import Job, JobType, Registry, Retry, job


class Plain(Job):
    n: int = 0


def tally(ctx: Context, message: Any) -> None:
    """A job that is a function."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"remember_s": math.inf}, "remember_s is a number of seconds from 0 to a hundred years, not inf"),
        ({"remember_s": math.nan}, "remember_s is"),
        ({"remember_s": 1e300}, "remember_s is"),
        ({"remember_s": -1}, "remember_s is"),
        ({"remember_s": "60"}, "remember_s is"),
        ({"misfire_grace_s": math.inf}, "misfire_grace_s is a number of seconds from 0 to a hundred years, not inf"),
        ({"misfire_grace_s": math.nan}, "misfire_grace_s is"),
        ({"misfire_grace_s": -1}, "misfire_grace_s is"),
        ({"misfire_grace_s": None}, "misfire_grace_s is"),
        ({"timeout_s": 0}, "timeout_s is a positive number"),
        ({"timeout_s": math.nan}, "timeout_s is a positive number"),
        ({"timeout_s": "1"}, "timeout_s is a positive number"),
        ({"timeout_s": 1.0}, r"timeout_s can't end a plain handler, .* `async def`, .* \(blocking=True\)"),
        ({"version": 0}, "versions are whole numbers and begin at 1, not 0"),
        ({"version": 1.5}, "versions are"),
        ({"version": "2"}, "versions are"),
        ({"topics": "news"}, r"topics is a tuple of names, \('news',\), not one of them"),
        ({"topics": ("news", "")}, "can't be a topic: .* not ''"),
        ({"topics": ("x" * 501,)}, "can't be a topic"),
        ({"topics": (5,)}, "can't be a topic: .* not 5"),
    ],
)
def test_options_that_no_job_could_run_with_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    types = Registry()
    with pytest.raises(Mistake, match=f"job type 'plain': .*{words}"):
        job("plain", registry=types, **options)(Plain)
    assert len(types) == 0


def test_options_at_the_edge_are_taken() -> None:
    type = JobType("plain", Plain, remember_s=0, misfire_grace_s=86_400 * 365, timeout_s=math.inf, topics=("ünï", "b"))
    assert (type.topics, type.remember_s) == (("ünï", "b"), 0)
    names: Any = (name for name in ["a", "b"])
    assert JobType("plain", Plain, topics=names).topics == ("a", "b")


@pytest.mark.parametrize(
    "options",
    [
        {"attempts_max": 0},
        {"attempts_max": 2.5},
        {"attempts_max": math.inf},
        {"attempts_max": 2**70},
        {"first_delay_s": math.inf},
        {"first_delay_s": math.nan},
        {"factor": 0.5},
        {"factor": math.inf},
        {"factor": 1e10},
        {"delay_max_s": -1},
        {"delay_max_s": math.nan},
        {"delay_max_s": "60"},
    ],
)
def test_retries_that_could_not_be_counted_or_timed_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Mistake, match="retry needs"):
        Retry(**options)


def test_the_delays_of_a_retry_fit_into_a_record() -> None:
    assert [Retry().delay_s(n) for n in (1, 2, 3, 100)] == [0.1, 0.2, 0.4, 60.0]
    longest = Retry(first_delay_s=1e9, factor=1000, delay_max_s=math.inf).delay_s(1000)
    msgspec.msgpack.encode(round(longest * 1000))


@pytest.mark.parametrize("key", [7, None, 1.5, b"x", ("a", 1)])
def test_a_function_s_state_that_could_not_be_read_back_is_refused(key: Any) -> None:
    type = JobType("tally", tally)
    state = type.load(type.initial({}), 1)
    state["inner"] = {7: "x"}
    assert type.load(type.dump(state), 1) == {"inner": {7: "x"}}
    state[key] = "x"
    with pytest.raises(WrongType, match=r"the state of job type 'tally' can't be stored: the key .* is no string"):
        type.dump(state)


class Point(msgspec.Struct, frozen=True):
    x: int


@pytest.mark.parametrize("change", [lambda state: state.update(n=object()), lambda state: state.update(n=2**70)])
def test_nor_is_what_can_not_be_stored_at_all(change: Callable[[Any], None]) -> None:
    type = JobType("tally", tally)
    state = type.load(type.initial({}), 1)
    change(state)
    with pytest.raises(WrongType, match="can't be stored"):
        type.dump(state)


@pytest.mark.parametrize("value", [{Point(1): 1}, msgspec.msgpack.Ext(-1, b"xx")])
def test_a_function_leaves_nothing_in_its_state_that_nobody_could_read(value: Any) -> None:
    with pytest.raises(WrongType, match="can't be stored"):
        JobType("tally", tally).dump({"x": value})
