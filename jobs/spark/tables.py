"""Tables to join with: small enough for the memory of every worker."""

from typing import TYPE_CHECKING

from tenure.jobs.pipelines.check import check_key
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import Table
from tenure.jobs.spark.sources import columns_of, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["table_rows"]


def table_rows(spark: "SparkSession", table: Table, pipeline: Pipeline) -> "DataFrame":
    """Columns key and row (a JSON object). Rows without a key are left out."""
    from pyspark.sql import functions as F

    path = pipeline.path(table.source.path)
    columns = columns_of(spark, table.source, path)
    if columns is not None:
        check_key(table, columns, path)
    rows = read_files(spark, table.source, path)
    key = F.get_json_object("value", f"$['{table.key}']")
    return rows.select(key.alias("key"), F.col("value").alias("row")).filter(F.col("key").isNotNull())
