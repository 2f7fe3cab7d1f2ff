"""The note of an embedded cluster, and those who read it while it is being written."""

import json
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tenure.jobs.born import born
from tenure.jobs.folders import Keeper
from tenure.jobs.local import _signal
from tenure.nodes.whereabouts import announced, embedded_clusters


def test_whoever_looks_while_a_note_is_written_does_it_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    looks = []
    write = Path.write_text

    def write_slowly(path: Path, text: str, **options: Any) -> int:
        write(path, text[: len(text) // 2], **options)
        looks.append(embedded_clusters())
        with path.open("r+") as file:  # not made anew, should it have been thrown away
            return file.write(text)

    monkeypatch.setattr(Path, "write_text", write_slowly)
    with announced("mine@127.0.0.1:5"):
        assert looks == [[]]
        assert embedded_clusters() == ["mine@127.0.0.1:5"]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def _clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour ahead: of all processes it then says that they began an hour later."""
    began_s = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: began_s + 3600)


def test_a_note_is_good_also_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    with announced("mine@127.0.0.1:5"):
        request.getfixturevalue("_clock_is_set")
        assert embedded_clusters() == ["mine@127.0.0.1:5"]


def test_a_note_of_another_process_with_the_same_number_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    with announced("mine@127.0.0.1:5"):
        (note,) = tmp_path.iterdir()
        said = json.loads(note.read_text())
        for there, changed in (
            (True, {"born": 0}),
            (False, {"born": said["born"] - 1}),
            (False, {"born": 0, "started": 1}),
        ):
            note.write_text(json.dumps(said | changed))
            assert bool(embedded_clusters()) == there
            assert note.exists() == there


def test_a_run_is_signalled_also_when_the_clock_is_set(request: pytest.FixtureRequest) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        keeper = Keeper(process.pid, psutil.Process(process.pid).create_time(), born(process.pid) or 0)
        request.getfixturevalue("_clock_is_set")
        folder: Any = SimpleNamespace(keeper=lambda: keeper, is_locked=lambda: True)
        try:
            _signal(folder, signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM
        finally:
            process.kill()
