"""Drivers on a cluster: submitted once, found again, ended; by fake commands that say what YARN and Spark say."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from tenure.jobs.pipelines.errors import BadOption, PipelineFailed
from tenure.jobs.reporting import Fenced, Reporter, load_run
from tenure.jobs.spark import launching
from tenure.jobs.spark.managers import Kubernetes, Yarn, is_elsewhere, manager_of, name_of
from tenure.jobs.spark.relay import HEARD, Growing, append, relayed
from tenure.jobs.spark.submission import Application, DriverFailed, Submission
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.activities_port import LaunchRefused, Run
from tenure.scheduler.errors import NotDone, TooLarge

ID = "application_1700000000000_0042"
FAKE = """#!{python}
import json, os, sys
from pathlib import Path

here = Path({folder!r})
name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
with (here / "asked").open("a") as file:
    file.write(json.dumps([name, *arguments]) + "\\n")
answers = json.loads((here / "answers.json").read_text())
for key, (code, text) in answers.items():
    if key in arguments:
        print(text)
        sys.exit(code)
sys.exit("nobody has said what to answer to " + " ".join(arguments))
"""
REPORT = """Application Report :
\tApplication-Id : {id}
\tApplication-Name : p
\tState : {state}
\tFinal-State : {final}
\tTracking-URL : N/A
\tDiagnostics : {why}
"""
POD = """Submitting a request for the status of submission default:x in k8s://https://host:6443.
Application status (driver):
\t pod name: x
\t namespace: default
\t phase: {phase}
\t container status:
\t\t container state: terminated
\t\t termination reason: {why}
"""


class Commands:
    """Fake commands on the PATH, and what they were asked."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        for name in ("yarn", "spark-submit"):
            path = folder / "bin" / name
            path.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
            path.chmod(0o755)
        self.answers = {}

    def answer(self, what, text, code=0):
        self.answers[what] = (code, text)
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def asked(self):
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def commands(tmp_path, monkeypatch):
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SPARK_HOME", str(folder))
    return Commands(folder)


class Recording(Reporter):
    """Keeps what it is told; answers as it was told to."""

    def __init__(self, run, verdict="go"):
        super().__init__(run)
        self.said, self.verdict = [], verdict

    def _say(self, line):
        self.said.append(line)

    def _ask(self, line, timeout_s):
        self._say(line)
        if self.verdict == "nobody":
            raise NotDone("nobody")
        if self.verdict != "go":
            raise Fenced("over")


def run_of(tmp_path, attempt=1, master="yarn", notes=None, **work):
    work = {"function": "json:dumps", "folder": str(tmp_path), "master": master} | work
    work.setdefault("spark", {"spark.submit.deployMode": "cluster", "spark.executor.memory": "2g"})
    return Run(
        tag=f"t.{attempt}",
        job="j",
        generation=0,
        activity="run-1",
        id="t",
        attempt=attempt,
        kind="spark",
        work=work,
        notes=notes or {},
        cancel_deadline_s=0.6,
    )


def submission(reporter):
    return Submission(msgspec.convert(reporter.run.work, SparkWork), reporter, ask_every_s=0.0)


def folder_of(tmp_path, attempt=1):
    return tmp_path / ".tenure-applications" / name_of(f"t.{attempt}")


