"""Spark jobs as the nodes see them: what is wrong with one is said before anything is launched."""

import sys

import pytest

import tenure
from tenure.jobs.pipelines import Grep, Pipeline, Sink, Text
from tenure.jobs.pipelines.errors import MissingJava
from tenure.jobs.spark import java, launching
from tenure.jobs.spark.java import find_java_home
from tenure.jobs.spark.session import local_cores, spark_settings
from tenure.jobs.spark.types import SparkJob, parameters
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.activities_port import LaunchRefused, Run
from tenure.scheduler.errors import PickledJobsRefused


def run_of(work):
    return Run(tag="t.1", job="j", generation=0, activity="run-1", id="i", attempt=1, kind="spark", work=work)


def refused(work, monkeypatch):
    monkeypatch.setattr(launching, "find_java_home", lambda: "/java")
    with pytest.raises(LaunchRefused) as error:
        launching.command(run_of(work))
    return str(error.value)


def test_the_command_of_a_pipeline(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "find_java_home", lambda: "/java")
    (tmp_path / "in").touch()
    pipeline = Pipeline(name="p", source=Text("in"), stages=[Grep("a")], sink=Sink(text="out"), folder=str(tmp_path))
    command = launching.command(run_of(parameters(pipeline)))
    assert command.argv == [sys.executable, "-m", launching.DRIVER]
    assert command.env["JAVA_HOME"] == "/java"
    assert command.env["PYTHONPATH"].split(":")[0] == str(tmp_path)
    started = []
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(launching.warm, "start", lambda home, work, environ: started.append((home, environ)))
    command = launching.command(run_of(parameters(pipeline) | {"warm": True}))
    ((home, environ),) = started
    assert command.argv[2:] == [launching.DOORMAN, str(home)]
    assert home.parent == tmp_path / "state" / "warm"
    assert environ["JAVA_HOME"] == "/java"


def test_a_stream_is_nothing_for_a_warm_driver(tmp_path, monkeypatch):
    declared = {"name": "p", "source": {"text": "in", "stream": True}, "sink": {"text": "out"}}
    (tmp_path / "in").mkdir()
    told = refused({"pipeline": declared, "folder": str(tmp_path), "warm": True}, monkeypatch)
    assert told == "BadOption: a warm driver is for work that ends soon: leave warm out for a stream"


def test_the_command_of_a_script(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "find_java_home", lambda: "/java")
    (tmp_path / "job.py").touch()
    work = {"script": "job.py", "arguments": ["--day", "monday"], "folder": str(tmp_path), "spark": {"spark.x": "a b"}}
    command = launching.command(run_of(work))
    assert command.argv == [sys.executable, "job.py", "--day", "monday"]
    assert command.cwd == str(tmp_path)
    assert "--conf 'spark.x=a b'" in command.env["PYSPARK_SUBMIT_ARGS"]
    assert command.env["PYSPARK_SUBMIT_ARGS"].endswith("pyspark-shell")


def test_what_can_not_run_is_refused_by_name(tmp_path, monkeypatch):
    folder = str(tmp_path)
    declared = {"name": "p", "source": {"text": "in"}, "stages": [], "sink": {"text": "out"}}
    told = refused({"pipeline": declared, "folder": folder}, monkeypatch)
    assert told == f"MissingInput: there is no file or folder {tmp_path}/in"
    told = refused({"pipeline": declared | {"stages": [{"grap": "x"}]}, "folder": folder}, monkeypatch)
    assert told.startswith("UnknownStage: stage 1: there is no stage 'grap'")
    assert "no module 'absent_module'" in refused({"function": "absent_module:f", "folder": folder}, monkeypatch)
    assert "there is no script" in refused({"script": "nowhere.py", "folder": folder}, monkeypatch)
    assert "there is no folder" in refused({"function": "json:dumps", "folder": folder + "x"}, monkeypatch)
    assert "needs one of function" in refused({}, monkeypatch)
    assert "are texts" in refused({"script": "a.py", "arguments": [1]}, monkeypatch)
    assert "unknown field `fucntion`" in refused({"fucntion": "a:b"}, monkeypatch)


def test_nothing_of_the_users_is_run_by_the_node(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "find_java_home", lambda: "/java")
    (tmp_path / "in").touch()
    (tmp_path / "ends_the_node.py").write_text("import os; os._exit(3)")
    declared = {"name": "p", "source": {"text": "in"}, "sink": {"text": "out"}}
    filtered = declared | {"stages": [{"filter": "ends_the_node.py:keep"}, {"filter": "ends_the_node:keep"}]}
    before = list(sys.path)
    for work in ({"pipeline": filtered}, {"function": "ends_the_node:keep"}, {"function": "ends_the_node.py:keep"}):
        assert launching.command(run_of(work | {"folder": str(tmp_path)})).argv[-1] == launching.DRIVER
    assert sys.path == before


def test_pickles_are_refused_unless_the_application_allows_them(monkeypatch):
    job = SparkJob(pickled=b"x")
    with pytest.raises(PickledJobsRefused, match="allow_pickled"):
        job.work({})
    monkeypatch.setattr(SparkJob, "allow_pickled", True)
    assert SparkJob(pickled=b"x").work({})["pickled"]


def test_orders_replace_parts_of_the_work():
    job = SparkJob(function="a:b", arguments=[1])
    found = job.work({"arguments": [2]})
    assert (found["function"], found["arguments"]) == ("a:b", [2])
    with pytest.raises(tenure.WrongType, match="can't be started so"):
        job.work({"fucntion": "a:c"})


def test_java(tmp_path):
    def fake(name, version, code=0):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "java").write_text(
            f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n[ $# -eq 1 ] || exit {code}\n"
        )
        (folder / "java").chmod(0o755)
        return str(tmp_path / name)

    good, old, small = fake("good", "17.0.1"), fake("old", "1.8.0_302"), fake("small", "25", code=1)
    assert str(find_java_home({"JAVA_HOME": good})) == good
    assert str(find_java_home({"JAVA_HOME": old, "PATH": f"{good}/bin"})) == good
    with pytest.raises(MissingJava, match=r"is version 1\.8\.0_302") as error:
        find_java_home({"JAVA_HOME": old, "PATH": f"{small}/bin"})
    assert "lacks the module jdk.incubator.vector" in str(error.value)
    with pytest.raises(MissingJava, match=r"does not run.*apt install"):
        find_java_home({"JAVA_HOME": "/nowhere", "PATH": ""})
    with pytest.raises(MissingJava, match="there is none"):
        find_java_home({"PATH": ""})


def test_settings():
    assert local_cores("local[3]") == local_cores("local[3, 2]") == 3
    assert local_cores("spark://h:7077") is None
    found = spark_settings("local[3]", {"spark.ui.enabled": "true", "spark.sql.ansi.enabled": "false"})
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.ansi.enabled"] == "true", "results rest on it"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in spark_settings("spark://h:7077", {})


def test_work_is_one_thing():
    assert SparkWork(function="a:b").declared() is None
    assert java.VERSION_MIN == 17
