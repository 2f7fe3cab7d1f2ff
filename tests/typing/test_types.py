"""What users write is checked as strictly as the project itself; ignores that hide nothing are errors too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_user_code_is_typed() -> None:
    pytest.importorskip("mypy", reason="the type checker belongs to the `dev` extra")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--config-file", "pyproject.toml"]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "tests/typing/api.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
