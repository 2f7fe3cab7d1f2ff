"""Older versions of this repository, taken from its history."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["FROM", "interpreter_of"]

ROOT = Path(__file__).parents[2]
FROM = (Path(__file__).parent / "FROM").read_text().strip()
"""The commit that upgrades begin with."""


def interpreter_of(commit: str, folder: Path) -> Path:
    """A Python whose Tenure is the one of this commit. Skips where the history isn't there (in an sdist, say)."""
    if shutil.which("git") is None:
        pytest.skip("no git here: older versions are built from this repository's history")
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src", "scheduler", "jobs", "listeners"],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"commit {commit[:12]} is not in the history here: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tree / "src"}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python
