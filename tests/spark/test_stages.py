"""Every stage type means the same on Spark as in plain Python, on generated records."""

import csv
import json
from datetime import datetime

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tenure.jobs.pipelines import Aggregate, Command, Filter, FlatMap, Grep, Join, KeyBy, Map, Replace, Table
from tenure.jobs.pipelines.errors import BadRecord
from tenure.jobs.pipelines.hashing import task_of
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.tasks import by_key
from tests.spark.helpers import frame, in_python, on_spark, plan_of, same

few = settings(
    max_examples=8,  # of more records each: a query takes a second, however many there are
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes at a second a query
)
fewer = settings(few, max_examples=5)

ODD = "ab hello$\\.*é😀\t{}[]\"'019-:,"
line = st.text(st.sampled_from(ODD) | st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12)
anything = line | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(["a", "b", "input.txt:0", "é", ""]) | line


def records(values=anything, max_size=25):
    return st.lists(st.tuples(keys, values), max_size=max_size)


@few
@given(records(), line, st.booleans())
@example([], "a", False)
def test_grep(spark, given_records, text, invert):
    same(spark, [Grep(text, invert=invert)], given_records)


PATTERNS = [
    "^a",
    "a$",
    r"\d+",
    r"\w+ \w",
    "[^a-c]{2}",
    "(a|b)+",
    r"\.",
    "(?i)HELLO",
    r"\s",
    "",
    "a.b",
    r"(?P<x>a)(?P=x)",
]


@few
@given(records(line), st.sampled_from(PATTERNS), st.booleans())
def test_grep_by_pattern(spark, given_records, pattern, invert):
    same(spark, [Grep(pattern, regex=True, invert=invert)], given_records)


@few
@given(records(), line.filter(bool), line)
@example([("a", "hello world")], "hello", "hi")
@example([("a", "aaa.a")], "a", "$1\\1")
def test_replace(spark, given_records, old, new):
    same(spark, [Replace((old, new))], given_records)


REPLACEMENTS = [
    ("(a)(b)?", r"<\1>"),
    ("hello", "$0 \\\\ ${x}"),
    (r"(\w)(\w)", r"\2\1"),
    (r"(\w)", r"1\10"),
    (r"(\w)", r"\\1"),
    (r"\d", ""),
    ("(?P<x>l)(?P=x)", r"\1"),
    ("^", ">"),
]


@few
@given(records(line), st.sampled_from(REPLACEMENTS))
def test_replace_by_pattern(spark, given_records, replacement):
    same(spark, [Replace(replacement, regex=True)], given_records)


@fewer
@given(records())
def test_functions(spark, given_records):
    for stage in (
        Filter("functions.py:has_a"),
        Map("functions.py:doubled"),
        Map("functions.py:numbered"),
        KeyBy("functions.py:numbered"),
        FlatMap("functions.py:words"),
    ):
        same(spark, [stage], given_records)


def test_a_function_that_returns_nothing(spark):
    found = same(spark, [Map("functions.py:nothing")], [("a", "1")])
    assert "1-map" in str(found)


names = st.sampled_from(["x", "y", "user"])
scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | line
objects = st.dictionaries(names, scalars | st.dictionaries(names, scalars, max_size=2) | st.lists(scalars, max_size=2))


@few
@given(records(objects.map(json.dumps) | objects.map(lambda found: json.dumps(found, ensure_ascii=False)), max_size=15))
def test_fields(spark, given_records):
    for path in ("x", "user.y"):
        stage = KeyBy({"field": path})
        there = [record for record in given_records if not isinstance(in_python([stage], [record]), BadRecord)]
        same(spark, [stage], there)
    same(spark, [Map({"field": "x"})], given_records)


@fewer
@given(records(line))
def test_groups_of_patterns(spark, given_records):
    for pattern in ("(a)|b", r"^(\w*)", r"(\d+)"):
        stage = Map({"regex": pattern})
        there = [record for record in given_records if not isinstance(in_python([stage], [record]), BadRecord)]
        same(spark, [stage, KeyBy("value"), Map("key")], there)
    same(spark, [Map({"regex": r"(\d+)"})], given_records)


