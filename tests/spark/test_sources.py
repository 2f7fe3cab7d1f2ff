"""Sources: keys have exact line numbers, however Spark splits files and packs them into partitions."""

import bz2
import csv
import gzip
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.jobs.pipelines import Csv, Json, Parquet, Text
from tenure.jobs.pipelines.errors import BadRecord
from tenure.jobs.pipelines.records import records_of
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.sources import read_files
from tests.spark.test_stages import few, line

ODD_NAMES = ["plain.txt", "with space.txt", "a:b.txt", "100%.txt", "%20.txt", "[x]{y}*?.txt", "é😀.txt", "#.txt"]
ODD_NAMES += ["back\\slash.txt"]


def read(spark, source, path):
    return sorted((row["key"], row["value"]) for row in read_files(spark, source, path).collect())


@pytest.fixture(params=["7", "1000"], ids=["some share a partition", "each has its own"])
def small_parts(spark, request):
    """Files are split every few bytes, and small ones share a partition, or don't."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", "61")
    spark.conf.set("spark.sql.files.openCostInBytes", request.param)
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    yield
    for name in ("maxPartitionBytes", "openCostInBytes", "minPartitionNum"):
        spark.conf.unset(f"spark.sql.files.{name}")


contents = st.lists(st.sampled_from([b"a", b"hello world", b"\n", b"\r", b"\r\n", b"\n\n", b"x" * 70]), max_size=30)


@few
@given(st.lists(contents.map(b"".join), max_size=4))
def test_lines_of_split_files(spark, small_parts, tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("files")
    for number, data in enumerate(files):
        (folder / f"{number}.txt").write_bytes(data)
    assert read(spark, Text("in"), folder) == sorted(records_of(Text("in"), folder))


def test_names_that_are_odd(spark, tmp_path):
    (tmp_path / "sub.d").mkdir()
    for name in ODD_NAMES:
        (tmp_path / "sub.d" / name).write_text(f"in {name}\nsecond")
    (tmp_path / "sub.d" / "_hidden").write_text("no")
    (tmp_path / ".hidden").write_text("no")
    found = read(spark, Text("in"), tmp_path)
    assert found == sorted(records_of(Text("in"), tmp_path))
    assert ("sub.d/with space.txt:1", "second") in found
    for name in ODD_NAMES:
        alone = read(spark, Text("in"), tmp_path / "sub.d" / name)
        assert alone == [(f"{name}:0", f"in {name}"), (f"{name}:1", "second")]


def test_patterns(spark, tmp_path):
    for name in ("a.log", "b.log", "c.txt"):
        (tmp_path / name).write_text(name)
    assert read(spark, Text("in"), tmp_path / "*.log") == [("a.log:0", "a.log"), ("b.log:0", "b.log")]


def test_compressed_files(spark, small_parts, tmp_path):
    text = "".join(f"line {number}\n" for number in range(100))
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.bz2").write_bytes(bz2.compress(text.encode()))
    (tmp_path / "c.txt").write_text(text)
    found = read(spark, Text("in"), tmp_path)
    assert found == sorted((f"{name}:{n}", f"line {n}") for name in ("a.gz", "b.bz2", "c.txt") for n in range(100))


def test_bytes_that_are_no_text(spark, tmp_path):
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbfbegin \xe9\n\xf0\x9f\x98\n\x00\xff\xc3\xa9\n\xed\xa0\x80|\n")
    assert read(spark, Text("in"), tmp_path / "in") == sorted(records_of(Text("in"), tmp_path / "in"))


def test_nothing(spark, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "empty", tmp_path / "folder"):
        for source in (Text("in"), Csv("in"), Json("in"), Parquet("in")):
            if not isinstance(source, Parquet) or path.name == "folder":
                assert read(spark, source, path) == []


def test_ten_megabytes_in_one_line(spark, tmp_path):
    (tmp_path / "in").write_text("short\n" + "x" * 10_000_000 + "\nshort")
    found = read(spark, Text("in"), tmp_path / "in")
    assert [(key, len(value)) for key, value in found] == [("in:0", 5), ("in:1", 10_000_000), ("in:2", 5)]


cells = st.lists(line.filter(lambda cell: "\0" not in cell), min_size=2, max_size=2)


@few
@given(st.lists(cells, max_size=8), st.sampled_from([",", ";", "\t"]))
def test_rows_of_csv(spark, tmp_path_factory, rows, separator):
    path = tmp_path_factory.mktemp("csv") / "in.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([["id", "the name"], *rows])
    source = Csv("in", separator=separator)
    assert read(spark, source, path) == sorted(records_of(source, path))
    bare = Csv("in", separator=separator, header=False, columns=["a", "b"])
    assert read(spark, bare, path) == sorted(records_of(bare, path))


def test_csv_as_people_write_it(spark, tmp_path):
    (tmp_path / "in").write_text('a,b,c\n1,,"x, y"\n,"",\n\n 1 , 2 ,"say ""hi"""\n')
    found = read(spark, Csv("in"), tmp_path / "in")
    assert found == sorted(records_of(Csv("in"), tmp_path / "in"))
    assert json.loads(dict(found)["in:1"]) == {"a": "1", "b": "", "c": "x, y"}
    assert json.loads(dict(found)["in:4"]) == {"a": " 1 ", "b": " 2 ", "c": 'say "hi"'}


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_a_row_that_does_not_fit(spark, tmp_path, row):
    (tmp_path / "in").write_text(f"a,b\n1,2\n{row}\n")
    with pytest.raises(Exception, match="in:2") as failed:
        read(spark, Csv("in"), tmp_path / "in")
    assert isinstance(told(failed.value), BadRecord)
    assert str(told(failed.value)).startswith("in:2: the schema does not fit")


