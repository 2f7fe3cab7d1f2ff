"""What is done to records, one stage after another.

A struct's first field is named like the stage in TOML: `{ grep = "hello", tasks = 3 }` is `Grep("hello", tasks=3)`.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from tenure.jobs.pipelines.durations import microseconds
from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.folds import is_fold, load_aggregate
from tenure.jobs.pipelines.nearest import nearest
from tenure.jobs.pipelines.picks import Pick, Picked, as_pick, compiled
from tenure.jobs.pipelines.sources import Csv, Json, Parquet

__all__ = [
    "STAGES",
    "Aggregate",
    "Command",
    "Filter",
    "FlatMap",
    "Grep",
    "Join",
    "KeyBy",
    "Map",
    "Replace",
    "Stage",
    "Window",
]

if TYPE_CHECKING:
    Function = str | Callable[..., Any]
else:
    Function = Any

AGGREGATES = ("count", "sum", "min", "max")
BACKREFERENCE = re.compile(r"\\(?:(\d)|(.)|$)", re.DOTALL)


class Stage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all stages."""

    tasks: int | None = None
    """So many tasks run it, and records are given to them by the hash of their keys. None: as many as before it."""
    name: str | None = None
    """What it is called in progress and logs; its number and kind otherwise."""

    def __post_init__(self) -> None:
        if self.tasks is not None and self.tasks < 1:
            raise BadOption(f"tasks = {self.tasks}: a stage needs at least 1")
        if self.name is not None and (self.name in ("", ".", "..") or not set(self.name).isdisjoint("/\n\0")):
            raise BadOption(f"name = {self.name!r}: a stage's name is a word or more, on one line and without a slash")

    @property
    def kind(self) -> str:
        """The stage's name in TOML."""
        return self.__struct_fields__[0]


class Grep(Stage, frozen=True):
    """Records whose value contains the text; with `invert`, those whose value does not."""

    grep: str
    regex: bool = False
    invert: bool = False

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        if self.regex:
            compiled(self.grep, "grep")


class Replace(Stage, frozen=True):
    r"""Each occurrence of the first text in the value becomes the second. With `regex`, `\1` to `\9` are groups."""

    replace: tuple[str, str]
    regex: bool = False

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        old, new = self.replace
        if not old:
            raise BadOption("replace: the text to replace can't be empty")
        if self.regex:
            groups = compiled(old, "replace").groups
            for digit, other in BACKREFERENCE.findall(new):
                if other != "\\" and not digit:
                    what = f"a backslash before {other!r}" if other else "a backslash at its end"
                    raise BadOption(f"replace: {new!r} has {what}; write \\1 or \\\\")
                if digit and not 1 <= int(digit) <= groups:
                    raise BadOption(f"replace: {new!r} wants group {digit}, and {old!r} has {groups}")


class Filter(Stage, frozen=True):
    """Records for which the function of key and value is true."""

    filter: Function


class Map(Stage, frozen=True):
    """The value becomes what is picked: a field, a group of a pattern, what a function of key and value returns."""

    map: Picked

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        as_pick(self.map, "map")

    @property
    def pick(self) -> Pick:
        """What becomes the value."""
        return as_pick(self.map, "map")


class FlatMap(Stage, frozen=True):
    """One record for each value that the function of key and value returns; they keep their key."""

    flat_map: Function


class KeyBy(Stage, frozen=True):
    """The key becomes what is picked."""

    key_by: Picked

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        as_pick(self.key_by, "key_by")

    @property
    def pick(self) -> Pick:
        """What becomes the key."""
        return as_pick(self.key_by, "key_by")


class Window(Struct, frozen=True):
    """Spans of event time, in microseconds: each begins at a multiple of `slide_us`, counted from 1970 UTC."""

    length_us: int
    slide_us: int
    late_us: int
    time: Pick


