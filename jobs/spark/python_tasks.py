"""Handing the records of a task to Python and back, many at a time, as Arrow batches."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tenure.jobs.pipelines.records import Record
from tenure.jobs.spark.operators import Combining, Finishing, Folding, Picking
from tenure.jobs.spark.tasks import token_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["combined_by_function", "finished_by_fold", "folded", "through_python", "with_picked"]

BATCH_RECORDS, BATCH_CHARS = 10_000, 16 * 2**20
TYPES = {"group": "string", "begin": "bigint", "of": "string"}
Rows = Iterator[tuple[Any, ...]]


def through_python(records: "DataFrame", work: Callable[[Iterator[Record]], Iterator[Record]]) -> "DataFrame":
    """The records after `work`, which gets those of one task."""
    return _mapped(records.select("key", "value"), work, ["key string", "value string"])


def with_picked(records: "DataFrame", work: Picking) -> "DataFrame":
    """The records with one more column, `picked_…`, for each function."""
    token = token_of(records)
    kept = ["key", "value", *token]
    schema = ["key string", "value string", *(f"{name} int" for name in token)]
    return _mapped(records.select(*kept), work, [*schema, *(f"picked_{name} string" for name in work.functions)])


def combined_by_function(rows: "DataFrame", names: list[str], work: Combining, *, at_once: bool) -> "DataFrame":
    """One row for each group that these columns make. `at_once`: there are few groups, so combine before rows meet."""
    schema = _schema([*names, "of"])
    if at_once:
        rows = _mapped(rows.select(*names, "of").sortWithinPartitions(*names), work, schema)
    if not token_of(rows):
        rows = rows.repartition(*names)
    return _mapped(rows.select(*names, "of").sortWithinPartitions(*names), work, schema)


def folded(kept: "DataFrame | None", rows: "DataFrame", names: list[str], work: Folding) -> "DataFrame":
    """One row for each group that these columns make: its state, after what was kept of it and its new rows."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    states = rows.select(*names, nothing.alias("state"), F.col("of"))
    if kept is not None:
        states = kept.select(*names, F.col("of").alias("state"), nothing.alias("of")).unionByName(states)
    if kept is not None or not token_of(rows):
        states = states.repartition(*names)
    return _mapped(states.sortWithinPartitions(*names, F.col("state").isNull()), work, _schema([*names, "of"]))


def finished_by_fold(rows: "DataFrame", names: list[str], work: Finishing) -> "DataFrame":
    """The same rows with results for states."""
    return _mapped(rows.select(*names, "of"), work, _schema([*names, "of"]))


def _schema(names: list[str]) -> list[str]:
    return [f"{name} {TYPES[name]}" for name in names]


def _mapped(rows: "DataFrame", work: Callable[[Any], Iterable[Any]], schema: list[str]) -> "DataFrame":
    """As `DataFrame.mapInArrow`, which asks for pandas too although it has no use for it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    names = [column.split()[0] for column in schema]
    types = [column.split()[1] for column in schema]

    def mapped(batches: Iterator[Any]) -> Iterator[Any]:
        return _batches(work(_rows(batches)), names, types)

    udf: Any = UserDefinedFunction(mapped, ", ".join(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def _rows(batches: Iterator[Any]) -> Rows:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batches(rows: Iterable[Any], names: list[str], types: list[str]) -> Iterator[Any]:
    import pyarrow as pa

    arrow = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    for chunk in _chunks(iter(rows)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(column, arrow[type]) for column, type in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _chunks(rows: Rows) -> Iterator[list[tuple[Any, ...]]]:
    """Not too many rows at once, and not too large ones."""
    chunk: list[tuple[Any, ...]] = []
    chars = 0
    for row in rows:
        chunk.append(row)
        chars += len(row[-1])
        if len(chunk) >= BATCH_RECORDS or chars >= BATCH_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk
