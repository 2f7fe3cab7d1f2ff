"""The tests say the same on any machine: they depend on no variable of Python's, of a terminal or of Tenure, and on
nothing in the home."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THEIRS = re.compile(
    r"PYTHON|TENURE_|PYTEST_|TERM|COLORTERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|PAGER|HOME|XDG_"
)
SET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONHASHSEED": "7",
    "TERM": "xterm-256color",
    "COLUMNS": "40",
    "LINES": "10",
    "FORCE_COLOR": "1",
    "TENURE_CLUSTER": "nobody@127.0.0.1:9",
    "TENURE_OF_ANOTHER_VERSION": "1",
}
SENSITIVE = ["tests/pure/cli", "tests/pure/api", "tests/docs/test_commands.py"]
"""What starts commands, prints, or loads applications, and takes seconds."""


@pytest.mark.long
@pytest.mark.parametrize("variables", [{}, SET], ids=["none is set", "all are set"])
def test_what_is_set_makes_no_difference(tmp_path: Path, variables: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not THEIRS.match(name)}
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not long", *SENSITIVE]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, **path, **variables, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_ci_runs_as_on_an_ordinary_machine(tmp_path: Path) -> None:
    """What the README's test command sees of what is set where CI runs."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
    see = "import os; print(sorted(os.environ)); print(os.listdir(os.environ['HOME'])); print('1 passed in 0.1s')"
    (tmp_path / "see.py").write_text(see)
    (tmp_path / "README.md").write_text(f"```\ndemo\n{sys.executable} see.py test\n```\n")
    done = subprocess.run(
        ["bash", str(tmp_path / ".ci" / "run")],
        env={"PATH": os.environ["PATH"], "HOME": str(ROOT), **SET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, home, closing, again = done.stdout.splitlines()
    seen = {name for name in eval(names) if THEIRS.match(name)}
    assert seen == {"HOME", "TENURE_DOCKER_INSTALL"}
    assert (home, closing, again) == ("[]", "1 passed in 0.1s", "1 passed in 0.1s")
