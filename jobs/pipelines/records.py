"""Sources in plain Python: records are pairs of key and value."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tenure.jobs.pipelines.errors import BadRecord
from tenure.jobs.pipelines.lines import Input, find_inputs, lines_of
from tenure.jobs.pipelines.picks import json_text
from tenure.jobs.pipelines.sources import Csv, Files, Json, Parquet, Text

__all__ = ["Record", "csv_columns", "records_of", "rows_of"]

Record = tuple[str, str]


def records_of(source: Files, path: str | Path) -> Iterator[Record]:
    """The records of a source's files. Raises `MissingInput`, `BadRecord`."""
    for file in find_inputs(path):
        if isinstance(source, Csv):
            yield from ((key, json_text(row)) for key, row in _csv_rows(source, file))
        elif isinstance(source, Json):
            yield from ((key, line) for key, line, row in _json_rows(file))
        elif isinstance(source, Text):
            yield from ((f"{file.shown}:{number}", line) for number, line in enumerate(lines_of(file)))
        else:
            raise NotImplementedError(f"{type(source).__name__} is read by Spark alone")


def rows_of(source: Csv | Json | Parquet, path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a table."""
    for file in find_inputs(path):
        rows: Iterable[tuple[Any, ...]]
        if isinstance(source, Csv):
            rows = _csv_rows(source, file)
        elif isinstance(source, Json):
            rows = _json_rows(file)
        else:
            raise NotImplementedError("Parquet is read by Spark alone")
        for found in rows:
            yield found[-1]


def _csv_rows(source: Csv, file: Input) -> Iterator[tuple[str, dict[str, str]]]:
    columns = source.columns
    for number, line in enumerate(lines_of(file)):
        key = f"{file.shown}:{number}"
        if number == 0 and source.header:
            columns = header_of(source, line, file)
            continue
        if not line:
            continue
        assert columns is not None
        fields = fields_of(line, source.separator)
        if len(fields) != len(columns):
            wanted = f"{len(columns)} ({', '.join(columns)})"
            raise BadRecord(f"{key}: the schema does not fit: {len(fields)} columns, not {wanted}: {line:.80}")
        yield key, dict(zip(columns, fields, strict=True))


def csv_columns(source: Csv, inputs: Sequence[Input]) -> list[str]:
    """The columns of all files. Raises `BadRecord` if their headers differ, or are not those that are wanted."""
    columns = source.columns
    if source.header:
        for file in inputs:
            if (line := next(lines_of(file), None)) is not None:
                columns = header_of(replace(source, columns=columns), line, file)
    return columns or []


def header_of(source: Csv, line: str, file: Input) -> list[str]:
    """The columns that a file's line 0 names. Raises `BadRecord`."""
    found = fields_of(line, source.separator)
    if source.columns is not None and found != source.columns:
        raise BadRecord(
            f"{file.shown}:0: the schema does not fit: the header has columns {', '.join(found)}, "
            f"the pipeline wants {', '.join(source.columns)}"
        )
    if twice := {name for name in found if found.count(name) > 1}:
        raise BadRecord(f"{file.shown}:0: the header names {', '.join(sorted(twice))} twice")
    return found


def fields_of(line: str, separator: str) -> list[str]:
    """The fields of one line of CSV; a quote within quotes is doubled."""
    csv.field_size_limit(max(csv.field_size_limit(), len(line)))  # of the process; by default 128 KB
    return next(csv.reader([line], delimiter=separator), [""])


def _json_rows(file: Input) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for number, line in enumerate(lines_of(file)):
        if not line.strip():
            continue
        key = f"{file.shown}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadRecord(f"{key} is no JSON ({error}): {line:.80}") from error
        if not isinstance(row, dict):
            raise BadRecord(f"{key} is JSON, but no object: {line:.80}")
        yield key, line, row
