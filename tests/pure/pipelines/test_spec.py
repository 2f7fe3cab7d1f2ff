"""Declarations: TOML and Python mean the same, and what is wrong with one is said by name."""

import json

import pytest

from tenure.jobs.pipelines import (
    Aggregate,
    Command,
    Csv,
    Filter,
    Grep,
    Join,
    KeyBy,
    Parquet,
    Pipeline,
    Replace,
    Sink,
    Table,
    Text,
    load_pipeline,
)
from tenure.jobs.pipelines.errors import BadOption, MissingInput, UnknownOption, UnknownStage
from tenure.jobs.pipelines.spec import pipeline_of
from tenure.scheduler.errors import Mistake, NotPicklable

HELLO = """
name = "hello"
source = { text = "input.txt" }
sink = { text = "out", console = true }
stages = [
  { grep = "hello", tasks = 3 },
  { replace = ["hello", "hi"], tasks = 2 },
  { command = "./operator.py --flag 'two words'", tasks = 2 },
]
"""


def declared(**changes):
    return {"name": "p", "source": {"text": "in"}, "sink": {"console": True}, "stages": []} | changes


def wrong(**changes):
    with pytest.raises(Mistake) as error:
        pipeline_of(declared(**changes), folder=".")
    return type(error.value), str(error.value)


def stage(**options):
    return wrong(stages=[{"grep": "x"}, options])


def test_toml_and_python_declare_the_same(tmp_path):
    (tmp_path / "p.toml").write_text(HELLO)
    assert load_pipeline(tmp_path / "p.toml") == Pipeline(
        name="hello",
        source=Text("input.txt"),
        stages=[
            Grep("hello", tasks=3),
            Replace(("hello", "hi"), tasks=2),
            Command("./operator.py --flag 'two words'", tasks=2),
        ],
        sink=Sink(text="out", console=True),
        folder=str(tmp_path),
    )


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.toml").write_text(HELLO)
    monkeypatch.chdir(tmp_path)
    pipeline = load_pipeline("sub/p.toml")
    monkeypatch.chdir("/")
    assert pipeline.path("input.txt") == tmp_path / "sub" / "input.txt"
    assert pipeline.path("/etc/hosts").as_posix() == "/etc/hosts"


def test_commands_are_split_as_by_a_shell():
    assert Command("./a --b 'c d'").arguments == ["./a", "--b", "c d"]
    assert Command(["./a", "c d"]).arguments == ["./a", "c d"]


def test_stages_are_called_by_number_and_kind_or_by_name():
    pipeline = pipeline_of(declared(stages=[{"grep": "x"}, {"grep": "y", "name": "mine"}]), folder=".")
    assert pipeline.labels == ["1-grep", "mine"]


def test_what_is_declared_survives_json():
    pipeline = Pipeline(
        name="p",
        source=Csv("in", separator=";", columns=["a", "b"]),
        stages=[
            KeyBy({"field": "a"}),
            Aggregate("sum", of={"regex": "(.)"}, window="1 minute", time="value", late=5),
            Join(Table(csv="t.csv", key="id"), how="left", tasks=2),
            Filter(json.dumps),
        ],
        sink=Sink(parquet="out", overwrite=True),
        spark={"spark.x": "y"},
        folder="/somewhere",
    )
    again = pipeline_of(json.loads(json.dumps(pipeline.declared())), folder="/somewhere")
    assert again.declared() == pipeline.declared()
    assert again.stages[:3] == pipeline.stages[:3]
    assert again.stages[3].filter == "json:dumps"


def test_functions_without_a_name_are_refused_where_others_must_find_them():
    pipeline = Pipeline(name="p", source=Text("in"), stages=[Filter(lambda key, value: True)], sink=Sink(console=True))
    with pytest.raises(NotPicklable, match="at a module's top level"):
        pipeline.declared()


