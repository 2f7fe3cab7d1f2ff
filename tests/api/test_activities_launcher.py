"""The launcher and its wrappers by themselves: real processes, and an uplink that answers as a job would."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio

import tenure
from tenure.jobs.folders import KEPT_S, RunFolder, place_of, prune, write_whole
from tenure.jobs.kinds import Command, command_of
from tenure.jobs.local import LocalLauncher, start_wrapper
from tenure.jobs.logs import BoundedLog
from tenure.jobs.processes import marked
from tenure.jobs.reporting import RunFile, load_run
from tenure.jobs.wrapper import live
from tenure.scheduler.activities_port import LaunchRefused, Outcome, Run
from tenure.scheduler.activities_wire import Report
from tenure.scheduler.errors import Mistake, NotDone

WITHIN_S = 20.0


class Job:
    """Hears reports, and answers."""

    def __init__(self) -> None:
        self.heard: list[Report] = []
        self.verdict = "go"
        self.is_there = True

    async def report(self, job: str, report: Report) -> str:
        await trio.lowlevel.checkpoint()
        if not self.is_there:
            await trio.sleep(0.05)
            raise NotDone("nobody there")
        self.heard.append(report)
        return self.verdict

    def outcome(self) -> Outcome | None:
        return self.heard[-1].outcome if self.heard else None


class Machine:
    """A state folder, its launcher, and a job. Wrappers are tasks."""

    def __init__(self, state: Path, nursery: trio.Nursery) -> None:
        self.state, self.nursery, self.job = state, nursery, Job()
        self.launcher = self.new_launcher()

    def new_launcher(self, **options: Any) -> LocalLauncher:
        return LocalLauncher({}, state=self.state, **({"start": self._start} | options))

    def folder(self, tag: str = "a.1") -> RunFolder:
        return RunFolder(self.state / "runs", tag)

    def _start(self, folder: RunFolder) -> None:
        trio.from_thread.run_sync(self.start, folder)

    def start(self, folder: RunFolder) -> None:
        self.nursery.start_soon(partial(live, folder, self._uplink))

    @asynccontextmanager
    async def _uplink(self, cluster: dict[str, Any]) -> AsyncIterator[Job]:
        yield self.job

    async def until(self, state: str, tag: str = "a.1") -> Any:
        with trio.fail_after(WITHIN_S):
            while (found := await self.launcher.find(tag)).state != state:  # noqa: ASYNC110  # only looking shows it
                await trio.sleep(0.02)
            return found


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with trio.open_nursery() as nursery:
        yield Machine(tmp_path / "state", nursery)
        nursery.cancel_scope.cancel()


def run(*argv: str, tag: str = "a.1", **fields: Any) -> Run:
    return Run(
        tag=tag,
        job="a",
        generation=1,
        activity="x",
        id="1",
        attempt=1,
        kind="process",
        work={"argv": list(argv)},
        **({"heartbeat_s": 0.1, "cancel_deadline_s": 1.0} | fields),
    )


async def within(look: Callable[[], Any]) -> Any:
    with trio.fail_after(WITHIN_S):
        while not (found := look()):  # noqa: ASYNC110  # only looking shows it
            await trio.sleep(0.02)
        return found


# -- at most once ---------------------------------------------------------------------------------


async def test_many_launches_begin_one_run(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with trio.open_nursery() as nursery:
        for launcher in [machine.new_launcher() for _ in range(4)]:
            for _ in range(3):
                nursery.start_soon(launcher.launch, run("sh", "-c", f"echo x >>{log}; sleep 0.3"))
    assert (await machine.until("over")).outcome.status == "succeeded"
    await machine.launcher.launch(run("sh", "-c", f"echo x >>{log}"))
    await trio.sleep(0.5)
    assert log.read_text() == "x\n"
    assert [report.what for report in machine.job.heard if report.what != "beat"] == ["started", "ended"]


async def test_a_launcher_that_died_half_way_leaves_it_to_the_next(machine: Machine) -> None:
    machine.folder().make()
    assert (await machine.launcher.find("a.1")).state == "absent"
    half = machine.new_launcher(start=lambda folder: None)
    await half.launch(run("true"))
    assert (machine.folder() / "run.json").exists()
    assert (await machine.launcher.find("a.1")).state == "absent"
    await machine.launcher.launch(run("true"))
    assert (await machine.until("over")).outcome == Outcome(status="succeeded")


async def test_one_that_has_begun_never_begins_again(machine: Machine) -> None:
    folder = machine.folder()
    folder.make()
    write_whole(folder / "run.json", msgspec.json.encode(RunFile(run=run("true"), command={"argv": ["/bin/true"]})))
    lock = folder.lock(0)
    assert lock is not None
    assert folder.begin()
    assert (await machine.launcher.find("a.1")).state == "running"
    os.close(lock)  # as by kill -9
    assert (await machine.launcher.find("a.1")).state == "over"
    machine.start(folder)
    await trio.sleep(0.3)
    assert machine.job.heard == []


async def test_looking_does_not_keep_a_run_from_beginning(machine: Machine) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            machine.folder().is_locked()

    machine.folder().make()
    (machine.folder() / "lock").touch()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        await machine.launcher.launch(run("true"))
        await machine.until("over")
    finally:
        stop.set()
        thread.join()


async def test_who_is_not_admitted_does_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.job.verdict = "fenced"
    await machine.launcher.launch(run("touch", str(tmp_path / "touched")))
    found = await machine.until("over")
    assert "Fenced" in found.outcome.error
    assert not (tmp_path / "touched").exists()
    assert [report.what for report in machine.job.heard] == ["started"]


async def test_the_work_waits_until_the_job_can_be_reached(machine: Machine, tmp_path: Path) -> None:
    machine.job.is_there = False
    await machine.launcher.launch(run("touch", str(tmp_path / "touched")))
    await trio.sleep(0.5)
    assert not (tmp_path / "touched").exists()
    machine.job.is_there = True
    await machine.until("over")
    assert (tmp_path / "touched").exists()


# -- ending ---------------------------------------------------------------------------------------


async def test_an_outcome_that_could_not_be_told_is_kept(machine: Machine) -> None:
    await machine.launcher.launch(run("sh", "-c", "sleep 0.3; exit 3", orphan_after_s=1.5))
    await within(lambda: machine.job.heard)
    machine.job.is_there = False
    found = await machine.until("over")
    assert found.outcome.error == "ExitCode: it ended with exit code 3"


async def test_an_outcome_that_could_not_be_kept_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: what has succeeded is not lost, and not done again."""

    def full(path: Path, data: bytes) -> None:
        if path.name in ("untold.json", "outcome.json"):
            raise OSError(28, "No space left on device")
        write_whole(path, data)

    monkeypatch.setattr("tenure.jobs.wrapper.write_whole", full)
    await machine.launcher.launch(run("true"))
    await within(lambda: machine.job.outcome())
    assert machine.job.outcome() == Outcome(status="succeeded")
    assert (await machine.until("over")).outcome is None


