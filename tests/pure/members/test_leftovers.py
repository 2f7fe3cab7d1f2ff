"""Files of processes that were killed are removed by the next one; those of others, and of who lives, are not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.members import MemberSettings
from tenure.members.leftovers import marked, remove_leftovers
from tenure.members.member import CONFIG, _write_config

PREFIX, SUFFIX = "some-of-", ".yaml"


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left(folder: Path, name: str, *, age_s: float = 3600) -> Path:
    path = folder / name
    path.write_text("")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_only_what_the_dead_have_left_is_removed(tmp_path: Path, gone: int) -> None:
    for name in (f"{PREFIX}{gone}-a.yaml", f"{PREFIX}{gone}-b.yaml.1"):
        left(tmp_path, name)
    kept = {
        left(tmp_path, f"{marked(PREFIX)}a.yaml"),
        left(tmp_path, f"{PREFIX}1-a.yaml"),
        left(tmp_path, f"{PREFIX}{gone}-young.yaml", age_s=1),
        left(tmp_path, f"{PREFIX}{gone}-a.txt"),
        left(tmp_path, f"{PREFIX}{gone}.yaml"),
        left(tmp_path, f"others-{gone}-a.yaml"),
        left(tmp_path, f"{PREFIX}{10**30}-a.yaml"),
    }
    remove_leftovers(tmp_path, PREFIX, SUFFIX)
    assert set(tmp_path.iterdir()) == kept
    remove_leftovers(tmp_path / "missing", PREFIX, SUFFIX)


def test_a_member_removes_the_configurations_of_those_whose_parents_were_killed(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left(tmp_path, f"{CONFIG}{gone}-abcdefgh.yaml")
    first = _write_config(MemberSettings())
    os.utime(first, (1, 1))
    second = _write_config(MemberSettings())
    assert set(tmp_path.iterdir()) == {first, second}
    assert "hazelcast:" in second.read_text()
