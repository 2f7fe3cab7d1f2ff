"""Whole runs of pipelines, batch and stream, in one session: the examples, and what kills leave behind."""

import shutil
from pathlib import Path

import pytest
from msgspec import structs

from tenure.jobs.pipelines import Sink, load_pipeline, reference
from tenure.jobs.pipelines.errors import OutputExists
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.silent import SilentReporter
from tests.spark.test_examples import EXAMPLES, copied, lines_in


def run(spark, pipeline, run="run", number=1):
    return run_batch(spark, pipeline, Attempt(run, number), SilentReporter("test"))


@pytest.mark.parametrize(
    "name", ["hello/pipeline", "words/pipeline", "logs/pipeline", "logs/users", "operators/pipeline"]
)
def test_examples_give_what_plain_python_gives(spark, tmp_path, name, capsys):
    folder = copied(Path(name).parent, tmp_path)
    pipeline = load_pipeline(folder / f"{Path(name).name}.toml")
    result = run(spark, pipeline)
    expected = sorted(f"{key}: {value}" for key, value in reference.run(pipeline))
    assert len(expected) > 1
    assert lines_in(pipeline.path(pipeline.sink.text)) == expected
    assert sorted(capsys.readouterr().out.splitlines()) == expected
    assert result["records"] == len(expected)


def test_results_as_parquet(spark, tmp_path):
    folder = copied("words", tmp_path)
    text = load_pipeline(folder / "pipeline.toml")
    declared = structs.replace(text, sink=Sink(text="out", parquet="rows"))
    expected = sorted(reference.run(declared))
    result = run(spark, declared)
    rows = spark.read.parquet(str(declared.path("rows")))
    assert sorted(tuple(row) for row in rows.collect()) == expected
    assert rows.dtypes == [("key", "string"), ("value", "string")]
    assert lines_in(declared.path("out")) == sorted(f"{key}: {value}" for key, value in expected)
    assert result["records"] == len(expected) > 1
    run(spark, structs.replace(declared, sink=Sink(parquet="only")))
    assert sorted(tuple(row) for row in spark.read.parquet(str(declared.path("only"))).collect()) == expected
    with pytest.raises(OutputExists):
        run(spark, declared, run="another")
    run(spark, structs.replace(declared, sink=Sink(parquet="rows", overwrite=True)), run="another")
    assert sorted(tuple(row) for row in spark.read.parquet(str(declared.path("rows"))).collect()) == expected


def test_the_log_example_says_what_its_comment_says(tmp_path):
    folder = Path(shutil.copytree(EXAMPLES / "logs", tmp_path / "logs"))
    assert sorted(reference.run(load_pipeline(folder / "pipeline.toml"))) == [
        ("200@2026-03-01T10:00:00Z", "1024"),
        ("200@2026-03-01T10:01:00Z", "2048"),
        ("200@2026-03-01T10:02:00Z", "100"),
        ("404@2026-03-01T10:00:00Z", "64"),
        ("404@2026-03-01T10:01:00Z", "64"),
        ("500@2026-03-01T10:02:00Z", "0"),
    ]
    assert sorted(reference.run(load_pipeline(folder / "users.toml"))) == [("blue", "4"), ("red", "2")]
