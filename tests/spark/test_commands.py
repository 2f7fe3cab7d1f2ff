"""`tenure spark` on a cluster of its own node: submit, list, tasks, kill, logs, cancel."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tenure.bench.spark_kills import expected, make_pipeline, written
from tenure.cli import main
from tenure.jobs.spark.warm import end_all, has_driver
from tenure.nodes.whereabouts import embedded_clusters
from tests.cluster.test_node import running

DEADLINE_S = 240
TOML = """
name = "{name}"
source = {{ text = "input.txt" }}
sink = {{ text = "{name}" }}
master = "local[2]"
stages = [
  {{ command = "./operator.pl", tasks = 2 }},
  {{ key_by = {{ regex = '^(\\S+)' }} }},
  {{ aggregate = "sum", of = {{ regex = '(\\d+)$' }}, tasks = 2 }},
]
[spark]
"spark.driver.memory" = "1g"
"spark.log.level" = "WARN"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A node that runs pipelines, found without being told where it is."""
    (tmp_path / "app.py").write_text("import tenure.jobs.spark.types\n")
    make_pipeline(tmp_path / "work", streaming=False)
    for name in ("out", "other"):
        (tmp_path / "work" / f"{name}.toml").write_text(TOML.format(name=name))
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TENURE_CLUSTER", raising=False)
    with running(tmp_path / "app.py") as node:
        node.ready()
        yield tmp_path / "work"


BROKEN = """
name = "broken"
source = { text = "input.txt" }
sink = { text = "broken" }
stages = [{ aggregate = "sum" }]
master = "local[1]"
"""


def test_a_pipeline_on_a_cluster(folder, capsys):
    def tenure(*arguments, code=0):
        capsys.readouterr()
        assert main(["spark", *arguments, "--json"]) == code, capsys.readouterr().err
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def listed(id):
        return next(job for job in tenure("list") if job["id"] == id)

    assert tenure("submit", str(folder / "out.toml")) == [{"submitted": "out"}]
    logs = Following("out")
    task = until(lambda: commanding(tenure("tasks", "out")) if at_work(listed("out")) else None)
    assert task["executor"] == "driver"
    assert tenure("kill", "out", str(task["id"])) == [{"killed": task["id"]}]
    assert tenure("kill", "out", "123456", code=1) == []
    activity = until(lambda: over(listed("out")))
    assert (activity["status"], activity["attempt"], activity["result"]["records"]) == ("succeeded", 1, 17)
    assert written(folder) == sorted(expected().items())
    assert "killed by `tenure spark kill`" in logs.ended(), "the task was ended, and its end is in the log"
    assert tenure("cancel", "out", code=1) == []

    tenure("submit", str(folder / "other.toml"), "--id", "second")
    until(lambda: at_work(listed("second")))
    assert tenure("cancel", "second") == [{"cancelled": "second"}]
    assert until(lambda: over(listed("second")))["status"] == "cancelled"
    assert not (folder / "other").exists()
    capsys.readouterr()
    assert main(["spark", "list"]) == 0
    table = capsys.readouterr().out
    assert "cancelled" in table
    assert "succeeded" in table

    (folder / "broken.toml").write_text(BROKEN)
    (cluster,) = embedded_clusters()
    assert main(["spark", "run", str(folder / "broken.toml"), "--cluster", cluster]) == 1
    *_, said = capsys.readouterr().err.splitlines()
    told, log = re.fullmatch(r"tenure: (.*)\. The whole log: (\S+)", said).groups()
    assert told == "BadRecord: input.txt:0: no number: user0 0"
    assert Path(log).is_file()
    assert Path(log).parent.name.endswith(".1"), "the same record would be as bad the next time"
    assert "broken" not in [job["id"] for job in tenure("list")], "it was there for this run"


def test_a_warm_driver_outlives_the_run_that_wanted_it(folder, capsys):
    def tenure(*arguments):
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    function = "function=tenure.jobs.spark.measuring:first_task"
    tenure("schedule", "spark", "warm", function, "master=local[1]", "warm=true", "on_demand=true")
    applications = set()
    try:
        for number in (1, 2):
            assert tenure("ask", "warm", '{"start": {}}') == [{"started": f"run-{number}"}]
            activity = until(lambda: over(newest(tenure("describe", "warm")[0])))
            assert activity["status"] == "succeeded", activity["error"]
            applications.add(activity["details"]["info"]["application"])
    finally:
        end_all(folder.parent / "state")
    assert len(applications) == 1
    assert not [home for home in (folder.parent / "state" / "warm").iterdir() if has_driver(home)]


def newest(job):
    return {**job, "activities": job["activities"][-1:]}


class Following:
    """`tenure spark logs ID --follow`, in a process beside."""

    def __init__(self, id):
        until(lambda: subprocess.run(self.command(id), capture_output=True).returncode == 0)
        self._said = b""
        self._process = subprocess.Popen(
            [*self.command(id), "--follow"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    @staticmethod
    def command(id):
        return [sys.executable, "-m", "tenure.cli", "spark", "logs", id]

    def _read(self):
        with self._process.stdout as said:
            self._said = said.read()

    def ended(self):
        self._thread.join(30)
        assert self._process.wait(1) == 0
        return self._said.decode()


def until(look):
    end_s = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < end_s
        time.sleep(0.2)
    return found


def at_work(job):
    """Spark has a task under way."""
    return any(activity["progress"] and activity["progress"][1] for activity in job["activities"])


def commanding(tasks):
    """One of those that run the command."""
    return tasks[0] if len(tasks) == 2 else None


def over(job):
    return next((activity for activity in job["activities"] if activity["ended_ms"]), None)
