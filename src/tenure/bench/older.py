"""Older versions of Tenure, from this repository's history: what upgrades are measured and tested from."""

import shutil
import subprocess
import sys
from pathlib import Path

import tenure
from tenure.scheduler.errors import Mistake

__all__ = ["NoHistory", "interpreter_of", "oldest"]

ROOT = Path(tenure.__file__).parents[2]
FOLDERS = ("src", "scheduler", "jobs", "listeners")


class NoHistory(Mistake):
    """The history isn't here (in an installed package, say)."""


def oldest() -> str:
    """The commit that upgrades begin with. Raises `NoHistory`."""
    file = ROOT / "tests" / "upgrade" / "FROM"
    if not file.is_file():
        raise NoHistory(f"there is no {file}: this is no checkout of the repository")
    return file.read_text().strip()


def interpreter_of(commit: str, folder: Path) -> Path:
    """A Python whose Tenure is the one of this commit. Raises `NoHistory`."""
    if shutil.which("git") is None:
        raise NoHistory("older versions are taken from the history, and there is no git here")
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, *FOLDERS], capture_output=True, check=False)
    if archive.returncode:
        raise NoHistory(f"commit {commit[:12]} is not in the history here: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tree / "src"}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python
