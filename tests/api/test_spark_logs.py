"""`tenure spark logs`: it follows a run from attempt to attempt, and ends with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.spark_logs import copy_logs
from tenure.jobs.folders import place_of
from tenure.scheduler.errors import NotDone, UnknownJob


class Scripted:
    """A client for whom the run's activity stands, at each look, as the next of these does it."""

    def __init__(self, *looks: Callable[[], dict[str, Any]]) -> None:
        self.directory, self._looks = self, list(looks)

    async def describe(self, id: str) -> dict[str, Any]:
        return {"activities": [self._looks.pop(0)()]}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    return tmp_path


def attempt(state: Path, number: int, said: str = "", *, placed: bool = True, ended: bool = False) -> Any:
    """An attempt that says something, and is then looked at."""

    def look() -> dict[str, Any]:
        folder = state / "runs" / f"a.{number}"
        if placed:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "stderr.log").open("a") as log:
                log.write(said)
        place = place_of(state) if placed else ""
        return {"name": "run-1", "tag": f"a.{number}", "place": place, "ended_ms": int(ended), "status": "running"}

    return look


def failing(error: Exception) -> Any:
    def look() -> dict[str, Any]:
        raise error

    return look


async def test_it_goes_on_with_the_next_attempt(
    state: Path, in_virtual_time: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one's wrapper was killed: it leaves no outcome."""
    client = Scripted(
        attempt(state, 1, "one\n"),
        attempt(state, 1, "two\n"),
        attempt(state, 2, placed=False),
        failing(NotDone("on its way")),
        attempt(state, 2, "three\n"),
        attempt(state, 2, "four\n", ended=True),
    )
    await copy_logs(client, "a", True)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "one\ntwo\nthree\nfour\n"


async def test_it_ends_when_the_job_has_gone(
    state: Path, in_virtual_time: None, capsys: pytest.CaptureFixture[str]
) -> None:
    await copy_logs(Scripted(attempt(state, 1, "one\n"), failing(UnknownJob("a"))), "a", True)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "one\n"


async def test_without_follow_it_looks_once(
    state: Path, in_virtual_time: None, capsys: pytest.CaptureFixture[str]
) -> None:
    await copy_logs(Scripted(attempt(state, 1, "one\n")), "a", False)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "one\n"
