"""Spark's own clusters: a standalone master with workers, and drivers that a cluster runs (by a fake spark-submit)."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyspark
import pytest
import trio

from tenure.bench.spark_kills import expected, make_pipeline, written
from tenure.jobs.pipelines import Autoscale, Command, Pipeline, Sink, Text
from tenure.jobs.spark.java import find_java_home
from tenure.jobs.spark.types import PipelineJob, parameters
from tenure.testing import Cluster

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
DEADLINE_S = 240


@pytest.fixture
def standalone(tmp_path):
    """The address of a master with two workers of one core each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    url = f"spark://127.0.0.1:{port}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "SPARK_"))}
    environ |= {"JAVA_HOME": str(find_java_home()), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    with ExitStack() as stack:

        def start(kind, *arguments):
            log = stack.enter_context((tmp_path / f"{kind.rpartition('.')[2]}.log").open("ab"))
            process = subprocess.Popen([SPARK_CLASS, kind, *local, *arguments], env=environ, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start(MASTER, "--port", str(port))
        work = ["--cores", "1", "--memory", "512m", "--work-dir", str(tmp_path / "work")]
        for _ in range(2):
            start(WORKER, *work, url)
        yield url


async def soon(look):
    """What a look gives, once that is something."""
    with trio.fail_after(DEADLINE_S):
        while True:
            if found := look():
                return found
            await trio.sleep(0.1)


async def ended(client, id):
    with trio.fail_after(DEADLINE_S):
        while True:
            (activity,) = (await client.describe(id))["activities"]
            if activity["ended_ms"]:
                return activity
            await trio.sleep(0.2)


def executors(folder):
    """The executors that the workers in this folder have started."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        command, cwd = process.info["cmdline"] or [], process.info["cwd"] or ""
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and cwd.startswith(str(folder)):
            found.append(process)
    return found


async def test_a_standalone_cluster_whose_executor_is_killed(tmp_path, standalone):
    """The executor is killed while its external command is at work; the driver goes on, and so does its attempt."""
    pipeline = make_pipeline(tmp_path / "pipeline", streaming=False).changed(master=standalone)
    pipeline.spark["spark.executor.memory"] = "512m"
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(pipeline))
        victim = await soon(lambda: next((one for one in executors(tmp_path) if one.children(recursive=True)), None))
        victim.kill()
        activity = await ended(client, "p")
    assert (activity["status"], activity["attempt"]) == ("succeeded", 1), activity
    assert activity["details"]["info"]["master"] == standalone
    assert activity["details"]["metrics"]["executors"] >= 1
    assert written(tmp_path / "pipeline") == sorted(expected().items())


SLOW = """#!/usr/bin/env perl
$| = 1;
while (my $key = <STDIN>) {
    my $value = <STDIN>;
    select(undef, undef, undef, 0.1);
    print "forward\\n", $key, $value;
}
"""


async def test_executors_come_when_there_is_more_to_do_and_go_when_there_is_less(tmp_path, standalone):
    folder = tmp_path / "pipeline"
    (folder / "in").mkdir(parents=True)
    (folder / "slow.pl").write_text(SLOW)
    (folder / "slow.pl").chmod(0o755)
    records(folder, "first", 60)
    pipeline = Pipeline(
        name="follows",
        source=Text("in", stream=True, idle_s=DEADLINE_S),
        stages=[Command("./slow.pl", tasks=2)],
        sink=Sink(text="out"),
        autoscale=Autoscale(low=0.5, high=1, tasks_max=2, settle_s=1),
        master=standalone,
        spark={"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "1g"},
        folder=str(folder),
    )
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(pipeline))
        await soon(lambda: len(executors(tmp_path)) == 2)  # one has more to do than it can
        await soon(lambda: len(written(folder)) == 60)
        await soon(lambda: len(executors(tmp_path)) == 1)  # and the other one was idle
        records(folder, "second", 60)
        await soon(lambda: len(executors(tmp_path)) == 2)
        await soon(lambda: len(written(folder)) == 120)
        (activity,) = (await client.describe("p"))["activities"]
        assert (activity["status"], activity["attempt"]) == ("running", 1), activity
        await client.ask("p", {"cancel": True})
        assert (await ended(client, "p"))["status"] == "cancelled"
    assert len({key for key, _ in written(folder)}) == 120


def records(folder, name, count):
    """A file of a growing folder, whole as soon as it is there."""
    (folder / "in" / f".{name}").write_text("".join(f"{number}\n" for number in range(count)))
    (folder / "in" / f".{name}").rename(folder / "in" / f"{name}.txt")


FAKE = """#!{python}
# As Spark and YARN would: the driver is started elsewhere, and asked for by its id.
import json, os, subprocess, sys
from pathlib import Path

here, arguments = Path({folder!r}), sys.argv[1:]
with (here / "asked").open("a") as file:
    file.write(json.dumps([Path(sys.argv[0]).name, *arguments]) + "\\n")
exit_code, driver = here / "exit_code", here / "pid"
if "--deploy-mode" in arguments:
    program = Path(arguments[-1])
    run = json.loads((program.parent / "run.json").read_text())
    run["run"]["work"]["pipeline"] |= {{"master": "local[1]", "spark": {{}}}}
    (program.parent / "run.json").write_text(json.dumps(run))
    environ = {{name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "SPARK_"))}}
    script = f"{{sys.executable}} {{program}}; echo $? > {{exit_code}}.new; mv {{exit_code}}.new {{exit_code}}"
    log = (here / "driver.log").open("w")
    process = subprocess.Popen(
        ["sh", "-c", script], env=environ, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    driver.write_text(str(process.pid))
    print("Submitted application application_1_0001")
elif "-status" in arguments:
    state = ["State : RUNNING", "Final-State : UNDEFINED"]
    if exit_code.exists():
        state = ["State : FINISHED", "Final-State : " + ("FAILED" if int(exit_code.read_text()) else "SUCCEEDED")]
    print("\\n".join(state))
else:
    sys.exit(f"not known: {{arguments}}")
"""


async def test_a_driver_on_the_cluster_is_found_again_when_its_submission_is_killed(tmp_path, monkeypatch):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("yarn", "spark-submit"):
        (commands / name).write_text(FAKE.format(python=sys.executable, folder=str(tmp_path)))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    pipeline = make_pipeline(tmp_path / "pipeline", streaming=False).changed(master="yarn")
    pipeline.spark["spark.submit.deployMode"] = "cluster"
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(pipeline), first_delay_s=0.1)
        await soon(lambda: b"local-" in said(tmp_path / "pipeline"))
        (submission,) = submissions(tmp_path)
        submission.kill()
        activity = await ended(client, "p")
    assert activity["details"]["info"]["master"] == "local[1]", "what the driver itself has said"
    assert (activity["status"], activity["attempt"]) == ("succeeded", 2), activity
    assert activity["result"]["records"] == 17
    assert written(tmp_path / "pipeline") == sorted(expected().items())
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert sum("--deploy-mode" in arguments for arguments in asked) == 1, "one driver, although there were two attempts"
    await soon(lambda: is_gone(int((tmp_path / "pid").read_text())))


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def said(folder):
    """What a driver elsewhere has said."""
    return b"".join(path.read_bytes() for path in folder.glob(".tenure-applications/*/said.jsonl"))


def submissions(folder):
    """The processes that stand for drivers elsewhere: found by the PATH that the test has set."""
    mark, found = f"PATH={folder / 'bin'}".encode(), []
    for process in psutil.process_iter(["cmdline"]):
        if "tenure.jobs.spark.submission" in (process.info["cmdline"] or []):
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            except OSError:
                continue
            if any(entry.startswith(mark) for entry in environ.split(b"\0")):
                found.append(process)
    return found