def test_headers_that_differ(spark, tmp_path):
    (tmp_path / "1").write_text("a,b\n1,2\n")
    (tmp_path / "2").write_text("a,c\n1,2\n")
    with pytest.raises(BadRecord, match="2:0: the schema does not fit"):
        read(spark, Csv("in"), tmp_path)
    with pytest.raises(BadRecord, match="1:0: the schema does not fit"):
        read(spark, Csv("in", columns=["x"]), tmp_path)


def test_rows_of_json(spark, tmp_path):
    (tmp_path / "in").write_text('{"a": 1}\n\n  \n{"a": {"b": [1, 2.50]}}\n')
    assert read(spark, Json("in"), tmp_path / "in") == [("in:0", '{"a": 1}'), ("in:3", '{"a": {"b": [1, 2.50]}}')]


@pytest.mark.parametrize("row", ["[1]", "{", '{"a": 1} x', "x"])
def test_a_line_that_is_no_json(spark, tmp_path, row):
    (tmp_path / "in").write_text('{"a": 1}\n' + row)
    with pytest.raises(Exception, match="in:1") as failed:
        read(spark, Json("in"), tmp_path / "in")
    assert str(told(failed.value)).startswith("in:1: is no JSON object")


def test_rows_of_parquet(spark, tmp_path):
    rows = [(number, f"name {number}", None if number % 3 else 0.5) for number in range(1000)]
    random.Random(1).shuffle(rows)
    spark.createDataFrame(rows, "id int, name string, x double").coalesce(1).write.parquet(str(tmp_path / "in"))
    found = read(spark, Parquet("in"), tmp_path / "in")
    (name,) = [path.name for path in (tmp_path / "in").glob("part-*")]
    expected = [(f"{name}:{place}", {"id": id, "name": text, "x": x}) for place, (id, text, x) in enumerate(rows)]
    assert {key: json.loads(value)["id"] for key, value in found} == {key: row["id"] for key, row in expected}
    assert json.loads(dict(found)[f"{name}:7"]) == expected[7][1]
