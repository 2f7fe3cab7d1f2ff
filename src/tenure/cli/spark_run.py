"""One run of a pipeline's driver, watched: what it reports becomes a live view on a terminal, plain lines elsewhere."""

import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tenure.cli.ends import Exit, Failed
from tenure.cli.show import print_json, say
from tenure.cli.spark_view import View, view_for
from tenure.jobs.pipelines import Pipeline
from tenure.jobs.pipelines.lifeline import dies_with_parent
from tenure.jobs.reporting import REPORT_FD, RUN_FILE, RUN_TAG, RunFile
from tenure.jobs.spark.launching import command
from tenure.jobs.spark.types import parameters
from tenure.scheduler.activities_port import Run

__all__ = ["run_and_watch"]

CANCEL_DEADLINE_S = 15.0


def run_and_watch(pipeline: Pipeline, *, as_json: bool) -> int:
    """The exit code of the run. Raises `Failed` with the cause and the place of the whole log."""
    tag = f"{pipeline.name}-{secrets.token_hex(4)}"
    folder = Path(tempfile.mkdtemp(prefix="tenure-spark-"))
    run = Run(
        tag=tag,
        job=pipeline.name,
        generation=0,
        activity="pipeline",
        id=tag,
        attempt=1,
        kind="spark",
        work=parameters(pipeline),
    )
    with view_for(pipeline, as_json=as_json) as view:
        ended = _Driver(run, folder).watch(view)
    if ended.error:
        raise Failed(f"{ended.error.rstrip('.')}. The whole log: {folder / 'log'}")
    if as_json:
        print_json({"pipeline": pipeline.name, "run": tag, "result": ended.result})
    else:
        say(_sentence(pipeline, ended.result))
    _forget(folder)
    return Exit.DONE


class _Ended:
    def __init__(self) -> None:
        self.result: dict[str, Any] = {}
        self.error = ""
        self.traceback = ""


class _Driver:
    """The driver's process, and what it says."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run, self._folder, self._ended = run, folder, _Ended()

    def watch(self, view: View) -> _Ended:
        """Start it, and follow it to its end. An interrupt asks it to end; a second one ends it."""
        ours, theirs = socket.socketpair()
        with ours, self._started(theirs) as process, ours.makefile("rb") as lines, _interrupts(ours, process):
            for line in lines:
                self._hear(json.loads(line), view, ours)
            code = process.wait()
        if code and not self._ended.error:
            self._ended.error = f"the driver ended with exit code {code}" + _tail(self._folder / "log")
        with (self._folder / "log").open("a") as log:
            log.write(self._ended.traceback)
        return self._ended

    @contextmanager
    def _started(self, channel: socket.socket) -> "Iterator[subprocess.Popen[bytes]]":
        what = command(self._run)
        where = self._folder / "run.json"
        where.write_bytes(msgspec.json.encode(RunFile(run=self._run)))
        env = os.environ | what.env | {RUN_FILE: str(where), REPORT_FD: str(channel.fileno()), RUN_TAG: self._run.tag}
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                what.argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[channel.fileno()],
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )
        channel.close()
        try:
            yield process
        finally:
            _end(process)

    def _hear(self, said: dict[str, Any], view: View, channel: socket.socket) -> None:
        if "ask" in said:  # nobody else can have taken this run over
            channel.sendall(json.dumps({"answer": said["ask"], "verdict": "go"}).encode() + b"\n")
        if "result" in said:
            self._ended.result = said["result"]
        elif "error" in said:
            self._ended.error, self._ended.traceback = said["error"], said.get("traceback", "")
        else:
            view.hear(said)


@contextmanager
def _interrupts(channel: socket.socket, process: "subprocess.Popen[bytes]") -> Iterator[None]:
    asked = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            _end(process)
            return
        asked = True
        say("Cancelling; once more to end it at once.")
        channel.sendall(b'{"cancel": true}\n')

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of the driver's session is left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1]}" if lines else ""


def _sentence(pipeline: Pipeline, result: dict[str, Any]) -> str:
    where = " and ".join(str(pipeline.path(folder)) for folder in pipeline.sink.folders)
    records = result.get("records", 0)
    many, place = "s" * (records != 1), f" in {where}" if where else ""
    return f"{pipeline.name}: {records:,} record{many}{place}, {result.get('seconds', 0):.1f} s."


def _forget(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
