"""The process of a run whose driver works on a cluster: it has it submitted once, and stays until it has ended.

    note the name ──► spark-submit ──► note the id ──► look how it is, and pass on what it says ──► it has ended
                                                                                                     note the result

All notes are committed in the job. So who comes after one that was killed finds the application that it has left, by
its id or else by its name, and goes on with that one, or has its result; a driver is not started twice.
"""

import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.jobs.pipelines.errors import PipelineFailed
from tenure.jobs.reporting import Fenced, Reporter, RunFile
from tenure.jobs.spark.managers import (
    DEPLOY_MODE,
    SUBMIT_TIMEOUT_S,
    Manager,
    asked,
    manager_of,
    name_of,
    settings_options,
    spark_submit,
)
from tenure.jobs.spark.relay import Relay
from tenure.jobs.spark.scaling import allocation
from tenure.jobs.spark.session import spark_settings
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.errors import Mistake, NotDone, TooLarge

__all__ = ["FOLDER", "Application", "DriverFailed", "Submission", "main"]

FOLDER = ".tenure-applications"
NOTE, RESULT_NOTE = "application", "result"
LOOK_EVERY_S = 0.2
ASK_EVERY_S, ASK_AT_THE_END_S = 10.0, 1.0
PROGRAM = """import sys

from tenure.jobs.spark.driver import main

sys.exit(main(["--relay", {folder!r}]))
"""


class Application(Struct, frozen=True, kw_only=True):
    """A driver on a cluster."""

    name: str
    folder: str
    """Where it and we talk."""
    id: str = ""
    """Empty until the manager has said it."""


class DriverFailed(Exception):
    """The driver has said its error: what it said."""


