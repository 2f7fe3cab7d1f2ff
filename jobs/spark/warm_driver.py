"""A warm driver: one Spark, and a session of its own for each run that is brought to it.

A run whose doorman has gone was given up: another attempt may be on its way. It is cancelled, and if it does not end
then (Python can't be interrupted), the warm driver does, with all that it runs.

python -m tenure.jobs.spark.warm_driver FOLDER
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.jobs.reporting import Reporter, load_run
from tenure.jobs.spark.driver import do_work
from tenure.jobs.spark.failures import is_final, told
from tenure.jobs.spark.hashes import register_hashes
from tenure.jobs.spark.progress import watched
from tenure.jobs.spark.session import open_session, spark_settings
from tenure.jobs.spark.warm import PID, WORK, base_settings, held, listen, own_settings
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main"]

IDLE_S = 600.0
LINE_BYTES_MAX = 4096
LOCK_PATIENCE_S = 1.0
ABANDONED_S = 3.0
"""A run that was given up ends so soon."""
LOOK_EVERY_S = 0.2


def main(home: Path, idle_s: float = IDLE_S) -> int:
    """Until no run has come for so long. At once, if there is one already."""
    if (lock := held(home, LOCK_PATIENCE_S)) is None:
        return 0
    with lock:
        (home / PID).write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        return _serve(home, idle_s)


def _serve(home: Path, idle_s: float) -> int:
    work = msgspec.json.decode((home / WORK).read_bytes(), type=SparkWork)
    pipeline = work.declared()
    master, settings = (pipeline.master, pipeline.spark) if pipeline else (work.master, work.spark)
    with open_session(master, base_settings(settings), "tenure-warm", home) as spark:
        return _Warm(spark, home, idle_s).serve()


class _Warm:
    def __init__(self, spark: "SparkSession", home: Path, idle_s: float) -> None:
        self._spark, self._home, self._idle_s = spark, home, idle_s
        self._running = 0
        self._at_work: set[str] = set()
        """The ids of the runs; an attempt waits until the one before it has ended."""
        self._changing = threading.Condition()
        self._rested = time.monotonic()

    def serve(self) -> int:
        """Take runs in until there was none for a while."""
        with listen(self._home) as server:
            server.settimeout(1.0)
            while not self._is_idle():
                try:
                    doorman, _ = server.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=self._take, args=(doorman,), daemon=True).start()
        return 0

    def _is_idle(self) -> bool:
        with self._changing:
            return not self._running and time.monotonic() - self._rested > self._idle_s

    def _take(self, doorman: socket.socket) -> None:
        with self._changing:
            self._running += 1
        try:
            with doorman:
                line, descriptors, _, _ = socket.recv_fds(doorman, LINE_BYTES_MAX, 3)
                if line:
                    code = self._run(Path(line.decode().rstrip("\n")), descriptors, doorman)
                    doorman.sendall(str(code).encode())
        except OSError:
            pass  # the doorman has gone, and with it whoever wanted to know
        finally:
            with self._changing:
                self._running -= 1
                self._rested = time.monotonic()

    def _run(self, run_file: Path, descriptors: list[int], doorman: socket.socket) -> int:
        run = load_run(run_file).run
        channel = socket.socket(fileno=descriptors[0])
        with ExitStack() as stack:
            stack.enter_context(self._alone(run.id))
            stack.enter_context(channel)
            console = stack.enter_context(os.fdopen(descriptors[1], "w", encoding="utf-8"))
            stack.enter_context(os.fdopen(descriptors[2], "w"))
            reporter = stack.enter_context(Reporter(run, channel, run_file.parent))
            try:
                reporter.result(self._work(reporter, console, doorman))
            except Exception as error:  # noqa: BLE001  # whatever it is, its job is told
                reporter.error(cause := told(error), final=is_final(cause))
                return 2 if isinstance(error, Mistake) else 1
        return 0

    @contextmanager
    def _alone(self, id: str) -> Iterator[None]:
        with self._changing:
            self._changing.wait_for(lambda: id not in self._at_work)
            self._at_work.add(id)
        try:
            yield
        finally:
            with self._changing:
                self._at_work.remove(id)
                self._changing.notify_all()

    def _work(self, reporter: Reporter, console: Any, doorman: socket.socket) -> Any:
        work = msgspec.convert(reporter.run.work, SparkWork)
        context = self._spark.sparkContext
        forget_modules(work.folder)
        spark = self._spark.newSession()
        pipeline = work.declared()
        settings = spark_settings("", own_settings(pipeline.spark if pipeline else work.spark))
        for name, value in own_settings(settings).items():
            spark.conf.set(name, value)
        if pipeline is not None:
            register_hashes(spark, self._home)
        tag = reporter.run.tag
        context.setJobGroup(tag, reporter.run.job, interruptOnCancel=True)
        context.environment["TENURE_WARM_RUN"] = tag  # Python workers of its own, so that they import anew
        over = threading.Event()
        cancel = lambda: context.cancelJobGroup(tag)  # noqa: E731
        reporter.on_cancel(cancel)
        threading.Thread(target=_end_when_gone, args=(doorman, over, cancel, tag), daemon=True).start()
        try:
            with watched(spark, reporter, group=tag, counts_records=True):
                return do_work(work, spark, reporter, console)
        finally:
            over.set()


def _end_when_gone(doorman: socket.socket, over: threading.Event, cancel: Callable[[], object], tag: str) -> None:
    """See that the run does not outlive its doorman by more than a moment."""
    while not _is_gone(doorman):
        if over.wait(LOOK_EVERY_S):
            return
    deadline_s = time.monotonic() + ABANDONED_S
    while time.monotonic() < deadline_s:
        cancel()  # it may have begun the next of Spark's jobs
        if over.wait(LOOK_EVERY_S):
            return
    print(f"run {tag} was given up, and does not end: this warm driver ends", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(1)


def _is_gone(doorman: socket.socket) -> bool:
    """The doorman says nothing more; when it is at its end, it was killed."""
    try:
        return doorman.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def forget_modules(folder: str) -> None:
    """What was imported from there is imported anew: it may have changed since the last run."""
    from tenure.jobs.pipelines.functions import forget_files

    forget_files()
    root = str(Path(folder).resolve()) + os.sep
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(root) and not name.startswith("tenure."):
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(float(number) for number in sys.argv[2:])))