def says(folder, *lines):
    append(folder / "said.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def submitted(commands):
    return [asked for asked in commands.asked() if "--deploy-mode" in asked]


# -- whole runs ----------------------------------------------------------------------------------------


def test_the_id_is_noted_before_anybody_asks_how_it_is(tmp_path, commands):
    commands.answer("--deploy-mode", f"INFO Client: Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="RUNNING", final="UNDEFINED", why=""))
    reporter = Recording(run_of(tmp_path))
    results = []
    running = threading.Thread(target=lambda: results.append(submission(reporter).run()))
    running.start()
    folder = folder_of(tmp_path)
    wait_for(lambda: any("-status" in asked for asked in commands.asked()))
    assert load_run(folder / "run.json").run == reporter.run
    says(folder, {"progress": [1, 2]}, {"metrics": {"records_read": 7}})
    wait_for(lambda: {"metrics": {"records_read": 7}} in reporter.said)
    says(folder, {"confirm": True, "ask": 1}, {"result": {"records": 7}})
    wait_for(lambda: {"answer": 1, "verdict": "go"} in list(Growing(folder / HEARD).lines()))
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    running.join(10)
    assert results == [{"records": 7}]
    name = name_of("t.1")
    notes = [line["note"]["application"] for line in reporter.said if "application" in line.get("note", {})]
    assert notes == [{"name": name, "folder": str(folder), "id": ""}, {"name": name, "folder": str(folder), "id": ID}]
    (command,) = submitted(commands)
    assert command[:7] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--name", "j"]
    for setting in (f"spark.yarn.tags={name}", "spark.yarn.maxAppAttempts=1", "spark.executor.memory=2g"):
        assert command[command.index(setting) - 1] == "--conf"
    assert command[-1] == str(folder / "application.py")
    assert list(tmp_path.glob(".tenure*")) == []


@pytest.mark.parametrize("id", [ID, ""], ids=["its id was noted", "only its name was"])
def test_who_comes_after_one_that_was_killed_goes_on_with_its_driver(tmp_path, commands, id):
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    says(folder, {"result": 1})
    commands.answer("-list", f"Total number of applications:1\n{ID}\tj\tSPARK")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    notes = {"application": {"name": name_of("t.1"), "folder": str(folder), "id": id}}
    reporter = Recording(run_of(tmp_path, attempt=2, notes=notes))
    assert submission(reporter).run() == 1
    assert submitted(commands) == []
    assert {"started": True, "info": {"application": ID, "master": "yarn"}} in reporter.said


class Forgetful(Recording):
    """Its job does not take the result as a note."""

    def note(self, name, value, **options):
        if name == "result":
            raise self.error_of_notes
        super().note(name, value, **options)


@pytest.mark.parametrize("error", [None, TooLarge("the notes are too large"), NotDone("nobody has answered")])
def test_who_comes_after_one_that_was_killed_at_its_end_has_its_result(tmp_path, commands, error):
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    says(folder, {"result": None})
    commands.answer("--deploy-mode", f"Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    first = Recording(run_of(tmp_path)) if error is None else Forgetful(run_of(tmp_path))
    first.error_of_notes = error
    assert submission(first).run() is None
    assert folder.exists() == (error is not None)
    notes = {name: value for line in first.said for name, value in line.get("note", {}).items()}
    assert submission(Recording(run_of(tmp_path, attempt=2, notes=notes))).run() is None
    assert len(submitted(commands)) == 1


def test_one_whose_folder_is_lost_is_followed_by_a_new_one(tmp_path, commands):
    new = ID.replace("42", "43")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    commands.answer("--deploy-mode", f"Submitted application {new}")
    notes = {"application": {"name": name_of("t.1"), "folder": str(folder_of(tmp_path)), "id": ID}}
    folder_of(tmp_path, 2).mkdir(parents=True)
    says(folder_of(tmp_path, 2), {"result": 2})
    assert submission(Recording(run_of(tmp_path, attempt=2, notes=notes))).run() == 2


@pytest.mark.parametrize("how", ["never submitted", "failed"])
def test_one_that_has_failed_is_followed_by_a_new_one(tmp_path, commands, how):
    commands.answer("-list", "Total number of applications:0")
    old, new = ID, ID.replace("42", "43")
    commands.answer(old, REPORT.format(id=old, state="FAILED", final="FAILED", why="lost"))
    commands.answer(new, REPORT.format(id=new, state="FINISHED", final="SUCCEEDED", why=""))
    commands.answer("--deploy-mode", f"Submitted application {new}")
    id = old if how == "failed" else ""
    notes = {"application": {"name": name_of("t.1"), "folder": str(folder_of(tmp_path)), "id": id}}
    folder_of(tmp_path, 2).mkdir(parents=True)
    says(folder_of(tmp_path, 2), {"result": 2})
    assert submission(Recording(run_of(tmp_path, attempt=2, notes=notes))).run() == 2
    assert len(submitted(commands)) == 1


def test_a_submission_that_failed_may_have_got_through(tmp_path, commands):
    commands.answer("--deploy-mode", "Connection reset", code=1)
    commands.answer("-list", f"Total number of applications:1\n{ID}\tj\tSPARK")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    folder_of(tmp_path).mkdir(parents=True)
    says(folder_of(tmp_path), {"result": 1})
    assert submission(Recording(run_of(tmp_path))).run() == 1
    commands.answer("-list", "Total number of applications:0")
    with pytest.raises(PipelineFailed, match="could not be submitted: spark-submit ended with exit code 1: Connection"):
        submission(Recording(run_of(tmp_path))).run()


def test_how_failures_are_told(tmp_path, commands):
    commands.answer("--deploy-mode", f"Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="FAILED", why="exit code 13"))
    with pytest.raises(PipelineFailed, match=rf"FAILED: exit code 13\); its log: yarn logs -applicationId {ID}"):
        submission(Recording(run_of(tmp_path))).run()
    said = {"error": "BadRecord: in:1: no number", "traceback": "…", "final": False}
    folder_of(tmp_path).mkdir(parents=True)
    says(folder_of(tmp_path), said)
    with pytest.raises(DriverFailed) as failed:
        submission(Recording(run_of(tmp_path))).run()
    assert failed.value.args == (said,)
    commands.answer("-status", "Application with id doesn't exist in RM", code=255)
    with pytest.raises(PipelineFailed, match="not there"):
        submission(Recording(run_of(tmp_path, attempt=3))).run()


@pytest.mark.parametrize("verdict", ["fenced", "go"])
def test_whoever_is_fenced_ends_its_driver(tmp_path, commands, verdict):
    commands.answer("--deploy-mode", f"Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="RUNNING", final="UNDEFINED", why=""))
    commands.answer("-kill", "Killed")
    reporter = Recording(run_of(tmp_path), verdict)
    folder_of(tmp_path).mkdir(parents=True)
    says(folder_of(tmp_path), {"note": {"x": 1}, "ask": 1})
    if verdict == "go":  # until it is asked for the driver
        original = reporter._ask

        def ask(line, timeout_s):
            reporter.verdict = "fenced" if line == {"note": {"x": 1}} else "go"
            original(line, timeout_s)

        reporter._ask = ask
    with pytest.raises(Fenced):
        submission(reporter).run()
    killed = ["yarn", "application", "-kill", ID] in commands.asked()
    assert killed == (verdict == "go"), "fenced before it submitted, it had nothing to end"
    assert bool(submitted(commands)) == (verdict == "go")


def test_cancelling_asks_the_driver_then_the_manager(tmp_path, commands):
    commands.answer("--deploy-mode", f"Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="RUNNING", final="UNDEFINED", why=""))
    commands.answer("-kill", "Killed")
    reporter = Recording(run_of(tmp_path))
    reporter._cancelled.set()

    heard = []

    def die():
        wait_for(lambda: any("-kill" in asked for asked in commands.asked()))
        heard.extend(Growing(folder_of(tmp_path) / HEARD).lines())
        commands.answer("-status", REPORT.format(id=ID, state="KILLED", final="KILLED", why=""))

    threading.Thread(target=die).start()
    with pytest.raises(PipelineFailed, match="KILLED"):
        submission(reporter).run()
    assert {"cancel": True} in heard
    assert sum("-kill" in asked for asked in commands.asked()) == 1


def wait_for(condition, timeout_s=10.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


# -- managers ------------------------------------------------------------------------------------------


def test_yarn(commands):
    for state, final, expected in [
        ("ACCEPTED", "UNDEFINED", ("alive", "ACCEPTED")),
        ("FINISHED", "SUCCEEDED", ("succeeded", "SUCCEEDED")),
        ("FINISHED", "KILLED", ("failed", "KILLED")),
    ]:
        commands.answer("-status", REPORT.format(id=ID, state=state, final=final, why=""))
        assert Yarn().state(ID) == expected
    commands.answer("-status", "java.net.ConnectException: refused", code=255)
    with pytest.raises(NotDone, match="does not say how"):
        Yarn().state(ID)
    commands.answer("-list", f"{ID}\n{ID}9")
    with pytest.raises(PipelineFailed, match="has 2 applications"):
        Yarn().find("x")


def test_kubernetes(tmp_path, commands):
    settings = {"spark.kubernetes.namespace": "data", "spark.kubernetes.container.image": "i", "spark.x": "y"}
    manager = manager_of("k8s://https://host:6443", settings)
    assert isinstance(manager, Kubernetes)
    for phase, expected in [
        ("Pending", ("alive", "Pending")),
        ("Succeeded", ("succeeded", "Succeeded")),
        ("Failed", ("failed", "Failed: OOMKilled")),
    ]:
        commands.answer("--status", POD.format(phase=phase, why="OOMKilled"))
        assert manager.state("data:x") == expected
    assert manager.find("x") == "data:x"
    commands.answer("--status", "Application not found.")
    assert manager.find("x") is None
    commands.answer("--kill", "Deleting driver pod: x.")
    manager.kill("data:x")
    assert commands.asked()[-1] == [
        "spark-submit",
        "--master",
        "k8s://https://host:6443",
        "--conf",
        "spark.kubernetes.namespace=data",
        "--conf",
        "spark.kubernetes.container.image=i",
        "--kill",
        "data:x",
    ]
    assert manager.logs("data:x") == "kubectl logs --namespace data x"


def test_a_run_on_kubernetes(tmp_path, commands):
    commands.answer("--deploy-mode", "Deployed Spark application")
    commands.answer("--status", POD.format(phase="Succeeded", why="Completed"))
    folder_of(tmp_path).mkdir(parents=True)
    says(folder_of(tmp_path), {"result": 1})
    settings = {"spark.submit.deployMode": "cluster", "spark.kubernetes.namespace": "data"}
    reporter = Recording(run_of(tmp_path, master="k8s://https://host:6443", spark=settings))
    assert submission(reporter).run() == 1
    (command,) = submitted(commands)
    assert f"spark.kubernetes.driver.pod.name={name_of('t.1')}" in command
    assert command[-1] == f"local://{folder_of(tmp_path)}/application.py"
    notes = [line["note"]["application"]["id"] for line in reporter.said if "application" in line.get("note", {})]
    assert notes == ["", f"data:{name_of('t.1')}"]


def test_a_script(tmp_path, commands):
    commands.answer("--deploy-mode", f"Submitted application {ID}")
    commands.answer("-status", REPORT.format(id=ID, state="FINISHED", final="SUCCEEDED", why=""))
    reporter = Recording(run_of(tmp_path, function="", script="job.py", arguments=["--day", "monday"]))
    assert submission(reporter).run() == {"application": ID}
    assert submitted(commands)[0][-3:] == [str(tmp_path / "job.py"), "--day", "monday"]


def test_names_are_for_all_managers():
    assert name_of("t.1") != name_of("t.2")
    assert len(name_of("x" * 500)) < 63
    assert name_of("T").replace("-", "").isalnum()
    assert name_of("T").islower()


def test_where_drivers_can_not_run_is_said_before_anything_is_launched(tmp_path, monkeypatch):
    cluster = {"spark.submit.deployMode": "cluster"}
    assert not is_elsewhere("yarn", {})
    assert is_elsewhere("yarn", cluster)
    with pytest.raises(BadOption, match="runs no Python drivers"):
        is_elsewhere("spark://host:7077", cluster)
    with pytest.raises(BadOption, match="is client or cluster"):
        is_elsewhere("yarn", {"spark.submit.deployMode": "clutser"})
    monkeypatch.setattr(launching, "find_java_home", lambda: "/java")
    assert launching.command(run_of(tmp_path)).argv[-1] == launching.SUBMISSION
    with pytest.raises(LaunchRefused, match="no cluster mode for the master 'mesos://x'"):
        launching.command(run_of(tmp_path, master="mesos://x"))
    with pytest.raises(LaunchRefused, match="a warm driver runs at the node"):
        launching.command(run_of(tmp_path, warm=True))


# -- the relay -----------------------------------------------------------------------------------------


def test_what_a_driver_says_and_hears_goes_through_files(tmp_path):
    run = run_of(tmp_path)
    with relayed(tmp_path, silent_s=60) as channel, Reporter(run, channel) as reporter:
        reporter.progress(1, 2)
        said = Growing(tmp_path / "said.jsonl")
        asking = threading.Thread(target=reporter.confirm)
        asking.start()
        file = tmp_path / "said.jsonl"  # written by a thread, soon
        wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") == 2)
        assert list(said.lines()) == [{"progress": [1, 2]}, {"confirm": True, "ask": 1}]
        append(tmp_path / HEARD, b'{"beat": true}\n{"answer": 1, "ver')
        append(tmp_path / HEARD, b'dict": "go"}\n{"cancel": true}\n')
        asking.join(10)
        assert not asking.is_alive()
        assert reporter.wait_cancelled(10)
        reporter.result({"n": 1})
    assert list(said.lines()) == [{"result": {"n": 1}}]


def test_a_driver_that_nobody_minds_gives_up(tmp_path):
    given_up = threading.Event()
    with relayed(tmp_path, silent_s=0.3, give_up=given_up.set):
        assert given_up.wait(10)
    assert msgspec.convert({"name": "n", "folder": str(Path("f"))}, Application).id == ""