class Submission:
    """The driver of one run: submitted, or found again."""

    def __init__(
        self, work: SparkWork, reporter: Reporter, manager: Manager | None = None, ask_every_s: float = ASK_EVERY_S
    ) -> None:
        self._work, self._reporter, self._ask_every_s = work, reporter, ask_every_s
        pipeline = work.declared()
        self._master = pipeline.master if pipeline else work.master
        self._settings = allocation(pipeline) | pipeline.spark if pipeline else work.spark
        self._manager = manager or manager_of(self._master, self._settings)
        self._application: Application | None = None
        self._told_to_cancel_s: float | None = None
        self._is_killed = False

    def run(self) -> Any:
        """Its result. Raises `DriverFailed`, `PipelineFailed`, `Fenced`."""
        if (noted := self._reporter.run.notes.get(RESULT_NOTE)) is not None:
            return noted["result"]
        application = self._application = self._left_behind() or self._submitted()
        self._reporter.started(application=application.id, master=self._master)
        relay = None if self._work.script else Relay(Path(application.folder), self._reporter)
        try:
            state, words = self._followed(application, relay)
        except Fenced:
            self.end()
            raise
        said: dict[str, Any] = {"result": {"application": application.id}}
        if relay is not None:
            relay.turn()
            said = relay.last or {}
        if state == "succeeded" and "result" in said:
            self._keep_result(application, said["result"])
            return said["result"]
        _remove(application)
        if "error" in said:
            raise DriverFailed(said)
        logs = self._manager.logs(application.id)
        raise PipelineFailed(f"application {application.id} has ended without a result ({words}); its log: {logs}")

    def end(self) -> None:
        """End the driver, if there is one."""
        if self._application is not None and self._application.id:
            self._manager.kill(self._application.id)

    def _keep_result(self, application: Application, result: Any) -> None:
        """Note it, then remove the folder that it is in: who comes after one that is killed here finds one of them."""
        try:
            self._reporter.note(RESULT_NOTE, {"result": result})
        except (NotDone, TooLarge):
            return  # then the folder stays
        _remove(application)

    # -- finding it, or submitting it -------------------------------------------------------------

    def _left_behind(self) -> Application | None:
        """The application of an earlier attempt, unless it has failed, or what it said is lost: then this
        attempt is there for a new one."""
        noted = self._reporter.run.notes.get(NOTE)
        if noted is None:
            return None
        known = msgspec.convert(noted, Application)
        id = known.id or self._manager.find(known.name)
        state = "unknown" if id is None else self._manager.state(id)[0]
        is_lost = state != "alive" and not self._work.script and not Path(known.folder).is_dir()
        if id is None or state in ("failed", "unknown") or is_lost:
            _remove(known)
            return None
        return self._noted(replace(known, id=id))

    def _submitted(self) -> Application:
        run = self._reporter.run
        name = name_of(run.tag)
        folder = Path(self._work.folder).absolute() / FOLDER / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "run.json").write_bytes(msgspec.json.encode(RunFile(run=run)))
        (folder / "application.py").write_text(PROGRAM.format(folder=str(folder)))
        self._application = self._noted(Application(name=name, folder=str(folder)))
        problem = "it does not say an id"
        try:
            id = self._manager.id_of(asked(self._command(name, folder), timeout_s=SUBMIT_TIMEOUT_S), name)
        except NotDone as error:  # it may have got through all the same
            id, problem = self._manager.find(name), str(error)
        if id is None and (id := self._manager.find(name)) is None:
            raise PipelineFailed(f"the driver could not be submitted: {problem}")
        self._application = replace(self._application, id=id)
        return self._noted(self._application)

    def _noted(self, application: Application) -> Application:
        try:
            self._reporter.note(NOTE, msgspec.to_builtins(application))
        except Fenced:
            self.end()
            raise
        return application

    def _command(self, name: str, folder: Path) -> list[str]:
        work = self._work
        settings = spark_settings(self._master, self._settings, self._reporter.run.job or "tenure")
        title = settings.pop("spark.app.name")
        for said_otherwise in ("spark.master", DEPLOY_MODE):
            settings.pop(said_otherwise, None)
        settings |= self._manager.options(name)
        program = str(Path(work.folder).absolute() / work.script) if work.script else str(folder / "application.py")
        if self._master.startswith("k8s://"):
            program = f"local://{program}"  # pods see the folder under the same path
        where = ["--master", self._master, "--deploy-mode", "cluster", "--name", title]
        return [spark_submit(), *where, *settings_options(settings), program, *map(str, work.arguments)]

    # -- until it has ended -----------------------------------------------------------------------

    def _followed(self, application: Application, relay: Relay | None) -> tuple[str, str]:
        self._reporter.on_cancel(lambda: None)  # we heed it: no signal before half of the deadline
        asked_s = time.monotonic()
        while True:
            if relay is not None:
                relay.turn()
            self._mind_cancel(application, relay)
            is_ending = self._reporter.cancelled or (relay is not None and relay.last is not None)
            every_s = min(self._ask_every_s, ASK_AT_THE_END_S) if is_ending else self._ask_every_s
            if time.monotonic() - asked_s >= every_s:
                asked_s = time.monotonic()
                try:
                    state, words = self._manager.state(application.id)
                except NotDone as error:
                    print(error, file=sys.stderr)  # noqa: T201  # the next look may tell more; this is the run's log
                else:
                    if state != "alive":
                        return state, words
            time.sleep(LOOK_EVERY_S)

    def _mind_cancel(self, application: Application, relay: Relay | None) -> None:
        """Spark's own way first; then the manager's."""
        if not self._reporter.cancelled:
            return
        now_s, deadline_s = time.monotonic(), self._reporter.run.cancel_deadline_s
        if self._told_to_cancel_s is None:
            self._told_to_cancel_s = now_s
            if relay is not None:
                relay.say(cancel=True)
                return
        if not self._is_killed and (relay is None or now_s - self._told_to_cancel_s > deadline_s / 3):
            self._is_killed = True
            self.end()


def _remove(application: Application) -> None:
    folder = Path(application.folder)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        pass  # there are others


def main() -> int:
    """Exit codes are those of the driver."""
    with Reporter.from_environment() as reporter:
        submission: Submission | None = None

        def terminated(number: int, frame: FrameType | None) -> None:
            raise SystemExit(1)

        signal.signal(signal.SIGTERM, terminated)
        try:
            submission = Submission(msgspec.convert(reporter.run.work, SparkWork), reporter)
            reporter.result(submission.run())
        except SystemExit:
            if submission is not None and reporter.cancelled:
                submission.end()
            raise
        except DriverFailed as failed:
            reporter.pass_on(failed.args[0])
            return 1
        except Exception as error:  # noqa: BLE001  # whatever it is, its job is told
            reporter.error(error, final=isinstance(error, Mistake))
            return 2 if isinstance(error, Mistake) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
