"""The README's tour, to the letter: its files are written, its commands run, its promises looked at."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The README's code blocks in one language."""
    return [text for found, text in BLOCK.findall(README.read_text()) if found == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the reader has put app.py."""
    (tmp_path / "app.py").write_text(blocks("python")[0])
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    """The reader's shell: commands of this very Python come first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **more}


def test_the_first_code_block_has_the_two_commands() -> None:
    assert blocks("")[0].splitlines() == ["python3 run.py demo", "python3 run.py test"]


def test_the_test_in_the_readme_passes(folder: Path) -> None:
    (folder / "test_app.py").write_text(blocks("python")[2])
    (folder / "pytest.ini").write_text(blocks("ini")[0])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def cluster(folder: Path) -> Iterator[str]:
    """`tenure dev app.py` in one terminal; what to put into TENURE_CLUSTER in the other."""
    [start] = blocks("sh")[0].splitlines()
    assert start == "tenure dev app.py"
    with subprocess.Popen(
        ["tenure", "dev", "app.py", "--json"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as dev:
        assert dev.stdout is not None
        try:
            for line in dev.stdout:
                if line.startswith("{") and (event := json.loads(line)).get("event") == "ready":
                    yield str(event["cluster"])
                    break
            else:
                pytest.fail("tenure dev never became ready")
        finally:
            dev.terminate()
            dev.wait(timeout=30)


@pytest.mark.cluster
def test_the_tour(folder: Path, cluster: str) -> None:
    def typed(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=environment(TENURE_CLUSTER=cluster),
            capture_output=True,
            text=True,
            timeout=60,
        )

    (folder / "visits.py").write_text(blocks("python")[1])
    commands = [line for line in blocks("sh")[1].splitlines() if not line.startswith("export ")]
    answers = {}
    for command in commands:
        if command.startswith("tenure state audit"):
            time.sleep(1)  # its message is on the way: from job to job nobody waits
        done = typed(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        answers[command.split("  #")[0].strip()] = done.stdout
    assert answers["tenure ask clicks '{\"n\": 100}'"].strip() == "111"
    assert "clicks has 111" in answers["tenure state audit"]
    assert "clicks" in answers["tenure jobs"]
    done = typed(f"{sys.executable} visits.py")
    assert done.stdout.splitlines()[:1] == ["1001"], done.stdout + done.stderr
    assert "Counter(total=1001)" in done.stdout
    nodes, kill, start, ask = (line.split("  ")[0] for line in blocks("sh")[2].splitlines())
    assert (nodes, kill, start) == ("tenure nodes", "kill -9 4711", "tenure node app.py &")
    node = json.loads(typed("tenure nodes --json").stdout)  # an object a line
    os.kill(node["pid"], signal.SIGKILL)
    with subprocess.Popen(["tenure", "node", "app.py"], cwd=folder, env=environment(TENURE_CLUSTER=cluster)) as other:
        try:
            assert typed(ask).stdout.strip() == "111"
        finally:
            other.terminate()
            other.wait(timeout=30)