async def test_cut_off_for_too_long_it_ends(machine: Machine) -> None:
    await machine.launcher.launch(run("sleep", "600", orphan_after_s=1.0, cancel_deadline_s=0.2))
    await within(lambda: machine.job.heard)
    machine.job.is_there = False
    began_s = time.monotonic()
    found = await machine.until("over")
    assert 0.5 < time.monotonic() - began_s < 8
    assert found.outcome.error == "Orphaned: the cluster could not be reached for 1 s"
    assert marked("a.1") == []


async def test_fenced_it_ends_without_a_word(machine: Machine) -> None:
    await machine.launcher.launch(run("sleep", "600", cancel_deadline_s=0.2))
    await within(lambda: machine.job.heard)
    machine.job.verdict = "fenced"
    await machine.until("over")
    assert [report.what for report in machine.job.heard if report.what == "ended"] == []
    assert marked("a.1") == []


async def test_cancelled_before_it_began_it_ends_at_once(machine: Machine, tmp_path: Path) -> None:
    machine.folder().make()
    await machine.launcher.cancel("a.1", force=False)
    machine.job.is_there = False
    await machine.launcher.launch(run("touch", str(tmp_path / "touched")))
    assert (await machine.until("over")).outcome.status == "cancelled"
    assert not (tmp_path / "touched").exists()


async def test_cancelling_what_is_not_there_is_fine(machine: Machine) -> None:
    await machine.launcher.cancel("nobody.1", force=False)
    await machine.launcher.cancel("nobody.1", force=True)
    assert (await machine.launcher.find("nobody.1")).state == "absent"
    assert not machine.folder("nobody.1").path.exists()


