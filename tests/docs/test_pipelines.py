"""The tutorial of pipelines: its declarations are accepted, its commands understood. (`tests/spark` runs the rest.)"""

import ast
import re
import shlex
import tomllib
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from msgspec import Struct

from tenure.cli.app import build_app
from tenure.jobs.pipelines.autoscale import Autoscale
from tenure.jobs.pipelines.errors import UnknownOption
from tenure.jobs.pipelines.sinks import Sink
from tenure.jobs.pipelines.sources import SOURCES
from tenure.jobs.pipelines.spec import Pipeline, pipeline_of
from tenure.jobs.pipelines.stages import STAGES, Table
from tenure.jobs.spark.types import SparkJob

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorials" / "pipelines.md").read_text()
BASE = {"name": "p", "source": {"text": "in", "stream": True}, "sink": {"console": True}}


SOURCES_AND_SINKS = {
    title: re.findall(r"^\| `(\{ .*? \})` \|", section, re.MULTILINE)
    for title, section in re.findall(r"^## (Records|Sinks)\n(.*?)(?=^## )", TUTORIAL, re.MULTILINE | re.DOTALL)
}
SPECS = (Pipeline, *SOURCES.values(), *STAGES.values(), Table, Sink, Autoscale)
CODE = "\n".join(map("".join, re.findall(r"^```\w*\n(.*?)^```|`([^`]+)`", TUTORIAL, re.MULTILINE | re.DOTALL)))


def blocks(language: str) -> list[str]:
    """The tutorial's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def declared(block: str) -> dict[str, Any]:
    """A whole declaration, of a block that is part of one."""
    part = f"stages = [{block}]" if block.startswith("{") else block
    return BASE | tomllib.loads(part)


@pytest.mark.parametrize("block", blocks("toml"))
def test_declarations(block: str) -> None:
    pipeline_of(declared(block), folder=".")


def test_stages_and_sources_of_the_tables() -> None:
    stages = [stage for stage in re.findall(r"^\| `(\{ .*? \})` \|", TUTORIAL, re.MULTILINE) if "…" not in stage]
    assert len(stages) > 9
    for stage in stages:
        table = tomllib.loads(f"it = {stage}")["it"]
        if set(table) & set(STAGES):
            pipeline_of({**BASE, "stages": [table]}, folder=".")
        elif stage in SOURCES_AND_SINKS["Sinks"]:
            pipeline_of({**BASE, "sink": table}, folder=".")
        else:
            pipeline_of({**BASE, "source": table}, folder=".")


def test_all_kinds_are_in_the_tables() -> None:
    assert {next(iter(tomllib.loads(f"it = {one}")["it"])) for one in SOURCES_AND_SINKS["Records"]} == set(SOURCES)
    assert {next(iter(tomllib.loads(f"it = {one}")["it"])) for one in SOURCES_AND_SINKS["Sinks"]} == set(
        Sink.__struct_fields__
    ) - {"overwrite"}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_every_option_is_named(spec: type[Struct]) -> None:
    options = set(spec.__struct_fields__) - {"folder"}  # of a pipeline: where its file is
    assert {option for option in options if not re.search(rf"(?<![\w.\"]){option}(?![\w:\"])", CODE)} == set()


@pytest.mark.parametrize("block", [block for block in blocks("python") if "SparkJob" in block])
def test_spark_jobs_are_scheduled_with_what_they_take(block: str) -> None:
    calls = [
        node for node in ast.walk(ast.parse(f"async def run():\n{indent(block, '    ')}")) if isinstance(node, ast.Call)
    ]
    scheduled = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "schedule"]
    assert len(scheduled) == 2
    for call in scheduled:
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg != "id"}
        assert SparkJob(**given).work({})["folder"] == "/srv/reports"


def test_what_is_shown_to_be_wrong_is() -> None:
    (shown,) = re.findall(r"^tenure: (.*)$", TUTORIAL, re.MULTILINE)
    with pytest.raises(UnknownOption) as error:
        pipeline_of(BASE | {"stages": [{"grep": "x", "task": 2}]}, folder=".")
    assert str(error.value) == shown


COMMANDS = re.findall(r"^\$ tenure (.*)$", TUTORIAL, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    build_app().parse_args(shlex.split(command))


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 9