numbers = st.decimals(-(10**17), 10**17, allow_nan=False, places=3).map(str) | st.integers(-50, 50).map(str)
numbers |= st.sampled_from(["0", "-0.0", "+7", " 12 ", "0.000000000000000001", "999999999999999999.999999999999999999"])


@few
@given(records(numbers, max_size=20), st.sampled_from(["count", "sum", "min", "max"]), st.sampled_from([None, 1, 3]))
@example([], "sum", None)
@example([("a", "0.000000000000000001"), ("a", "-0.000000000000000001")], "sum", None)
def test_aggregates(spark, given_records, aggregate, tasks):
    same(spark, [Aggregate(aggregate, tasks=tasks)], given_records)
    same(spark, [Aggregate(aggregate, per="all")], given_records)


@pytest.mark.parametrize("value", ["", "x", "1e3", "1.", "NaN", "١", "1234567890123456789", "1\n"])
def test_what_is_no_number(spark, value):
    found = same(spark, [Aggregate("sum")], [("a", "1"), ("k:7", value)])
    assert str(found).startswith("k:7")


@fewer
@given(records(), st.sampled_from([None, 2]))
def test_aggregates_with_a_state(spark, given_records, tasks):
    same(spark, [Aggregate("functions.py:Different", tasks=tasks)], given_records)
    same(spark, [Aggregate("functions.py:in_order", per="all")], given_records)
    stage = Aggregate("functions.py:Sorted", window=20, slide=15, time="functions.py:moment", tasks=tasks)
    same(spark, [stage], given_records)


def test_a_state_that_can_not_be_kept(spark):
    found = same(spark, [Aggregate("functions.py:Unkept")], [("a", "1")])
    assert "a state must be made of" in str(found)


@fewer
@given(records(), st.sampled_from([None, 2]))
def test_aggregates_by_functions(spark, given_records, tasks):
    same(spark, [Aggregate("functions.py:longer", tasks=tasks)], given_records)
    same(spark, [Aggregate("functions.py:longer", per="all")], given_records)
    same(spark, [Aggregate("sum", of="functions.py:amount", tasks=tasks)], given_records)
    stage = Aggregate("sum", of="functions.py:amount", window=20, slide=15, time="functions.py:moment", tasks=tasks)
    same(spark, [stage], given_records)


moments = st.datetimes(datetime(100, 1, 1), datetime(9999, 12, 1)).map(datetime.isoformat)
zones = st.sampled_from(["", "Z", "+00:00", "-03:30", "+14:00"])
times = st.tuples(moments, zones).map("".join) | st.integers(-(10**9), 10**9).map(str)
times |= st.sampled_from(["2024-02-29 23:59:59.5", "0", "-0.000001", "1.0000009", " 2024-01-01T00:00:00Z "])


@few
@given(
    records(times, max_size=8),
    st.sampled_from([("1s", None), ("1 minute", "20s"), ("7d", "2d"), (0.5, 0.3), ("400ms", "150 ms")]),
    st.sampled_from(["count", "max"]),
)
def test_windows(spark, given_records, window, aggregate):
    length, slide = window
    stage = Aggregate(aggregate, of={"regex": r"(\d)"}, window=length, slide=slide, time="value")
    same(spark, [stage], given_records)


