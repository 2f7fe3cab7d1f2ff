"""Spark sessions, with the settings that pipelines rest on."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tenure.jobs.spark.hashes import register_hashes
from tenure.jobs.spark.java import find_java_home, need_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_cores", "open_session", "prepare", "spark_settings"]

FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a number that does not fit is an error, not null
    "spark.sql.caseSensitive": "true",  # fields of JSON are
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # the other can't open `a:b`, for one
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
"""What results depend on: not the user's to change."""
USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # listing files is quicker than a Spark job
    "spark.sql.execution.arrow.pyspark.enabled": "false",
}
"""What the user's own settings replace."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_settings(master: str, settings: Mapping[str, str], name: str = "tenure") -> dict[str, str]:
    """All settings of a session."""
    usual = dict(USUAL)
    if cores := local_cores(master):
        usual |= LOOPBACK | {"spark.sql.shuffle.partitions": str(2 * cores)}
    return {**usual, **settings, **FIXED, "spark.master": master, "spark.app.name": name}


def local_cores(master: str) -> int | None:
    """How many cores a local master uses; None: it is another machine."""
    if master == "local":
        return 1
    if not master.startswith("local["):
        return None
    number = master[6:].split(",")[0].rstrip("]")
    return (os.cpu_count() or 1) if number == "*" else int(number)


def prepare(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> None:
    """What Spark takes from the environment: its Java, and the Python of its workers. Raises `MissingJava`,
    `MissingSpark`."""
    need_pyspark()
    environ["JAVA_HOME"] = str(find_java_home())
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def open_session(
    master: str, settings: Mapping[str, str], name: str, folder: Path | None = None
) -> Iterator["SparkSession"]:
    """A session that ends with the block. `folder` is for what Spark keeps while it runs."""
    prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for key, value in spark_settings(master, settings, name).items():
        builder = builder.config(key, value)
    with TemporaryDirectory(dir=folder, prefix="spark-", ignore_cleanup_errors=True) as scratch:
        builder = builder.config("spark.local.dir", scratch).config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        spark = builder.getOrCreate()
        try:
            register_hashes(spark, Path(scratch))
            yield spark
        finally:
            spark.stop()