def test_words_that_are_nearly_right():
    assert wrong(sauce={"text": "in"}) == (UnknownOption, "a pipeline has no option 'sauce'; did you mean 'source'?")
    assert wrong(source={"texd": "in"}) == (UnknownStage, "source: there is no source 'texd'; did you mean 'text'?")
    assert wrong(sink={"console": True, "tekst": "out"}) == (
        UnknownOption,
        "a sink has no option 'tekst'; did you mean 'text'?",
    )
    assert stage(grap="x") == (UnknownStage, "stage 2: there is no stage 'grap'; did you mean 'grep'?")
    assert stage(grep="x", task=2) == (UnknownOption, "stage 2 (grep) has no option 'task'; did you mean 'tasks'?")
    assert stage(aggregate="cuont")[1].startswith(
        "stage 2 (aggregate): there is no aggregate 'cuont'; did you mean 'count'?"
    )
    assert wrong(hash="fnv-1a") == (BadOption, "there is no hash 'fnv-1a'; did you mean 'fnv1a'?")
    assert stage(zzz=1)[1].endswith("there are grep, replace, filter, map, flat_map, key_by, aggregate, join, command")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"grep": 3}, "stage 2 (grep): grep: expected `str`, got `int`"),
        ({"grep": "x", "tasks": 0}, "tasks = 0"),
        ({"grep": "x", "tasks": "2"}, "tasks: expected `int | null`, got `str`"),
        ({"grep": "(", "regex": True}, "is no pattern"),
        ({"grep": "x", "replace": ["a", "b"]}, "both grep and replace"),
        ({"replace": ["a"]}, "length 2"),
        ({"replace": ["", "b"]}, "can't be empty"),
        ({"replace": ["a", "\\1"], "regex": True}, "wants group 1"),
        ({"replace": ["(a)", "\\n"], "regex": True}, "a backslash before 'n'"),
        ({"replace": ["(a)", "\\"], "regex": True}, "a backslash at its end"),
        ({"key_by": "user"}, "names nothing of a record"),
        ({"key_by": {"field": "a..b"}}, "is no field"),
        ({"map": {"regex": "a"}}, "has no group"),
        ({"command": ""}, "names no executable"),
        ({"command": "a 'b"}, "No closing quotation"),
        ({"command": "a", "timeout_s": 0}, "timeout_s > 0"),
        ({"aggregate": "count", "slide": "1s"}, "add window"),
        ({"aggregate": "count", "window": "1s"}, "add time"),
        ({"aggregate": "count", "window": "soon", "time": "value"}, "is no span of time"),
        ({"aggregate": "count", "window": "1s", "slide": "2s", "time": "value"}, "would get lost"),
        ({"aggregate": "count", "window": "1d", "slide": "1s", "time": "value"}, "more than 1000"),
        ({"join": {"csv": "t.csv"}}, "missing required field `key`"),
        ({"join": {"csv": "t.csv", "json": "t.json", "key": "id"}}, "one of csv, json and parquet"),
        ({"join": {"csv": "t.csv", "key": "id"}, "how": "outer"}, "how: invalid enum value 'outer'"),
        *(({"grep": "x", "name": name}, "without a slash") for name in ("a/b", "../../x", "..", ".", "", "a\nb")),
    ],
)
def test_options_that_can_not_be_meant(options, told):
    kind, text = stage(**options)
    assert kind is BadOption
    assert text.startswith("stage 2")
    assert told in text


def test_options_of_a_table_that_are_unknown():
    kind, text = stage(join={"csv": "t.csv", "key": "id", "seperator": ";"})
    assert kind is UnknownOption
    assert text == "stage 2 (join): the table has no option 'seperator'; did you mean 'separator'?"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "a/b"}, "without a slash"),
        ({"source": "in"}, "is no table"),
        ({"source": {"text": "in", "rate": 5}}, "add stream = true"),
        ({"source": {"text": "in", "stream": True, "rate": 0}}, "more than 0"),
        ({"source": {"parquet": "in", "stream": True}}, "can't grow"),
        ({"source": {"csv": "in", "header": False}}, "needs columns"),
        ({"source": {"csv": "in", "separator": "::"}}, "one character"),
        ({"sink": {}}, "needs a place"),
        ({"sink": {"text": "out", "parquet": "out"}}, "can't share"),
        ({"processed": "out", "sink": {"text": "out"}}, "can't share"),
        ({"stages": {"grep": "x"}}, "is a list"),
        ({"stages": [{"grep": "x", "name": "a"}, {"grep": "x", "name": "a"}]}, "two stages are called 'a'"),
    ],
)
def test_pipelines_that_can_not_be_meant(changes, told):
    kind, text = wrong(**changes)
    assert kind is BadOption
    assert told in text


def test_what_is_missing():
    with pytest.raises(BadOption, match="needs a source"):
        pipeline_of({"name": "p", "sink": {"console": True}}, folder=".")
    with pytest.raises(MissingInput, match=r"nowhere\.toml: No such file"):
        load_pipeline("nowhere.toml")


def test_what_is_no_toml(tmp_path):
    (tmp_path / "p.toml").write_text("name = x")
    with pytest.raises(BadOption, match=r"is no TOML: .*line 1"):
        load_pipeline(tmp_path / "p.toml")


def test_parquet_rows_have_no_columns_to_declare():
    assert Parquet("in").path == "in"
