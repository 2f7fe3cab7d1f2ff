"""Files as records in Spark. CSV and JSON are lines first, so that their keys are exact too."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.jobs.pipelines.lines import Input, find_inputs
from tenure.jobs.pipelines.records import csv_columns
from tenure.jobs.pipelines.sources import Csv, Files, Json, Parquet, Source
from tenure.jobs.spark.columns import SPACES, complain, is_object
from tenure.jobs.spark.lines import escaped, keyed_lines, parts_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["columns_of", "parsed", "read_files"]


def read_files(spark: "SparkSession", source: Files, path: Path) -> "DataFrame":
    """The records of a source's files: columns key and value."""
    inputs = find_inputs(path)
    if isinstance(source, Parquet):
        return _parquet(spark, inputs)
    return parsed_lines(source, inputs, keyed_lines(spark, inputs))


def parsed_lines(source: Files, inputs: Sequence[Input], lines: "DataFrame") -> "DataFrame":
    """Records of text, CSV or JSON, from lines with columns key, value and line."""
    from pyspark.sql import functions as F

    columns = None
    if isinstance(source, Csv):
        columns = csv_columns(source, inputs)
        lines = lines.filter(F.col("line") > 0) if source.header else lines
    return parsed(source, lines.select("key", "value"), columns)


def parsed(source: Source, lines: "DataFrame", columns: Sequence[str] | None) -> "DataFrame":
    """Records of text, CSV or JSON, from lines without headers."""
    from pyspark.sql import functions as F

    value = F.col("value")
    if isinstance(source, Json):
        full = lines.filter(F.btrim(value, F.lit(SPACES)) != "")
        wrong = complain(F.concat(F.lit("is no JSON object: "), F.substring(value, 1, 80)))
        return full.select("key", F.when(is_object(value), value).otherwise(wrong).alias("value"))
    if isinstance(source, Csv) and columns:
        return lines.filter(value != "").select("key", _csv_row(columns, source.separator).alias("value"))
    return lines


def _csv_row(columns: Sequence[str], separator: str) -> "Column":
    from pyspark.sql import functions as F

    names = [f"c{number}" for number in range(len(columns))]
    schema = ", ".join(f"{name} string" for name in [*names, "corrupt"])
    options = {"sep": separator, "escape": '"', "columnNameOfCorruptRecord": "corrupt", "maxCharsPerColumn": "-1"}
    row = F.from_csv("value", schema, options)
    fields = [F.coalesce(row[name], F.lit("")).alias(column) for name, column in zip(names, columns, strict=True)]
    wanted = F.lit(f"the schema does not fit: {len(columns)} columns ({', '.join(columns)}) are wanted: ")
    wrong = complain(F.concat(wanted, F.substring("value", 1, 80)))
    return F.when(row["corrupt"].isNull(), F.to_json(F.struct(*fields))).otherwise(wrong)


def _parquet(spark: "SparkSession", inputs: Sequence[Input]) -> "DataFrame":
    from pyspark.sql import functions as F

    if not inputs:
        return spark.createDataFrame([], "key string, value string")
    rows = spark.read.parquet(*(escaped(path) for path in inputs))
    value = F.to_json(F.struct(*rows.columns), {"ignoreNullFields": "false"})
    place = F.col("_metadata.file_path").alias("_url"), F.col("_metadata.row_index").alias("_row")
    located = rows.select(value.alias("value"), *place)
    shown = {str(path): path.shown for path in inputs}
    names = sorted({(url, shown[part.path]) for part in parts_of(rows) for url in part.urls})
    table = spark.createDataFrame(names, "_url string, _shown string")
    unplanned = F.raise_error(F.concat(F.lit("this file was not planned: "), "_url"))
    key = F.concat(F.coalesce("_shown", unplanned), F.lit(":"), F.col("_row").cast("string"))
    return located.join(F.broadcast(table), "_url", "left").select(key.alias("key"), "value")


def columns_of(spark: "SparkSession", source: Files, path: Path) -> list[str] | None:
    """The columns' names, where they are known before rows are read."""
    inputs = find_inputs(path)
    if isinstance(source, Csv):
        return csv_columns(source, inputs)
    if isinstance(source, Parquet) and inputs:
        return list(spark.read.parquet(*(escaped(path) for path in inputs)).columns)
    return None
