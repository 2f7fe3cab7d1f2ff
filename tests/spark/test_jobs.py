"""Functions, scripts and pickles as jobs, each with a driver of its own."""

import cloudpickle
import psutil
import trio

from tenure.jobs.folders import state_folder
from tenure.jobs.processes import marked
from tenure.jobs.spark import launching
from tenure.jobs.spark.types import SparkJob
from tenure.jobs.spark.warm import end_all
from tenure.testing import Cluster

DEADLINE_S = 240
SMALL = {"spark.driver.memory": "512m"}
MODULE = """
from tenure.jobs.spark import current_reporter

def total(spark, first, last):
    current_reporter().stage("adding")
    numbers = spark.range(first, last)
    return {"total": numbers.groupBy().sum().first()[0], "application": spark.sparkContext.appName}
"""
STUBBORN = """
import os, time
from pathlib import Path
from tenure.jobs.spark import current_reporter

def hold(spark, folder):
    attempt = current_reporter().run.attempt
    Path(folder, f"attempt-{attempt}").write_text(str(os.getpid()))
    while attempt == 1:  # no job of Spark's: nothing that could be cancelled
        time.sleep(0.05)
        Path(folder, "next").write_text(str(time.monotonic()))
        Path(folder, "next").replace(Path(folder, "beat"))  # whole, whenever this is killed
    return {"pid": os.getpid(), "began": time.monotonic()}
"""
SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tenure.jobs import Reporter

day, out = sys.argv[1:]
with Reporter.from_environment() as reporter:
    spark = SparkSession.builder.getOrCreate()
    rows = spark.createDataFrame([(day,)], "day string").collect()
    Path(out).write_text(rows[0]["day"])
    reporter.result({"of": spark.conf.get("spark.of.the.job"), "master": spark.sparkContext.master})
    spark.stop()
"""


async def test_a_function_a_script_and_a_pickle(tmp_path, monkeypatch):
    (tmp_path / "numbers_of_a_job.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    usual = {"folder": str(tmp_path), "master": "local[1]"}
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(
            SparkJob, id="function", function="numbers_of_a_job.py:total", arguments=[1, 11], spark=SMALL, **usual
        )
        of_the_job = SMALL | {"spark.of.the.job": "a b"}
        arguments = ["monday morning", "out.txt"]
        await client.schedule(SparkJob, id="script", script="script.py", arguments=arguments, spark=of_the_job, **usual)
        assert await result(client, "function") == {"total": 55, "application": "function"}
        pickled = cloudpickle.dumps(lambda spark, words: spark.sparkContext.parallelize(words).count())
        monkeypatch.setattr(SparkJob, "allow_pickled", True)
        await client.schedule(SparkJob, id="pickle", pickled=pickled, arguments=[["a", "b"]], spark=SMALL, **usual)
        assert await result(client, "script") == {"of": "a b", "master": "local[1]"}
        assert (tmp_path / "out.txt").read_text() == "monday morning"
        assert await result(client, "pickle") == 2


async def test_what_was_given_up_in_a_warm_driver_is_ended_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    function = {"function": "stubborn.py:hold", "arguments": [str(tmp_path)], "folder": str(tmp_path)}
    try:
        async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
            await client.schedule(
                SparkJob, id="held", **function, master="local[1]", spark=SMALL, warm=True, attempts_max=5
            )
            first = tmp_path / "attempt-1"
            with trio.fail_after(DEADLINE_S):
                while not (first.exists() and first.read_text()):  # noqa: ASYNC110  # no event tells
                    await trio.sleep(0.05)
            pid = int(first.read_text())
            tag = (await client.describe("held"))["activities"][0]["tag"]
            (doorman,) = [process for process in marked(tag) if launching.DOORMAN in process.cmdline()]
            doorman.kill()
            ended = await over(client, "held")
            assert ended["status"] == "succeeded", ended["error"]
            assert ended["attempt"] > 1
            assert ended["result"]["pid"] != pid
            assert ended["result"]["began"] > float((tmp_path / "beat").read_text())
            assert not psutil.pid_exists(pid)
    finally:
        end_all(state_folder())


async def result(client, id):
    """Of its one run, which succeeds at its first attempt."""
    activity = await over(client, id)
    assert (activity["status"], activity["attempt"]) == ("succeeded", 1), activity["error"]
    return activity["result"]


async def over(client, id):
    """Its one run, once that has ended."""
    with trio.fail_after(DEADLINE_S):
        while True:
            activities = (await client.describe(id))["activities"]
            if activities and activities[0]["ended_ms"]:
                break
            await trio.sleep(0.1)
    (activity,) = activities
    return activity
