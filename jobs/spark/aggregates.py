"""Aggregates in Spark: numbers are exact decimals, so that the order of adding does not show.

records ──grouped──► group, [begin], of ──together──► one row per group ──finished──► key, value
                                             ▲  (what a stream keeps, and puts together with the next batch's)
"""

from typing import TYPE_CHECKING

from tenure.jobs.pipelines.picks import Pick
from tenure.jobs.pipelines.stages import Aggregate, Window
from tenure.jobs.spark.columns import moment_column, number_column, number_text, pick_column, time_column
from tenure.jobs.spark.operators import Combining, Finishing, Folding, Picking
from tenure.jobs.spark.python_tasks import combined_by_function, finished_by_fold, folded, with_picked
from tenure.jobs.spark.tasks import token_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["aggregated", "finished", "grouped", "together"]


def aggregated(stage: Aggregate, records: "DataFrame", folder: str, label: str) -> "DataFrame":
    """One record per key, and per window if there are any."""
    return finished(stage, together(stage, None, grouped(stage, records, folder, label), folder, label), folder, label)


def together(stage: Aggregate, kept: "DataFrame | None", groups: "DataFrame", folder: str, label: str) -> "DataFrame":
    """One row per group (and window): what its new rows and what was kept of it are together."""
    if stage.folds(folder):
        return folded(kept, groups, _names(groups), Folding(stage.aggregate, folder, label))
    found = partial(stage, groups, folder, label)
    return found if kept is None else merged(stage, kept, found, folder, label)


def grouped(stage: Aggregate, records: "DataFrame", folder: str, label: str, *, with_time: bool = False) -> "DataFrame":
    """Columns group, begin (of windows, in microseconds), of (what is combined), token, if rows are at their tasks
    already, and at, the event time, if wanted."""
    from pyspark.sql import functions as F

    picks = _picks(stage)
    if functions := {name: pick.of for name, pick in picks.items() if pick.kind == "function"}:
        records = with_picked(records, Picking(functions, folder, label))
    columns = {name: _picked(name, pick) for name, pick in picks.items()}
    of = columns.get("of", F.lit(1).cast("bigint"))
    if not stage.custom and stage.aggregate != "count":
        of = number_column(of)
    group = F.lit("all") if stage.per == "all" else F.col("key")
    spans = stage.spans
    token = [] if stage.per == "all" else token_of(records)
    if spans is None:
        return records.select(*token, group.alias("group"), of.alias("of"))
    timed = records.select(*token, group.alias("group"), of.alias("of"), time_column(columns["time"]).alias("at"))
    at = [F.col("at")] if with_time else []
    return timed.select(*token, "group", _begins(F.col("at"), spans).alias("begin"), "of", *at)


def partial(stage: Aggregate, groups: "DataFrame", folder: str, label: str) -> "DataFrame":
    """One row per group (and window): what its rows are together."""
    from pyspark.sql import functions as F

    if stage.custom:
        work = Combining(stage.aggregate, folder, label)
        return combined_by_function(groups, _names(groups), work, at_once=stage.per == "all")
    columns = [name for name in groups.columns if name != "of"]
    combine = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max}[str(stage.aggregate)]
    return groups.groupBy(columns).agg(combine("of").alias("of")).drop(*token_of(groups))


def merged(stage: Aggregate, kept: "DataFrame", more: "DataFrame", folder: str, label: str) -> "DataFrame":
    """As `partial`, of what two partial results are together."""
    from pyspark.sql import functions as F

    both = kept.unionByName(more)
    if stage.custom or stage.aggregate != "count":
        return partial(stage, both, folder, label).withColumn("of", F.col("of").cast(kept.schema["of"].dataType))
    return both.groupBy([name for name in both.columns if name != "of"]).agg(F.sum("of").alias("of"))


def finished(stage: Aggregate, rows: "DataFrame", folder: str, label: str) -> "DataFrame":
    """Columns key and value."""
    from pyspark.sql import functions as F

    if stage.folds(folder):
        rows = finished_by_fold(rows, _names(rows), Finishing(stage.aggregate, folder, label))
    key = F.col("group")
    if stage.spans is not None:
        key = F.concat(key, F.lit("@"), moment_column(F.col("begin")))
    of = F.col("of")
    value = of if stage.custom else of.cast("string") if stage.aggregate == "count" else number_text(of)
    return rows.select(key.alias("key"), value.alias("value"))


def _names(rows: "DataFrame") -> list[str]:
    """The columns that make a group."""
    return [name for name in rows.columns if name != "of" and name not in token_of(rows)]


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
    # Windows that hold the moment begin after the moment less the length; whole numbers, as doubles would round.
    rest = last - at_us + F.lit(spans.length_us - 1)
    lowest = last - (rest - F.pmod(rest, F.lit(spans.slide_us)))
    return F.explode(F.sequence(lowest.cast("bigint"), last.cast("bigint"), F.lit(spans.slide_us).cast("bigint")))
