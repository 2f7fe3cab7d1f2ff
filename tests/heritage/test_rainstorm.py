"""The stream pipeline's own example, as it is drawn: grep → replace over input.txt by external operators, three tasks
each, hash partitioned by key, one of them killed on the way (see docs/heritage.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tenure.jobs.pipelines.hashing import task_of
from tests.spark.conftest import QUICK, missing

pytestmark = pytest.mark.spark

PIPELINE = f"""
name = "rainstorm"
source = {{ text = "input.txt" }}
sink = {{ text = "out", console = true }}
processed = "logs"
stages = [
  {{ command = ["{sys.executable}", "grep_op.py", "hello"], tasks = 3, name = "grep" }},
  {{ command = ["{sys.executable}", "replace_op.py", "hello", "hi"], tasks = 3, name = "replace" }},
]
"""
INPUT = "hello world\nfoo bar\nhello foo\n"
GREP = """
import os, signal, sys
from pathlib import Path

for key in sys.stdin:
    value = next(sys.stdin)
    if key == "key: input.txt:2\\n" and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(f"forward\\n{key}{value}" if sys.argv[1] in value else "filter\\n")
"""
REPLACE = """
import sys

for key in sys.stdin:
    sys.stdout.write(f"forward\\n{key}{next(sys.stdin).replace(sys.argv[1], sys.argv[2])}")
"""


@pytest.fixture(autouse=True)
def _with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := missing():
        pytest.skip(why)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


def test_grep_and_replace_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    files = {"input.txt": INPUT, "pipeline.toml": PIPELINE, "grep_op.py": GREP, "replace_op.py": REPLACE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "tenure.cli", "spark", "run", str(tmp_path / "pipeline.toml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "killed").exists()
    results = ["input.txt:0: hi world", "input.txt:2: hi foo"]
    assert sorted(ran.stdout.splitlines()) == results
    assert sorted(line for part in tmp_path.glob("out/part-*") for line in part.read_text().splitlines()) == results
    # Each worker has a log of what it has processed: once each, what is filtered out too.
    assert processed(tmp_path, "grep") == by_task("input.txt:0", "input.txt:1", "input.txt:2")
    assert processed(tmp_path, "replace") == by_task("input.txt:0", "input.txt:2")


def processed(folder: Path, stage: str) -> dict[int, list[str]]:
    """The keys in the logs of a stage's tasks."""
    found = {}
    for log in (folder / "logs").glob(f"{stage}-*.log"):
        if lines := log.read_text().splitlines():
            found[int(log.stem.removeprefix(f"{stage}-"))] = sorted(lines)
    return found


def by_task(*keys: str) -> dict[int, list[str]]:
    """As hash partitioning has it."""
    found: dict[int, list[str]] = {}
    for key in keys:
        found.setdefault(task_of(key, 3), []).append(f"PROCESSED,{key}")
    return found
