"""Aggregates with a state of their own, in plain Python; and what is said of those that are none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.jobs.pipelines import Aggregate, Map, Pipeline, Sink, Text, reference
from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.errors import BadOption, BadRecord
from tenure.jobs.pipelines.folds import restored, stored

FOLDER = Path(__file__).parents[2] / "spark"
RECORDS = [("a", "3"), ("b", "x"), ("a", "1"), ("a", "3")]


class Mean:
    def start(self) -> list[int]:
        return [0, 0]

    def step(self, state: list[int], value: str) -> list[int]:
        return [state[0] + int(value), state[1] + 1]

    def finish(self, state: list[int]) -> float:
        return state[0] / state[1]


class Half:
    def start(self) -> int:
        return 0

    def finish(self, state: int) -> int:
        return state


def folded(aggregate: object, records: list[tuple[str, str]], **options: object) -> list[tuple[str, str]]:
    return sorted(reference.apply(Aggregate(aggregate, **options), records, FOLDER))  # type: ignore[arg-type]


def test_a_state_is_begun_stepped_and_finished() -> None:
    assert folded(Mean, [("a", "1"), ("b", "7"), ("a", "2")]) == [("a", "1.5"), ("b", "7.0")]
    assert folded("functions.py:Different", RECORDS) == [
        ("a", '{"different":2,"most":2,"longest":"3"}'),
        ("b", '{"different":1,"most":1,"longest":"x"}'),
    ]
    assert folded("functions.py:in_order", RECORDS) == [("a", "1,3,3"), ("b", "x")]
    assert folded("functions.py:in_order", RECORDS, per="all") == [("all", "1,3,3,x")]
    assert folded("functions.py:in_order", [("a", "10"), ("a", "31")], window=20, slide=10, time="value") == [
        ("a@1970-01-01T00:00:00Z", "10"),
        ("a@1970-01-01T00:00:10Z", "10"),
        ("a@1970-01-01T00:00:20Z", "31"),
        ("a@1970-01-01T00:00:30Z", "31"),
    ]
    assert folded("functions.py:in_order", []) == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_kept_comes_back_as_it_was(state: object) -> None:
    try:
        text = stored(state, "k")
    except BadRecord:
        assert "inf" in repr(state), "the only number that JSON has no word for"
    else:
        assert restored(text) == state
        assert text.isascii()


@pytest.mark.parametrize("state", [(1, 2), {1: 2}, {"a"}, b"x", float("nan"), [(1,)], object()])
def test_what_would_not_is_refused(state: object) -> None:
    with pytest.raises(BadRecord, match="k: a state must be made of"):
        stored(state, "k")


def test_a_state_that_can_not_be_kept_fails_in_a_batch_too() -> None:
    with pytest.raises(BadRecord, match="a state must be made of"):
        folded("functions.py:Unkept", RECORDS)


def test_what_is_no_aggregate_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "own.py").write_text("class Half:\n    def start(self): return 0\n\n\nnumber = 3\n")

    def checked(aggregate: object) -> None:
        stages = [Map("value"), Aggregate(aggregate)]  # type: ignore[arg-type]
        declared = Pipeline(name="p", source=Text("in"), stages=stages, sink=Sink(text="out"), folder=str(tmp_path))
        check(declared)

    with pytest.raises(BadOption, match=r"stage 2-aggregate: own\.py:Half has no step and no finish"):
        checked("own.py:Half")
    with pytest.raises(BadOption, match=r"own\.py:number is no function of two values, nor has it start, step, finish"):
        checked("own.py:number")
    with pytest.raises(BadOption, match="has no step: an aggregate with a state has"):
        checked(Half)
    checked(f"{FOLDER}/functions.py:in_order")
    checked(Mean)
    assert Aggregate(Mean).folds(".")
    assert not Aggregate(max).folds(".")
    assert not Aggregate("sum").folds(".")
