"""Aggregates of a stream: from batch to batch they remember one row per group, in files of the stream's state."""

from typing import TYPE_CHECKING

from tenure.jobs.pipelines.intake import Chunk
from tenure.jobs.pipelines.ledger import Batch, Ledger
from tenure.jobs.pipelines.stages import Aggregate
from tenure.jobs.spark.aggregates import finished, grouped, together
from tenure.jobs.spark.stages import Context, placed
from tenure.jobs.spark.tasks import token_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Remembering"]


class Remembering:
    """The stages of one batch that remember."""

    def __init__(self, ledger: Ledger, chunk: Chunk) -> None:
        self._ledger, self._chunk = ledger, chunk
        before = ledger.last()
        self.closed_us: dict[str, int] = dict(before.closed_us) if before else {}
        self.late = 0
        """Records of windows that were closed already: kept aside, not counted."""

    def whole(self, stage: Aggregate, records: "DataFrame", context: Context) -> "DataFrame":
        """An aggregate without windows: one record per key, over all that has ever come."""
        kept = self._kept(stage, self._grouped(stage, records, context), None, context)
        return self._finished(stage, kept, context)

    def windows(self, stage: Aggregate, records: "DataFrame", context: Context) -> "DataFrame":
        """An aggregate with windows: those that are closed by this batch, once each."""
        from pyspark.sql import functions as F

        spans = stage.spans
        assert spans is not None
        ends = F.col("begin") + F.lit(spans.length_us)
        closed_us = self.closed_us.get(context.label)
        rows = self._grouped(stage, records, context).persist()
        try:
            is_late = F.lit(False) if closed_us is None else ends <= F.lit(closed_us)
            seen = rows.agg(F.max("at").alias("at"), F.count_if(is_late).alias("late")).first()
            assert seen is not None
            if seen["late"]:
                self._set_aside(rows.filter(is_late), seen["late"], context)
            still_open = None if closed_us is None else ends > F.lit(closed_us)
            kept = self._kept(stage, rows.filter(~is_late).drop("at"), still_open, context)
        finally:
            rows.unpersist()
        reached = [
            us for us in (closed_us, None if seen["at"] is None else seen["at"] - spans.late_us) if us is not None
        ]
        if self._chunk.ended:
            last = kept.agg(F.max(ends)).first()
            assert last is not None
            reached += [last[0]] if last[0] is not None else []
        if not reached:
            return self._finished(stage, kept.limit(0), context)
        self.closed_us[context.label] = max(reached)
        return self._finished(stage, kept.filter(ends <= F.lit(max(reached))), context)

    def _grouped(self, stage: Aggregate, records: "DataFrame", context: Context) -> "DataFrame":
        records = placed(stage, records, context)
        with_time = stage.spans is not None
        return grouped(stage, records, str(context.folder), context.label, with_time=with_time)

    def _finished(self, stage: Aggregate, rows: "DataFrame", context: Context) -> "DataFrame":
        return finished(stage, rows, str(context.folder), context.label)

    def _kept(self, stage: Aggregate, rows: "DataFrame", still_open: "Column | None", context: Context) -> "DataFrame":
        """What is remembered after this batch."""
        known: DataFrame | None = None
        if (before := self._ledger.state(context.label, self._chunk.number)) is not None:
            known = context.spark.read.parquet(str(before))
            known = known if still_open is None else known.filter(still_open)
        found = together(stage, known, rows, str(context.folder), context.label)
        with self._ledger.new_state(context.label, self._chunk.number) as place:
            found.write.parquet(str(place))
        after = self._ledger.state(context.label, self._chunk.number + 1)
        return context.spark.read.parquet(str(after))

    def _set_aside(self, rows: "DataFrame", count: int, context: Context) -> None:
        self.late += count
        place = self._ledger.folder / "late" / context.label / f"{self._chunk.number:09}"
        rows.drop(*token_of(rows)).write.mode("overwrite").parquet(str(place))

    def batch(self, results: int) -> Batch:
        """What the ledger is to know of this batch."""
        chunk = self._chunk
        return Batch(
            number=chunk.number, records=chunk.records, results=results, late=self.late, closed_us=self.closed_us
        )
