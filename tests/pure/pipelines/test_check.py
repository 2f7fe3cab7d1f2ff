"""What is wrong with the world around a pipeline is said before anything runs."""

import sys

import pytest

from tenure.jobs.pipelines import Aggregate, Command, Csv, Filter, Join, Map, Pipeline, Sink, Table, Text
from tenure.jobs.pipelines.check import check
from tenure.jobs.pipelines.errors import BadOption, BadRecord, MissingInput, NotExecutable, OutputExists
from tenure.jobs.pipelines.output import Output
from tenure.scheduler.errors import Mistake


@pytest.fixture
def pipeline(tmp_path):
    (tmp_path / "in.txt").write_text("a\n")

    def make(*stages, source=None, **sink):
        sink = Sink(**(sink or {"text": "out"}))
        return Pipeline(name="p", source=source or Text("in.txt"), stages=list(stages), sink=sink, folder=str(tmp_path))

    return make


def refused(pipeline, kind, run=""):
    with pytest.raises((Mistake, BadRecord)) as error:
        check(pipeline, run)
    assert type(error.value) is kind
    return str(error.value)


def test_nothing_wrong(pipeline):
    check(pipeline(Command("cat -u")))


def test_inputs(pipeline, tmp_path):
    assert str(tmp_path / "nowhere") in refused(pipeline(source=Text("nowhere")), MissingInput)
    assert "no file fits" in refused(pipeline(source=Text("*.log")), MissingInput)
    check(pipeline(source=Text("i?.txt")))
    (tmp_path / "folder").mkdir()
    check(pipeline(source=Text("folder", stream=True)))


def test_commands(pipeline, tmp_path):
    told = refused(pipeline(Command("op.py")), NotExecutable)
    assert told == "stage 1-command: there is no command 'op.py' on the PATH"
    (tmp_path / "op.py").write_text("")
    assert "write ./op.py" in refused(pipeline(Command("op.py")), NotExecutable)
    assert "chmod +x" in refused(pipeline(Command("./op.py")), NotExecutable)
    assert "there is no command" in refused(pipeline(Command("./nowhere")), NotExecutable)
    (tmp_path / "op.py").chmod(0o755)
    check(pipeline(Command("./op.py")))


def test_functions(pipeline, tmp_path):
    (tmp_path / "mine_for_check.py").write_text("def keep(key, value): return True\nnumber = 3\n")
    check(pipeline(Filter("mine_for_check:keep"), Filter("mine_for_check.py:keep")))
    assert "no attribute 'kept'" in refused(pipeline(Filter("mine_for_check.py:kept")), BadOption)
    assert "is a int, no function" in refused(pipeline(Filter("mine_for_check.py:number")), BadOption)
    assert "no module 'nowhere'" in refused(pipeline(Filter("nowhere:keep")), BadOption)
    assert refused(pipeline(Filter("nowhere.py:keep")), BadOption).startswith("stage 1-filter: ")
    assert "names no function" in refused(pipeline(Filter("keep")), BadOption)


def test_tables(pipeline, tmp_path):
    assert "there is no file" in refused(pipeline(Join(Table(csv="t.csv", key="id"))), MissingInput)
    (tmp_path / "t.csv").write_text("name,town\nann,Ulm\n")
    told = refused(pipeline(Join(Table(csv="t.csv", key="id"))), BadOption)
    assert told == f"stage 1-join: the table {tmp_path}/t.csv has no column 'id'; there are name, town"
    told = refused(pipeline(Join(Table(csv="t.csv", key="name", columns=["name", "city"]))), BadRecord)
    assert told.startswith("stage 1-join: t.csv:0: the schema does not fit: the header has columns name, town")
    check(
        pipeline(Join(Table(csv="t.csv", key="name")), Join(Table(csv="t.csv", key="a", header=False, columns=["a"])))
    )


def test_headers(pipeline, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1").write_text("a,b\n1,2\n")
    assert "the pipeline wants b, a" in refused(pipeline(source=Csv("folder", columns=["b", "a"])), BadRecord)
    check(pipeline(source=Csv("folder")))
    (tmp_path / "folder" / "2").write_text("a,c\n")
    assert refused(pipeline(source=Csv("folder")), BadRecord).startswith("2:0: the schema does not fit")
    check(pipeline(source=Csv("folder", header=False, columns=["a", "b"])))
    check(pipeline(source=Csv("folder", stream=True)))


def test_output_in_the_way(pipeline, tmp_path):
    (tmp_path / "out").mkdir()
    check(pipeline())
    (tmp_path / "out" / "mine").touch()
    assert "overwrite = true" in refused(pipeline(), OutputExists)
    check(pipeline(text="out", overwrite=True))
    (tmp_path / "file").touch()
    assert "is a file" in refused(pipeline(text="file", overwrite=True), OutputExists)
    assert "no folder" in refused(pipeline(text="nowhere/out"), MissingInput)


def test_output_of_this_very_run_is_not_in_the_way(pipeline, tmp_path):
    output = Output(tmp_path / "out", "run 1")
    output.begin()
    output.commit("p", {}, overwrite=False)
    check(pipeline(), "run 1")
    refused(pipeline(), OutputExists, "run 2")


def test_output_in_the_input(pipeline, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").touch()
    assert "its own input" in refused(pipeline(source=Text("folder"), text="folder/out"), BadOption)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    assert "its own input" in refused(pipeline(source=Text("out"), text="out", overwrite=True), BadOption)


@pytest.mark.parametrize("top", ["import sys; sys.exit(3)", "1 / 0", "def broken(:", "import no_such_module_of_ours"])
@pytest.mark.parametrize("name", ["ends_{}", "ends_{}.py"])
def test_modules_that_can_not_be_imported(pipeline, tmp_path, top, name):
    name = name.format(abs(hash(top)))
    (tmp_path / f"{name.removesuffix('.py')}.py").write_text(top)
    told = refused(pipeline(Filter(f"{name}:keep")), BadOption)
    assert "can't be imported: " in told or "there is no module 'no_such_module_of_ours'" in told


def test_functions_are_looked_for_without_running_anything(pipeline, tmp_path):
    (tmp_path / "never_run.py").write_text("import os; os._exit(3)")
    path, modules = list(sys.path), set(sys.modules)
    check(pipeline(Filter("never_run:keep"), Map("never_run.py:keep"), Aggregate("never_run:fold")), imports=False)
    assert sys.path == path
    assert {name for name in set(sys.modules) - modules if "never_run" in name} == set()
    for where, why in {
        "nowhere:keep": "no module 'nowhere'",
        "nowhere.py:keep": "no file",
        "keep": "no function",
    }.items():
        with pytest.raises(BadOption, match=why):
            check(pipeline(Filter(where)), imports=False)
