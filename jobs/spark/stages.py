"""What each stage is in Spark. What needs none of the user's code stays in the JVM, as Spark's own operations."""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tenure.jobs.pipelines.reference import command_line
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import (
    BACKREFERENCE,
    Aggregate,
    Command,
    Filter,
    FlatMap,
    Grep,
    Join,
    KeyBy,
    Map,
    Replace,
    Stage,
)
from tenure.jobs.spark import operators
from tenure.jobs.spark.aggregates import aggregated
from tenure.jobs.spark.columns import java_pattern, object_with, pick_column
from tenure.jobs.spark.processed import ProcessedLog
from tenure.jobs.spark.python_tasks import through_python
from tenure.jobs.spark.tables import table_rows
from tenure.jobs.spark.tasks import by_key, without_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Context", "apply", "placed"]


class Context(Struct, frozen=True):
    """What the translation of a stage needs beside the stage."""

    spark: "SparkSession"
    pipeline: Pipeline
    label: str
    processed: ProcessedLog | None = None

    @property
    def folder(self) -> Path:
        """What paths and functions are relative to."""
        return Path(self.pipeline.folder)


def apply(stage: Stage, records: "DataFrame", context: Context) -> "DataFrame":
    """The records after the stage."""
    return translated(stage, placed(stage, records, context), context)


def placed(stage: Stage, records: "DataFrame", context: Context) -> "DataFrame":
    """The records at the tasks that the stage asks for; noted there, if that is asked for."""
    if stage.tasks is not None and not (isinstance(stage, Aggregate) and stage.per == "all"):
        records = by_key(records, context.pipeline.hash, stage.tasks)
    return records if context.processed is None else context.processed.note(records, context.label)


@functools.singledispatch
def translated(stage: Stage, records: "DataFrame", context: Context) -> "DataFrame":
    """The records after the stage."""
    raise NotImplementedError(type(stage).__name__)


@translated.register(Grep)
def _(stage: Grep, records: "DataFrame", context: Context) -> "DataFrame":
    from pyspark.sql import functions as F

    value = F.col("value")
    found = value.rlike(java_pattern(stage.grep)) if stage.regex else value.contains(F.lit(stage.grep))
    return records.filter(~found if stage.invert else found)


@translated.register(Replace)
def _(stage: Replace, records: "DataFrame", context: Context) -> "DataFrame":
    from pyspark.sql import functions as F

    old, new = stage.replace
    if stage.regex:
        return records.withColumn("value", F.regexp_replace("value", java_pattern(old), java_replacement(new)))
    return records.withColumn("value", F.replace("value", F.lit(old), F.lit(new)))


def java_replacement(text: str) -> str:
    """What Python writes as `\\1` is `$1` in Java, where `$` and backslashes need a backslash to mean themselves."""
    parts = BACKREFERENCE.split(text)  # plain, digit, other, plain, …
    plain = [re.sub(r"^\d|[$]", r"\\\g<0>", part) for part in parts[::3]]  # a digit behind `$1` would make it `$10`
    marks = [f"${digit}" if digit else "\\\\" for digit in parts[1::3]]
    return "".join(text for pair in zip(plain, [*marks, ""], strict=True) for text in pair)


@translated.register(Filter)
def _(stage: Filter, records: "DataFrame", context: Context) -> "DataFrame":
    return through_python(records, operators.Filtering(stage.filter, str(context.folder), context.label))


@translated.register(Map)
def _(stage: Map, records: "DataFrame", context: Context) -> "DataFrame":
    if stage.pick.kind == "function":
        work = operators.Mapping(stage.pick.of, str(context.folder), context.label)
        return through_python(records, work)
    return records.withColumn("value", pick_column(stage.pick))


@translated.register(KeyBy)
def _(stage: KeyBy, records: "DataFrame", context: Context) -> "DataFrame":
    if stage.pick.kind == "function":
        work = operators.Rekeying(stage.pick.of, str(context.folder), context.label)
        return through_python(records, work)
    return without_place(records.withColumn("key", pick_column(stage.pick)))


@translated.register(FlatMap)
def _(stage: FlatMap, records: "DataFrame", context: Context) -> "DataFrame":
    work = operators.FlatMapping(stage.flat_map, str(context.folder), context.label)
    return through_python(records, work)


@translated.register(Command)
def _(stage: Command, records: "DataFrame", context: Context) -> "DataFrame":
    work = operators.Commanding(
        command_line(stage, context.folder), str(context.folder), context.label, stage.timeout_s, stage.attempts_max
    )
    return through_python(records, work)


@translated.register(Join)
def _(stage: Join, records: "DataFrame", context: Context) -> "DataFrame":
    from pyspark.sql import functions as F

    rows = table_rows(context.spark, stage.join, context.pipeline)
    joined = records.join(F.broadcast(rows), "key", stage.how)
    row = F.coalesce("row", F.lit("null"))
    value = object_with(F.col("value"), stage.join.name, row)
    return joined.withColumn("value", value).drop("row")


@translated.register(Aggregate)
def _(stage: Aggregate, records: "DataFrame", context: Context) -> "DataFrame":
    return aggregated(stage, records, str(context.folder), context.label)