class Aggregate(Stage, frozen=True):
    """One record per key: count, sum, min or max of numbers, or what `module:function` makes of two values, or a fold,
    `module:Class` with `start()`, `step(state, value)` and `finish(state)`.

    These must not care for order (a function must be associative and commutative): records meet in any. With
    `window`, one record per key and span of event time, its key followed by `@` and the span's begin.
    """

    aggregate: Function
    of: Picked = "value"
    """What is summed or compared."""
    per: Literal["key", "all"] = "key"
    """`all`: one record for everything, with the key `all`."""
    window: str | float | None = None
    slide: str | float | None = None
    """A new window begins so often; as often as one is long, if not said."""
    time: Picked = None
    """A record's event time: ISO 8601 (UTC, if it names no zone), or seconds since 1970."""
    late: str | float = 0
    """Of a stream: a window waits so long for records that come late."""

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        if isinstance(self.aggregate, str) and ":" not in self.aggregate and self.aggregate not in AGGREGATES:
            hint = nearest(self.aggregate, AGGREGATES)
            raise BadOption(f"there is no aggregate {self.aggregate!r}{hint} (or module:function, for your own)")
        as_pick(self.of, "of")
        if self.window is None and (self.slide is not None or self.time is not None or self.late):
            raise BadOption('slide, time and late are for windows: add window = "1 minute", or leave them out')
        if self.window is not None:
            self._check_window()

    def _check_window(self) -> None:
        if self.time is None:
            raise BadOption("a window needs to know when things happened: add time = { field = … } or { regex = … }")
        window = self.spans
        assert window is not None
        if window.length_us < 1 or window.slide_us < 1:
            raise BadOption("window and slide can't be 0")
        if window.slide_us > window.length_us:
            raise BadOption("slide is longer than window: records between two windows would get lost")
        if window.length_us > 1000 * window.slide_us:
            raise BadOption("slide is less than a thousandth of window: each record would be in more than 1000 of them")

    @property
    def custom(self) -> bool:
        """Whether it is the user's own."""
        return self.aggregate not in AGGREGATES

    def folds(self, folder: Path | str) -> bool:
        """Whether it is the user's own, and has a state."""
        return self.custom and is_fold(load_aggregate(self.aggregate, folder))

    @property
    def number(self) -> Pick:
        """What is summed or compared."""
        return as_pick(self.of, "of")

    @property
    def spans(self) -> Window | None:
        """The windows, if there are any."""
        if self.window is None:
            return None
        length_us = microseconds(self.window, "window")
        slide_us = length_us if self.slide is None else microseconds(self.slide, "slide")
        return Window(length_us, slide_us, microseconds(self.late, "late"), as_pick(self.time, "time"))


class Table(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What records are joined with: a file of rows, small enough for memory, and its column with the key."""

    csv: str | None = None
    json: str | None = None
    parquet: str | None = None
    key: str
    name: str = "joined"
    """The field of the value that gets the row."""
    separator: str = ","
    columns: list[str] | None = None
    header: bool = True

    def __post_init__(self) -> None:
        if sum(path is not None for path in (self.csv, self.json, self.parquet)) != 1:
            raise BadOption("a table to join with needs one of csv, json and parquet")

    @property
    def source(self) -> Csv | Json | Parquet:
        """The table's rows, as a source reads them."""
        if self.csv is not None:
            return Csv(self.csv, header=self.header, columns=self.columns, separator=self.separator)
        return Json(self.json) if self.json is not None else Parquet(self.parquet or "")


class Join(Stage, frozen=True):
    """Records whose key is in a table get its row, as one more field of their value; each matching row makes one.

    A value that is no JSON object becomes one first, `{"value": …}`. With `how = "left"`, records without a row stay,
    with null in its place; otherwise they are dropped.
    """

    join: Table
    how: Literal["inner", "left"] = "inner"


class Command(Stage, frozen=True):
    """An external executable reads each record and forwards one, or filters it out."""

    command: str | list[str]
    timeout_s: float = 60.0
    """A command that owes an answer and gives none for so long has hung: it is ended and started again."""
    attempts_max: int = 3
    """A record at which the command died or hung so often ends the run."""

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        if not self.timeout_s > 0 or self.attempts_max < 1:
            raise BadOption("a command needs timeout_s > 0 and attempts_max >= 1")
        try:
            empty = not self.arguments
        except ValueError as error:
            raise BadOption(f"command = {self.command!r}: {error}") from error
        if empty:
            raise BadOption("command names no executable")

    @property
    def arguments(self) -> list[str]:
        """The executable and its arguments, as a shell would split them. There is no shell."""
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command)


STAGES: dict[str, type[Stage]] = {
    "grep": Grep,
    "replace": Replace,
    "filter": Filter,
    "map": Map,
    "flat_map": FlatMap,
    "key_by": KeyBy,
    "aggregate": Aggregate,
    "join": Join,
    "command": Command,
}