@pytest.mark.parametrize(
    "value", ["", "x", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T25:00:00", "2024-01-01T00:00:00+19:00"]
)
def test_what_is_no_time(spark, value):
    found = same(spark, [Aggregate("count", window="1s", time="value")], [("a", "1"), ("k:7", value)])
    assert str(found).startswith("k:7")


TABLE = [("id", "name"), ("a", "Ann, or 'Ä'"), ("b", 'B"ob"'), ("a", "\\\t"), ("", "nobody")]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "users.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(TABLE)
    return str(path)


@few
@given(records(anything | objects.map(json.dumps), max_size=6), st.sampled_from(["inner", "left"]))
@example([("a", "{}"), ("a", " {\t} "), ("a", "[]"), ("b", '{"a":1}x'), ("", "")], "left")
def test_join(spark, table, given_records, how):
    same(spark, [Join(Table(csv=table, key="id", name="user"), how=how)], given_records)


PERL = """while (<STDIN>) {
    $value = <STDIN>;
    if ($value =~ /: .*a/) { print "filter\\n"; next }
    $value =~ tr/b/B/;
    print "forward\\n$_$value";
}"""


@fewer
@given(st.lists(st.tuples(line, line), max_size=25), st.sampled_from([None, 2]))
def test_command(spark, given_records, tasks):
    same(spark, [Command(["perl", "-e", PERL], tasks=tasks)], given_records)


@fewer
@given(records(line, max_size=30), st.sampled_from(["fnv1", "fnv1a"]))
def test_stages_in_a_row_with_tasks(spark, given_records, hash):
    stages = [Grep("a", tasks=3), Replace(("a", "b"), tasks=2), KeyBy("value"), Aggregate("count", tasks=2), Grep("1")]
    same(spark, stages, given_records, hash=hash)


LEFT_BEHIND = [
    [Grep("a", tasks=3), KeyBy("value"), Aggregate("count")],
    [Grep("a", tasks=3), Aggregate("count", per="all")],
    [Grep("a", tasks=3), Aggregate("functions.py:longer", per="all")],
    [Grep("a", tasks=3), Map("functions.py:doubled"), Aggregate("functions.py:longer")],
    [Grep("a", tasks=3), Aggregate("functions.py:Sorted", tasks=3), Aggregate("functions.py:Different", per="all")],
    [Grep("a", tasks=3), Grep("b", tasks=3), Aggregate("sum", of="functions.py:amount", tasks=2)],
]


@pytest.mark.parametrize("stages", LEFT_BEHIND, ids=lambda stages: "-".join(stage.kind for stage in stages))
def test_where_records_are_has_no_meaning(spark, stages):
    given_records = [(f"key {number % 7}", f"ab {number % 5}") for number in range(50)]
    assert same(spark, stages, given_records)


@pytest.mark.parametrize("hash", ["fnv1", "fnv1a"])
def test_records_are_at_the_task_that_the_hash_of_their_key_names(spark, hash):
    given_keys = [f"input.txt:{number}" for number in range(100)] + ["", "é😀"]
    for tasks in (1, 2, 3, 7, 32):
        records = by_key(frame(spark, [(key, "") for key in given_keys]), hash, tasks)
        found = {row[0]: row[1] for row in records.select("key", F.spark_partition_id()).collect()}
        assert found == {key: task_of(key, tasks, hash) for key in given_keys}
        assert records.rdd.getNumPartitions() == tasks


def test_records_of_one_key_are_shuffled_once(spark):
    stages = [Grep("a", tasks=3), Replace(("a", "b"), tasks=3), Aggregate("count", tasks=3)]
    assert plan_of(spark, stages).count("Exchange hashpartitioning") == 1
    stages = [Grep("a", tasks=3), Grep("b", tasks=2), Aggregate("count")]
    assert plan_of(spark, stages).count("Exchange hashpartitioning") == 1


NOTHING = [
    Grep("a", tasks=2),
    Replace(("a", "b")),
    Filter("functions.py:has_a"),
    Map("functions.py:doubled"),
    Map({"field": "x"}),
    FlatMap("functions.py:words"),
    KeyBy({"regex": "(a)"}),
    Aggregate("count"),
    Aggregate("sum", tasks=2),
    Aggregate("max", per="all"),
    Aggregate("functions.py:longer", per="all"),
    Aggregate("functions.py:Sorted"),
    Aggregate("count", window="1s", time="value"),
    Command(["perl", "-e", PERL]),
]


def test_nothing_gives_nothing(spark, table):
    for stage in [*NOTHING, Join(Table(csv=table, key="id"), how="left")]:
        assert same(spark, [stage], []) == [], stage


def test_large_values(spark):
    given_records = [("a", "x" * 10_000_000 + "hello"), ("b", "y" * 10_000_000)]
    stages = [Grep("hello"), Replace(("hello", "hi")), Map("functions.py:doubled"), Command(["perl", "-e", PERL])]
    assert len(same(spark, stages, given_records)) == 1


def test_an_error_in_a_function_is_told_with_its_place(spark):
    with pytest.raises(Exception) as failed:  # what Spark makes of it
        on_spark(spark, [Map("functions.py:broken")], [("a", "bad")])
    assert str(told(failed.value)).startswith("KeyError: 'no bad' (in broken, ")
