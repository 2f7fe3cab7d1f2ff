"""Functions, scripts and pickles as jobs, each with a driver of its own."""

import cloudpickle
import trio

from tenure.jobs.spark.types import SparkJob
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


async def result(client, id):
    """Of its one run, which succeeds at its first attempt."""
    with trio.fail_after(DEADLINE_S):
        while True:
            activities = (await client.describe(id))["activities"]
            if activities and activities[0]["ended_ms"]:
                break
            await trio.sleep(0.1)
    (activity,) = activities
    assert (activity["status"], activity["attempt"]) == ("succeeded", 1), activity["error"]
    return activity["result"]
