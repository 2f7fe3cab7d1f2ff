"""The reporter of a process, over a socket whose other end is held here; and by hand, without one."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.jobs.reporting import LINE_BYTES_MAX, REPORT_FD, RUN_FILE, Fenced, Reporter, RunFile, load_run
from tenure.scheduler.activities_port import Run
from tenure.scheduler.errors import Mistake, NotDone, TooLarge, WrongType

RUN = Run(tag="a.1", job="a", generation=1, activity="x", id="1", attempt=2, kind="process", work={"n": 1})


class Wrapper:
    """The other end."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.reporter = Reporter(RUN, theirs)
        self._theirs = theirs
        self._lines = self.ours.makefile("rb")

    def heard(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self._lines.readline())
        return line

    def say(self, **line: Any) -> None:
        self.ours.sendall(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        self._lines.close()
        self.ours.close()
        self._theirs.close()


@pytest.fixture
def wrapper() -> Iterator[Wrapper]:
    wrapper = Wrapper()
    yield wrapper
    wrapper.close()


def answering(wrapper: Wrapper, verdict: str) -> threading.Thread:
    def answer() -> None:
        wrapper.say(answer=wrapper.heard()["ask"], verdict=verdict)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_what_is_said_is_a_line_each(wrapper: Wrapper) -> None:
    reporter = wrapper.reporter
    reporter.started(ui="http://x")
    reporter.progress(1, 2)
    reporter.stage("parse", 1, 3, batch=4)
    reporter.metrics(rows=5)
    reporter.heartbeat()
    reporter.result({"rows": 5})
    assert [wrapper.heard() for _ in range(6)] == [
        {"started": True, "info": {"ui": "http://x"}},
        {"progress": [1, 2]},
        {"stage": {"name": "parse", "number": 1, "of": 3, "batch": 4}},
        {"metrics": {"rows": 5}},
        {"beat": True},
        {"result": {"rows": 5}},
    ]


def test_what_can_not_be_said(wrapper: Wrapper) -> None:
    with pytest.raises(Mistake):
        wrapper.reporter.progress(3, 2)
    with pytest.raises(WrongType):
        wrapper.reporter.result(object())
    with pytest.raises(WrongType):
        wrapper.reporter.metrics(rate=float("nan"))
    with pytest.raises(WrongType, match="can't be stored"):
        wrapper.reporter.metrics(rows=10**30)
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(WrongType, match="nested deeper than 200"):
        wrapper.reporter.result(deep)
    with pytest.raises(TooLarge, match="write it to a file"):
        wrapper.reporter.result("x" * LINE_BYTES_MAX)


def test_an_error_has_its_traceback(wrapper: Wrapper) -> None:
    with pytest.raises(KeyError), wrapper.reporter as reporter:
        raise KeyError(reporter.run.work["m"])
    said = wrapper.heard()
    assert said["error"] == "KeyError: 'm'"
    assert 'reporter.run.work["m"]' in said["traceback"]
    wrapper.reporter.error("NoTable: x", final=True)


def test_an_exit_is_no_error_and_the_last_word_counts(wrapper: Wrapper) -> None:
    with pytest.raises(SystemExit), wrapper.reporter:
        raise SystemExit(0)
    assert wrapper._lines.readline() == b""


def test_notes_and_confirmations_wait_for_their_answers(wrapper: Wrapper) -> None:
    thread = answering(wrapper, "go")
    wrapper.reporter.note("app", 17)
    thread.join()
    thread = answering(wrapper, "fenced")
    with pytest.raises(Fenced, match="attempt 2 of activity 'x' of job 'a' is over"):
        wrapper.reporter.confirm()
    thread.join()
    thread = answering(wrapper, "cancel")
    with pytest.raises(Fenced):
        wrapper.reporter.confirm()
    thread.join()
    thread = answering(wrapper, "too_large")
    with pytest.raises(TooLarge, match="notes"):
        wrapper.reporter.note("large", "x")
    thread.join()
    with pytest.raises(NotDone):
        wrapper.reporter.confirm(timeout_s=0.05)


def test_without_a_wrapper_nothing_is_confirmed(wrapper: Wrapper) -> None:
    wrapper.ours.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Fenced):
        wrapper.reporter.confirm(timeout_s=5)


def test_cancelling(wrapper: Wrapper) -> None:
    called, reporter = threading.Event(), wrapper.reporter
    reporter.on_cancel(called.set)
    assert wrapper.heard() == {"heeds_cancel": True}
    assert not reporter.cancelled
    assert not reporter.wait_cancelled(0.01)
    wrapper.say(cancel=True, deadline_s=1)
    assert reporter.wait_cancelled(5)
    assert called.wait(5)
    late = threading.Event()
    reporter.on_cancel(late.set)
    assert late.wait(5)


def test_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(RunFile(run=RUN, cluster={"cluster_name": "x"})))
    monkeypatch.setenv(RUN_FILE, str(path))
    monkeypatch.setenv(REPORT_FD, str(os.dup(theirs.fileno())))
    theirs.close()
    reporter = Reporter.from_environment()
    assert (reporter.run, reporter.folder) == (RUN, tmp_path)
    assert RUN_FILE not in os.environ
    assert load_run(path).cluster == {"cluster_name": "x"}
    reporter.progress(1, 1)
    with ours.makefile("rb") as lines:
        assert json.loads(lines.readline()) == {"progress": [1, 1]}
    reporter.close()
    ours.close()
    assert reporter._channel is not None
    reporter._channel.close()


def test_by_hand_it_talks_to_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_FILE, raising=False)
    with Reporter.from_environment() as reporter:
        reporter.progress(1, 2)
        reporter.note("app", 1)
        reporter.confirm()
        assert not reporter.cancelled
    assert capsys.readouterr().err.splitlines()[0] == 'report: {"progress":[1,2]}'


def test_without_a_wrapper_the_work_is_cancelled(wrapper: Wrapper) -> None:
    told = threading.Event()
    wrapper.reporter.on_cancel(told.set)
    assert not wrapper.reporter.cancelled
    wrapper.ours.shutdown(socket.SHUT_RDWR)
    assert wrapper.reporter.wait_cancelled(10)
    assert told.wait(10)


def test_once_all_is_said_nothing_is_cancelled(wrapper: Wrapper) -> None:
    wrapper.reporter.result(1)
    wrapper.reporter.close()
    wrapper.ours.shutdown(socket.SHUT_RDWR)
    listening = next((thread for thread in threading.enumerate() if thread.name == "tenure-reporter"), None)
    if listening is not None:
        listening.join(10)
    assert not wrapper.reporter.cancelled
