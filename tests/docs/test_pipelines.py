"""The tutorial of pipelines: its declarations are accepted, its commands understood. (`tests/spark` runs the rest.)"""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.app import build_app
from tenure.jobs.pipelines.errors import UnknownOption
from tenure.jobs.pipelines.spec import pipeline_of

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorials" / "pipelines.md").read_text()
BASE = {"name": "p", "source": {"text": "in", "stream": True}, "sink": {"console": True}}


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
        is_source = set(table) <= {"text", "csv", "json", "parquet"}
        pipeline_of({**BASE, "source": table} if is_source else {**BASE, "stages": [table]}, folder=".")


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
