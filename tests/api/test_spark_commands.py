"""`tenure spark` on a cluster: as other commands it checks, waits as long as it was told, and says who is missing."""

from pathlib import Path

import pytest

from tenure.jobs.spark import java
from tenure.jobs.spark.types import PipelineJob
from tenure.scheduler.jobtype import JobType, Registry
from tests.api.shell import Shell

PIPELINES = Registry(JobType("pipeline", PipelineJob))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "in").touch()
    (tmp_path / "p.toml").write_text('name = "p"\nsource = { text = "in" }\nsink = { text = "out" }\n')
    monkeypatch.setattr(java, "find_java_home", lambda: tmp_path)
    return str(tmp_path / "p.toml")


def test_a_pipeline_that_can_not_start_is_refused_at_once(shell: Shell, pipeline: str) -> None:
    shell.app = PIPELINES
    assert shell("spark", "submit", pipeline, "--cron", "0 3 * * *", "--json") == [{"submitted": "p"}]
    shell("spark", "submit", pipeline, "--cron", "nonsense", code=2)
    assert "no cron expression" in shell.err
    shell("spark", "submit", pipeline, "--after", "p", code=1)
    assert "does not start" in shell.err
    assert "can't come after itself" in shell.err


@pytest.mark.parametrize(
    "command", ["list", "cancel p", "tasks p", "logs p", "kill p 1", "submit p.toml", "run p.toml --cluster x"]
)
def test_who_is_missing_is_said_when_the_time_is_over(
    shell: Shell, pipeline: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(pipeline).parent)
    shell.nodes = 0
    shell("spark", *command.split(), "--timeout", "2", code=3)
    assert "no node is running" in shell.err
    shell("spark", *command.split(), "--timeout", "0", code=2)
    assert "for --timeout. Give it more than 0 seconds" in shell.err


def test_the_application_that_is_named_is_loaded(shell: Shell) -> None:
    shell("spark", "list", "--app", "no_such_app.py", code=2)
    assert "no_such_app.py" in shell.err

