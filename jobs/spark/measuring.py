"""What pipelines cost on Spark: `python -m tenure.jobs.spark.measuring overhead|command`, JSON on the last line.

overhead     grep → replace → count, as a pipeline and written by hand in PySpark: same session, keys, shuffles, sink
command      records a second through an external command, per core
"""

import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.jobs.pipelines import Aggregate, Command, Grep, Pipeline, Replace, Sink, Text
from tenure.jobs.spark.batch import Attempt, run_batch
from tenure.jobs.spark.session import open_session
from tenure.jobs.spark.silent import SilentReporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["first_task", "main", "measure_command", "measure_overhead"]

CORES = 2
WORDS = ["alpha", "beta", "gamma", "hello", "world", "foo", "bar", "spark", "tenure"]
INDEX_MASK = (1 << 33) - 1
AWK = '{ key = $0; getline; if (/hello/) { gsub(/hello/, "hi"); print "forward\\n" key "\\n" $0 } else print "filter" }'


def measure_overhead(spark: "SparkSession", folder: Path, lines: int, pairs: int) -> dict[str, Any]:
    """Median of the ratios of alternating warm pairs; the counts must agree."""
    source = make_input(folder / "big.txt", lines)
    runs: dict[str, Callable[[Path], None]] = {
        "pipeline": lambda out: as_pipeline(spark, source, out),
        "by_hand": lambda out: by_hand(spark, source, out),
    }
    for run in runs.values():
        timed(run, folder)
    ratios, seconds = [], []
    for _ in range(pairs):
        (ours, count), (theirs, count_by_hand) = (timed(run, folder) for run in runs.values())
        assert count == count_by_hand, f"the pipeline has {count} results, the one written by hand {count_by_hand}"
        ratios.append(ours / theirs)
        seconds.append((round(ours, 3), round(theirs, 3)))
    return {"overhead_ratio": round(statistics.median(ratios), 3), "lines": lines, "pairs_s": seconds}


def measure_command(spark: "SparkSession", folder: Path, lines: int, tries: int = 3) -> dict[str, Any]:
    """Records a second and core through a command, reading and writing files included."""
    source = make_input(folder / "command.txt", lines)
    pipeline = _pipeline(source, folder / "out", [Command(["awk", AWK])])
    best = min(timed(lambda out: _run(spark, pipeline), folder)[0] for _ in range(tries + 1))
    return {"command_records_per_s": round(lines / best / CORES), "command_lines": lines}


def first_task(spark: "SparkSession") -> float:
    """When the first task of this call was launched, in seconds since 1970: a Spark job's function."""
    began_ms = time.time_ns() // 10**6
    spark.range(1).count()
    context: Any = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    found = (stages.apply(number).firstTaskLaunchedTime() for number in range(stages.length()))
    launched = (moment.get().getTime() for moment in found if moment.isDefined())
    return float(min(at_ms for at_ms in launched if at_ms >= began_ms)) / 1000


def make_input(path: Path, lines: int) -> Path:
    """Six words a line, the same each time."""
    choose = random.Random(1).choices
    with path.open("w") as file:
        file.writelines(" ".join(choose(WORDS, k=6)) + "\n" for _ in range(lines))
    return path


def timed(run: Callable[[Path], None], folder: Path) -> tuple[float, int]:
    """Seconds, and how many results there are."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    run(out)
    return time.perf_counter() - began, sum(part.read_bytes().count(b"\n") for part in out.glob("part-*"))


def as_pipeline(spark: "SparkSession", source: Path, out: Path) -> None:
    """The pipeline."""
    stages = [Grep("hello", tasks=CORES), Replace(("hello", "hi"), tasks=CORES), Aggregate("count", tasks=CORES)]
    _run(spark, _pipeline(source, out, stages))


def by_hand(spark: "SparkSession", source: Path, out: Path) -> None:
    """The same, as somebody who knows PySpark would write it for this one file."""
    from pyspark.sql import functions as F

    index = F.monotonically_increasing_id().bitwiseAND(F.lit(INDEX_MASK))
    lines = spark.read.text(str(source)).select("value", F.spark_partition_id().alias("part"), index.alias("index"))
    counts = {row["part"]: row["count"] for row in lines.groupBy("part").count().collect()}
    firsts = F.array(*(F.lit(sum(counts.get(part, 0) for part in range(number))) for number in range(len(counts))))
    line = F.element_at(firsts, F.col("part") + 1) + F.col("index")
    records = lines.select(F.concat(F.lit(f"{source.name}:"), line.cast("string")).alias("key"), "value")
    placed = records.repartition(CORES, "key")  # once: the keys stay what they are, and Spark knows where they are
    replaced = placed.filter(F.col("value").contains("hello")).withColumn(
        "value", F.replace("value", F.lit("hello"), F.lit("hi"))
    )
    counted = replaced.groupBy("key").agg(F.count("*").alias("value"))
    counted.select(F.concat("key", F.lit(": "), F.col("value").cast("string"))).write.text(str(out))


def _pipeline(source: Path, out: Path, stages: Sequence[Any]) -> Pipeline:
    return Pipeline(name="measured", source=Text(str(source)), stages=list(stages), sink=Sink(text=str(out)))


def _run(spark: "SparkSession", pipeline: Pipeline) -> None:
    reporter = SilentReporter(pipeline.name)
    run_batch(spark, pipeline, Attempt(reporter.run.id), reporter)


def main(arguments: Sequence[str]) -> int:
    """Measure one thing."""
    what, *rest = arguments
    settings = {"spark.driver.memory": "2g"}
    with tempfile.TemporaryDirectory(prefix="tenure-measuring-") as name:
        folder = Path(name)
        with open_session(f"local[{CORES}]", settings, "measuring", folder) as spark:
            if what == "overhead":
                found = measure_overhead(spark, folder, *(int(number) for number in rest or ("2000000", "5")))
            else:
                found = measure_command(spark, folder, *(int(number) for number in rest or ("1000000",)))
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
