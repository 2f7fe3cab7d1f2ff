"""Aggregates in Spark: numbers are exact decimals, so that the order of adding does not show."""

from typing import TYPE_CHECKING

from tenure.jobs.pipelines.picks import Pick
from tenure.jobs.pipelines.stages import Aggregate, Window
from tenure.jobs.spark import operators
from tenure.jobs.spark.columns import moment_column, number_column, number_text, pick_column, time_column
from tenure.jobs.spark.python_tasks import through_python, with_picked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["aggregated", "grouped"]


def aggregated(stage: Aggregate, records: "DataFrame", folder: str, label: str) -> "DataFrame":
    """One record per key, and per window if there are any."""
    return combined(stage, grouped(stage, records, folder, label), folder, label)


def grouped(stage: Aggregate, records: "DataFrame", folder: str, label: str) -> "DataFrame":
    """Columns key (with its window), of (what is combined), and token, if records are at their tasks already."""
    from pyspark.sql import functions as F

    if functions := {name: pick.of for name, pick in _picks(stage).items() if pick.kind == "function"}:
        records = with_picked(records, operators.Picking(functions, folder, label))
    columns = {name: _picked(name, pick) for name, pick in _picks(stage).items()}
    of = columns.get("of", F.lit(None).cast("string"))
    if not stage.custom and stage.aggregate != "count":
        of = number_column(of)
    group = F.lit("all") if stage.per == "all" else F.col("key")
    spans = stage.spans
    begins = [] if spans is None else [_begins(time_column(columns["time"]), spans).alias("begin")]
    token = [F.col("token")] if "token" in records.columns else []
    found = records.select(group.alias("group"), of.alias("of"), *begins, *token)
    key = F.col("group")
    if spans is not None:
        key = F.concat("group", F.lit("@"), moment_column(F.col("begin")))
    return found.select(key.alias("key"), "of", *token)


def combined(stage: Aggregate, groups: "DataFrame", folder: str, label: str) -> "DataFrame":
    """One record of what `grouped` has put together."""
    from pyspark.sql import functions as F

    if stage.custom:
        return _combined_by_function(stage, groups, operators.Combining(stage.aggregate, folder, label))
    columns = [name for name in groups.columns if name != "of"]
    if stage.aggregate == "count":
        found = groups.groupBy(columns).agg(F.count("*").alias("of"))
        return found.select("key", F.col("of").cast("string").alias("value"))
    combine = {"sum": F.sum, "min": F.min, "max": F.max}[str(stage.aggregate)]
    found = groups.groupBy(columns).agg(combine("of").alias("of"))
    return found.select("key", number_text(F.col("of")).alias("value"))


def _combined_by_function(stage: Aggregate, groups: "DataFrame", work: operators.Combining) -> "DataFrame":
    from pyspark.sql import functions as F

    records = groups.withColumnRenamed("of", "value")
    if stage.per == "all":
        if stage.window is None:
            records = through_python(records, work).coalesce(1)
            return through_python(records, work)
        records = records.repartition(F.col("key"))
    elif "token" not in groups.columns:
        records = records.repartition(F.col("key"))
    return through_python(records.sortWithinPartitions("key"), work)


def _picks(stage: Aggregate) -> dict[str, Pick]:
    picks = {} if stage.aggregate == "count" else {"of": stage.number}
    return picks if stage.spans is None else picks | {"time": stage.spans.time}


def _picked(name: str, pick: Pick) -> "Column":
    from pyspark.sql import functions as F

    return F.col(f"picked_{name}") if pick.kind == "function" else pick_column(pick)


def _begins(at_us: "Column", spans: Window) -> "Column":
    """The begins of the windows that a moment is in, a row each."""
    from pyspark.sql import functions as F

    last = at_us - F.pmod(at_us, F.lit(spans.slide_us))
    if spans.slide_us == spans.length_us:
        return last
    first = at_us - F.lit(spans.length_us) + 1
    lowest = last - F.floor((last - first) / F.lit(spans.slide_us)) * spans.slide_us
    return F.explode(F.sequence(lowest.cast("bigint"), last, F.lit(spans.slide_us).cast("bigint")))
