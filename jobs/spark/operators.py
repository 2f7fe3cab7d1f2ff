"""What runs in Spark's Python workers: the user's functions and commands, over the records of one task."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec import Struct

from tenure.jobs.pipelines.command import Operator
from tenure.jobs.pipelines.errors import BadRecord
from tenure.jobs.pipelines.folds import Fold, is_fold, load_aggregate, restored, stored
from tenure.jobs.pipelines.functions import load_function
from tenure.jobs.pipelines.lifeline import dies_with_parent
from tenure.jobs.pipelines.picks import as_text
from tenure.jobs.pipelines.records import Record

__all__ = [
    "Combining",
    "Commanding",
    "Filtering",
    "Finishing",
    "FlatMapping",
    "Folding",
    "Mapping",
    "Picking",
    "Rekeying",
]


class _Calling(Struct, frozen=True):
    """Calls a user's function; found by its name where it is called."""

    function: Any
    folder: str
    label: str

    def called(self) -> Callable[..., Any]:
        """The function."""
        return load_function(self.function, self.with_path())

    def with_path(self) -> str:
        """The folder, in which modules are found from now on."""
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        return self.folder

    def text(self, found: Any, key: str) -> str:
        """What the function returned, as a key or value. Raises `BadRecord`."""
        if (text := as_text(found)) is None:
            raise BadRecord(f"stage {self.label}: {key}: the function returned None where a value was wanted")
        return text


class Filtering(_Calling, frozen=True):
    """Keeps records for which the function is true."""

    def __call__(self, records: Iterator[Record]) -> Iterator[Record]:
        function = self.called()
        return ((key, value) for key, value in records if function(key, value))


class Mapping(_Calling, frozen=True):
    """The function's result becomes the value."""

    def __call__(self, records: Iterator[Record]) -> Iterator[Record]:
        function, text = self.called(), self.text
        return ((key, text(function(key, value), key)) for key, value in records)


class Rekeying(_Calling, frozen=True):
    """The function's result becomes the key."""

    def __call__(self, records: Iterator[Record]) -> Iterator[Record]:
        function, text = self.called(), self.text
        return ((text(function(key, value), key), value) for key, value in records)


class FlatMapping(_Calling, frozen=True):
    """One record for each value that the function returns."""

    def __call__(self, records: Iterator[Record]) -> Iterator[Record]:
        function, text = self.called(), self.text
        return ((key, text(found, key)) for key, value in records for found in function(key, value))


class Combining(_Calling, frozen=True):
    """Rows that are sorted by all their columns but the last become one per group: the function makes one value of
    two."""

    def __call__(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        function = self.called()
        for group, members in groupby(rows, lambda row: row[:-1]):
            values = (row[-1] for row in members)
            combined = next(values)
            for value in values:
                combined = self.text(function(combined, value), group[0])
            yield (*group, combined)


class Folding(_Calling, frozen=True):
    """Rows of a group (sorted by it), what is kept of the group (first, if anything is) and a value become one per
    group: its state with the values."""

    def __call__(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        fold = self.fold()
        for group, members in groupby(rows, lambda row: row[:-2]):
            state, begun = None, False
            for *_, kept, value in members:
                state = restored(kept) if kept is not None else fold.step(state if begun else fold.start(), value)
                begun = True
            yield (*group, stored(state, f"stage {self.label}: {group[0]}"))

    def fold(self) -> Fold:
        """The object."""
        found = load_aggregate(self.function, self.with_path())
        assert is_fold(found), f"{self.function} was a fold where the run was begun"
        return found


class Finishing(Folding, frozen=True):
    """What is kept of each group becomes its result."""

    def __call__(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        fold = self.fold()
        return ((*group, self.text(fold.finish(restored(kept)), group[0])) for *group, kept in rows)


class Picking(Struct, frozen=True):
    """Adds what several functions say of each record."""

    functions: dict[str, Any]
    folder: str
    label: str

    def __call__(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        called = [_Calling(function, self.folder, self.label) for function in self.functions.values()]
        functions = [(calling.called(), calling.text) for calling in called]
        for row in rows:
            key, value = row[:2]
            yield (*row, *(text(function(key, value), key) for function, text in functions))


class Commanding(Struct, frozen=True):
    """Runs an external command, for as long as the task lives."""

    arguments: list[str]
    folder: str
    label: str
    timeout_s: float
    attempts_max: int

    def __call__(self, records: Iterable[Record]) -> Iterator[Record]:
        operator = Operator(
            self.arguments,
            self.folder,
            label=self.label,
            timeout_s=self.timeout_s,
            attempts_max=self.attempts_max,
            before_exec=dies_with_parent(),
        )
        return operator.run((key, value) for key, value in records)
