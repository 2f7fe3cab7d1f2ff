"""What a pipeline means, in plain Python: the judge of every faster way to run one.

Nothing here is quick, and nothing is clever. A result is a list of records in no particular order.
"""

import functools
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from tenure.jobs.pipelines.amounts import EXACT, moment_text, number_of, number_text, time_us
from tenure.jobs.pipelines.errors import BadRecord, CommandFailed
from tenure.jobs.pipelines.folds import Fold, is_fold, load_aggregate, restored, stored
from tenure.jobs.pipelines.functions import load_function
from tenure.jobs.pipelines.picks import Pick, as_text, compiled, field_of, json_text, picker
from tenure.jobs.pipelines.records import Record, records_of, rows_of
from tenure.jobs.pipelines.sources import Files
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
    Window,
)

__all__ = ["apply", "run"]


def run(pipeline: Pipeline) -> list[Record]:
    """The records that the pipeline's sink gets, over all of its source."""
    assert isinstance(pipeline.source, Files)
    records: Iterable[Record] = records_of(pipeline.source, pipeline.path(pipeline.source.path))
    for stage in pipeline.stages:
        records = apply(stage, records, Path(pipeline.folder))
    return list(records)


@functools.singledispatch
def apply(stage: Stage, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    """The records after the stage."""
    raise NotImplementedError(type(stage).__name__)


@apply.register
def _(stage: Grep, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    if stage.regex:
        pattern = compiled(stage.grep, "grep")
        return ((key, value) for key, value in records if bool(pattern.search(value)) != stage.invert)
    return ((key, value) for key, value in records if (stage.grep in value) != stage.invert)


@apply.register
def _(stage: Replace, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    old, new = stage.replace
    if stage.regex:
        pattern, groups = compiled(old, "replace"), BACKREFERENCE.sub(_group_reference, new)
        return ((key, pattern.sub(groups, value)) for key, value in records)
    return ((key, value.replace(old, new)) for key, value in records)


def _group_reference(found: re.Match[str]) -> str:
    """As Python wants it where another digit may follow; a doubled backslash stays one."""
    return f"\\g<{found[1]}>" if found[1] else found[0]


@apply.register
def _(stage: Filter, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    function = load_function(stage.filter, folder)
    return ((key, value) for key, value in records if function(key, value))


@apply.register
def _(stage: Map, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    pick = needed(stage.pick, folder)
    return ((key, pick(key, value)) for key, value in records)


@apply.register
def _(stage: KeyBy, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    pick = needed(stage.pick, folder)
    return ((pick(key, value), value) for key, value in records)


@apply.register
def _(stage: FlatMap, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    function = load_function(stage.flat_map, folder)
    for key, value in records:
        for found in function(key, value):
            yield key, given_text(found, key)


@apply.register
def _(stage: Aggregate, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    groups: dict[str, list[Any]] = {}
    taken = needed(stage.number, folder) if stage.custom else number(stage.number, folder)
    windows = window_begins(stage.spans, folder)
    for key, value in records:
        group = "all" if stage.per == "all" else key
        of = None if stage.aggregate == "count" else taken(key, value)
        for begin in windows(key, value):
            groups.setdefault(group if begin is None else f"{group}@{moment_text(begin)}", []).append(of)
    combine = combiner(stage, folder)
    return ((group, combine(found)) for group, found in groups.items())


def combiner(stage: Aggregate, folder: Path) -> Callable[[Sequence[Any]], str]:
    """What one group's values become."""
    if stage.custom:
        own = load_aggregate(stage.aggregate, folder)
        if is_fold(own):
            return lambda found: given_text(own.finish(restored(_folded(own, found))), "aggregate")
        function = cast(Callable[[str, str], Any], own)
        return lambda found: functools.reduce(lambda a, b: given_text(function(a, b), "aggregate"), found)
    plain: dict[str, Callable[[Sequence[Any]], str]] = {
        "count": lambda found: str(len(found)),
        "sum": lambda found: number_text(functools.reduce(EXACT.add, found, Decimal(0))),
        "min": lambda found: number_text(min(found)),
        "max": lambda found: number_text(max(found)),
    }
    return plain[str(stage.aggregate)]


def _folded(fold: Fold, values: Sequence[str]) -> str:
    return stored(functools.reduce(fold.step, values, fold.start()), "aggregate")


def window_begins(spans: Window | None, folder: Path) -> Callable[[str, str], Iterable[int | None]]:
    """The begins of the windows that a record is in."""
    if spans is None:
        return lambda key, value: (None,)
    pick = needed(spans.time, folder)

    def begins(key: str, value: str) -> Iterable[int]:
        if (at_us := time_us(pick(key, value))) is None:
            raise BadRecord(f"{key}: {pick(key, value)!r:.80} is no time; times are ISO 8601, or seconds since 1970")
        last = at_us // spans.slide_us * spans.slide_us
        return range(last, at_us - spans.length_us, -spans.slide_us)

    return begins


@apply.register
def _(stage: Join, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    table = stage.join
    rows: dict[str, list[str]] = {}
    for row in rows_of(table.source, folder / table.source.path):
        text = json_text(row)
        if (key := field_of(text, [table.key])) is not None:
            rows.setdefault(key, []).append(text)
    for key, value in records:
        for row_text in rows.get(key, ["null"] if stage.how == "left" else []):
            yield key, with_field(value, table.name, row_text)


def with_field(value: str, name: str, row: str) -> str:
    """The value, as a JSON object with one more field."""
    whole = value.strip(" \t\n\r") if is_object(value) else json_text({"value": value})
    inside = whole[1:-1]
    return f"{{{inside}{',' if inside.strip() else ''}{json_text(name)}:{row}}}"


def is_object(value: str) -> bool:
    """Whether it is the text of a JSON object."""
    try:
        return isinstance(json.loads(value, parse_constant=_none), dict)
    except ValueError:
        return False


def _none(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


@apply.register
def _(stage: Command, records: Iterable[Record], folder: Path) -> Iterator[Record]:
    asked = list(records)
    if not asked:
        return
    text = "".join(f"key: {key}\nvalue: {value}\n" for key, value in asked)
    pipe, command = subprocess.PIPE, command_line(stage, folder)
    ran = subprocess.run(command, cwd=folder, input=text.encode(), stdout=pipe, check=True)
    lines = iter(ran.stdout.decode().split("\n"))
    for key, value in asked:
        verdict = next(lines)
        if verdict == "forward":
            yield next(lines).removeprefix("key: "), next(lines).removeprefix("value: ")
        elif verdict != "filter":
            raise CommandFailed(f"{stage.arguments[0]} answered {verdict!r} to {key}: {value}")


def command_line(stage: Command, folder: Path) -> list[str]:
    """The command's arguments; an executable with a slash in its name is relative to the pipeline's folder."""
    executable, *rest = stage.arguments
    return [str(folder.absolute() / executable) if "/" in executable else executable, *rest]


def needed(pick: Pick, folder: Path) -> Callable[[str, str], str]:
    """What is picked. Raises `BadRecord` for a record that has no such thing."""
    found = picker(pick, folder)

    def take(key: str, value: str) -> str:
        if (taken := found(key, value)) is None:
            raise BadRecord(f"{key}: there is no {pick} in {value!r:.80}")
        return taken

    return take


def number(pick: Pick, folder: Path) -> Callable[[str, str], Decimal]:
    """The number that is picked. Raises `BadRecord` for what is none."""
    taken = needed(pick, folder)

    def take(key: str, value: str) -> Decimal:
        if (found := number_of(taken(key, value))) is None:
            raise BadRecord(f"{key}: {taken(key, value)!r:.80} is no number")
        return found

    return take


def given_text(found: Any, key: str) -> str:
    """What a function returned, as a value. Raises `BadRecord` for None."""
    if (text := as_text(found)) is None:
        raise BadRecord(f"{key}: a function returned None where a value was wanted")
    return text