async def test_force_ends_also_those_whose_folder_is_lost(machine: Machine) -> None:
    await machine.launcher.launch(run("sleep", "600"))
    await within(lambda: marked("a.1"))
    for file in ("lock", "began"):
        (machine.folder() / file).unlink()
    await machine.launcher.cancel("a.1", force=True)
    assert marked("a.1") == []


async def test_a_wrapper_that_fails_says_why(machine: Machine) -> None:
    folder = machine.folder()
    folder.make()
    (folder / "run.json").write_text("{}")
    await trio.to_thread.run_sync(start_wrapper, folder)
    found = await machine.until("over")
    assert found.outcome.status == "failed"
    assert "WrapperFailed: ValidationError" in found.outcome.error
    assert "Traceback" in found.outcome.traceback


async def test_a_wrapper_asked_to_end_by_somebody_else_has_failed(machine: Machine) -> None:
    """As a process of its own, with nobody to report to."""
    launcher = LocalLauncher({"cluster_name": "x", "addresses": ["127.0.0.1:1"]}, state=machine.state)
    await launcher.launch(run("true"))
    found = await machine.until("running")
    keeper = await within(machine.folder().keeper)
    assert found.pid in (0, keeper.pid)
    await trio.sleep(1.0)
    os.kill(keeper.pid, signal.SIGTERM)
    assert "Interrupted" in (await machine.until("over")).outcome.error


async def test_a_run_is_told_of_the_members_that_there_are_when_it_is_launched(machine: Machine) -> None:
    """All those that were there when the node began may be gone."""
    began = {"cluster_name": "x", "addresses": ["127.0.0.1:1"]}
    now = {"cluster_name": "x", "addresses": ["127.0.0.1:2", "127.0.0.1:3"]}
    launcher = LocalLauncher(began, state=machine.state, start=machine._start, reach=lambda: now)
    await launcher.launch(run("sh", "-c", "echo $TENURE_CLUSTER; sleep 600", tag="mine.1"))
    await within(lambda: marked("mine.1"))
    folder = RunFolder(machine.state / "runs", "mine.1")
    assert load_run(folder / "run.json").cluster == now
    await within(lambda: "x@127.0.0.1:2,127.0.0.1:3" in "".join(p.read_text() for p in folder.path.glob("*.log")))
    await launcher.end_all()
    assert marked("mine.1") == []


async def test_end_all_leaves_those_of_other_clusters(machine: Machine) -> None:
    await machine.launcher.launch(run("sleep", "600", tag="mine.1"))
    other = LocalLauncher({"cluster_name": "other"}, state=machine.state, start=machine._start)
    await other.launch(run("sleep", "600", tag="theirs.1"))
    await within(lambda: marked("mine.1") and marked("theirs.1"))
    await machine.launcher.end_all()
    assert marked("mine.1") == []
    assert marked("theirs.1")
    await other.end_all()
    assert marked("theirs.1") == []


# -- the lifeline ---------------------------------------------------------------------------------

HOLDER = """
import sys, trio
from functools import partial
from pathlib import Path
from contextlib import asynccontextmanager
from tenure.jobs.folders import RunFolder
from tenure.jobs.wrapper import live

class Job:
    async def report(self, job, report):
        return "go"

@asynccontextmanager
async def uplink(cluster):
    yield Job()

path = Path(sys.argv[1])
trio.run(partial(live, RunFolder(path.parent, path.name), uplink, alone=False))
"""
ESCAPING = "import subprocess, sys, time; c = [sys.executable, '-c', 'import time; time.sleep(600)']; "
ESCAPING += "subprocess.Popen(c, start_new_session=True); subprocess.Popen(c); time.sleep(600)"


def start_holders(machine: Machine, program: str) -> "list[subprocess.Popen[bytes]]":
    """From now on, wrappers are processes, whose job says yes to everything."""
    holders: list[subprocess.Popen[bytes]] = []
    code = f"import sys; sys.path.insert(0, {str(Path(tenure.__file__).parents[1])!r}); {program}"

    def start(folder: RunFolder) -> None:
        holders.append(subprocess.Popen([sys.executable, "-c", code, str(folder.path)]))

    machine.launcher = machine.new_launcher(start=start)
    return holders


async def test_nothing_survives_a_wrapper_that_is_killed(machine: Machine) -> None:
    holders = start_holders(machine, HOLDER)
    await machine.launcher.launch(run(sys.executable, "-c", ESCAPING))
    await within(lambda: len(marked("a.1")) == 3)
    assert (await machine.launcher.find("a.1")).state == "running"
    holders[0].kill()
    await trio.to_thread.run_sync(holders[0].wait)
    await machine.until("over")
    assert marked("a.1") == [], "the lock is held until nothing is left"


async def test_who_runs_away_is_not_waited_for(machine: Machine, tmp_path: Path) -> None:
    """Out of its session, without the mark, with all descriptors: it holds up nobody."""
    await machine.launcher.launch(run("sh", "-c", f"setsid env -i sleep 15 & echo $! >{tmp_path / 'pid'}"))
    began_s = time.monotonic()
    assert (await machine.until("over")).outcome == Outcome(status="succeeded")
    assert time.monotonic() - began_s < 10


async def test_a_wrapper_of_its_own_finds_those_who_run_away(machine: Machine, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"setsid env -i sh -c 'echo $$ >>{pids}; exec sleep 600' & (setsid env -i true &); sleep 1; exit 0"
    holders = start_holders(machine, HOLDER.replace("alone=False", "alone=True"))
    await machine.launcher.launch(run("sh", "-c", script))
    await machine.until("over")
    await trio.to_thread.run_sync(holders[0].wait)
    (pid,) = (int(line) for line in pids.read_text().split())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# -- folders and logs -----------------------------------------------------------------------------


def test_a_place_is_named_once(tmp_path: Path) -> None:
    places = []
    threads = [threading.Thread(target=lambda: places.append(place_of(tmp_path / "state"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places)) == 1
    assert place_of(tmp_path / "other") != places[0]


def test_old_folders_are_removed_unless_something_runs_there(tmp_path: Path) -> None:
    old, new, busy = (RunFolder(tmp_path, f"{name}.1") for name in ("old", "new", "busy"))
    for folder in (old, new, busy):
        folder.make()
    lock = busy.lock(0)
    assert lock is not None
    for folder in (old, busy):
        os.utime(folder.path, (time.time() - KEPT_S - 60,) * 2)
    prune(tmp_path)
    assert [folder.path.exists() for folder in (old, new, busy)] == [False, True, True]
    os.close(lock)
    prune(tmp_path / "not there")


def test_logs_keep_the_newest(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 1000)
    for n in range(500):
        log.write(b"line %d\n" % n)
    log.write(b"x" * 5000 + b"\nend\n")
    log.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 1000
    assert (tmp_path / "log").read_bytes().endswith(b"end\n")
    assert log.tail().endswith("end")
    assert len(log.tail()) <= 16 * 1024


def test_a_log_whose_folder_goes_away_loses_what_comes_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    log = BoundedLog(folder / "log", 1000)
    (folder / "log").unlink()
    log.write(b"x" * 600)  # it is made anew
    folder.rename(tmp_path / "elsewhere")
    for _ in range(3):
        with pytest.raises(OSError, match="No such file"):
            log.write(b"y" * 2000)
    (tmp_path / "elsewhere").rename(folder)
    log.write(b"end\n")
    log.close()
    assert (folder / "log").read_bytes() == b"end\n"
    assert log.tail().endswith("end")


async def test_work_goes_on_whatever_it_says_and_whatever_becomes_of_its_folder(
    machine: Machine, tmp_path: Path
) -> None:
    code = (
        "import os, sys; fd = int(os.environ['TENURE_REPORT_FD'])\n"
        "def say(line): os.write(fd, line.encode() + b'\\n')\n"
        "say('[' * 200_000); say('{\"result\":' + '[' * 50_000 + ']' * 50_000 + '}')\n"
        "say('{\"metrics\": {\"n\": 1' + '0' * 30 + '}}'); say('{\"progress\": [1, 1' + '0' * 30 + ']}')\n"
        "os.rename('stdout.log', 'gone'); os.mkdir('stdout.log'); os.mkdir('stdout.log.1')\n"
        "os.mkdir('stdout.log.1/full')\n"
        "for n in range(20): print('x' * 1000, flush=True)\n"
        "say('{\"result\": 7}')\n"
    )
    work = {"argv": [sys.executable, "-c", code], "log_bytes_max": 4000}
    await machine.launcher.launch(msgspec.structs.replace(run(), work=work))
    outcome = (await machine.until("over")).outcome
    assert (outcome.status, outcome.result) == ("succeeded", 7)


async def test_who_watches_forgets_the_number_of_a_command_that_has_ended(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another's by the time that the wrapper is killed, while it tries to tell the end."""
    told = tmp_path / "told"
    monkeypatch.setattr("tenure.jobs.command_work._WATCHER", f"while read -r line; do echo $line >>{told}; done")
    await machine.launcher.launch(run("sh", "-c", "echo $$ >pid; sleep 0.3", orphan_after_s=600.0))
    await within(lambda: (machine.folder() / "pid").exists())
    machine.job.is_there = False
    await machine.until("over")  # it is not told yet
    pid = (machine.folder() / "pid").read_text().strip()
    await within(lambda: told.read_text().split("\n") == [pid, "", ""])
    machine.job.is_there = True
    await within(lambda: told.read_text().endswith("end\n"))


async def test_what_is_no_folder_among_the_runs_is_left_alone(machine: Machine) -> None:
    machine.launcher.runs.mkdir(parents=True)
    file = machine.launcher.runs / "notes.txt"
    file.touch()
    os.utime(file, (1, 1))
    await machine.launcher.launch(run("true"))
    await machine.until("over")
    await machine.launcher.end_all()
    assert file.exists()


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


async def test_work_goes_on_when_the_disk_of_its_wrappers_log_is_full(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os; os.write(int(os.environ['TENURE_REPORT_FD']), b'no report\\n{\"result\": 7}\\n')"
    monkeypatch.setattr(sys, "stdout", Full())
    await machine.launcher.launch(run(sys.executable, "-c", code))
    outcome = (await machine.until("over")).outcome
    assert (outcome.status, outcome.result) == ("succeeded", 7)


async def test_what_is_no_report_fills_no_log(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os; [os.write(int(os.environ['TENURE_REPORT_FD']), b'nonsense\\n' * 1000) for _ in range(5)]"
    await machine.launcher.launch(run(sys.executable, "-c", code))
    assert (await machine.until("over")).outcome.status == "succeeded"
    assert capsys.readouterr().out.count("no report") == 100


@pytest.mark.parametrize("left", [b"", b"\xff", b'{"status":"\xff"}', b'{"status":"succeeded","result":' + b"[" * 5000])
async def test_a_damaged_outcome_says_nothing(machine: Machine, left: bytes) -> None:
    folder = machine.folder()
    folder.make()
    for name in ("began", "lock"):
        (folder / name).touch()
    for name in ("outcome.json", "wrapper.json", "run.json"):
        (folder / name).write_bytes(left)
    found = await machine.launcher.find(folder.tag)
    assert (found.state, found.outcome) == ("over", None)
    await machine.launcher.cancel(folder.tag, force=True)
    await machine.launcher.end_all()


async def test_a_run_is_ended_also_where_the_disk_is_full(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    folder = machine.folder()
    await machine.new_launcher(start=start_wrapper).launch(run("sleep", "600", orphan_after_s=600.0))
    await within(lambda: folder.keeper())
    monkeypatch.setattr(Path, "touch", full)
    await machine.launcher.cancel(folder.tag, force=True)
    monkeypatch.undo()
    assert not folder.is_locked()


@pytest.mark.parametrize("name", ["A=B", ""])
def test_a_variable_that_no_environment_takes_is_refused(name: str) -> None:
    work = {"argv": ["true"], "env": {name: "x"}}
    with pytest.raises(LaunchRefused, match="a variable of the environment can't be named"):
        command_of(msgspec.structs.replace(run(), work=work))


def test_kinds_are_found_by_name() -> None:
    def mine(run: Run) -> Command:
        return Command(argv=[run.work])

    mine_run = Run(tag="t", job="j", generation=1, activity="a", id="i", attempt=1, kind="mine", work="/bin/true")
    assert command_of(mine_run, {"mine": mine}).argv == ["/bin/true"]
    with pytest.raises(Mistake, match="no activity is of kind 'mine'; there are process"):
        command_of(mine_run, {"process": mine})
    with pytest.raises(LaunchRefused, match="the work of a process activity: Object missing required field `argv`"):
        command_of(msgspec.structs.replace(mine_run, kind="process", work={}))


async def test_a_machine_that_can_not_keep_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    launcher = LocalLauncher({}, state=tmp_path / "file" / "state")
    for call in (launcher.find("a.1"), launcher.launch(run("true"))):
        with pytest.raises(NotADirectoryError):  # its node reports it, and the activity waits
            await call
