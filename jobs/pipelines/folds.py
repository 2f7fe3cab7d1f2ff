"""Aggregates of the user's own: a function that makes one value of two, or a fold, with a state of its own.

A fold has `start()`, what there is before any value; `step(state, value)`, the state with one value more; and
`finish(state)`, the result. Its state is kept as JSON, so it is made of what JSON gives back as it was.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from tenure.jobs.pipelines.errors import BadOption, BadRecord
from tenure.jobs.pipelines.functions import load_named

__all__ = ["Fold", "is_fold", "load_aggregate", "restored", "stored"]

PARTS = ("start", "step", "finish")


class Fold(Protocol):
    """An aggregate with a state. Like a function of two values, it must not care for the order of values."""

    def start(self) -> Any: ...
    def step(self, state: Any, value: str) -> Any: ...
    def finish(self, state: Any) -> Any: ...


def load_aggregate(where: Any, folder: Path | str = ".") -> Callable[[str, str], Any] | Fold:
    """The function or the fold itself, or the one that the text names; of a class, a new one. Raises `BadOption`."""
    found = load_named(where, folder)
    missing = [part for part in PARTS if not callable(getattr(found, part, None))]
    if len(missing) == len(PARTS):
        if callable(found):
            function: Callable[[str, str], Any] = found
            return function
        raise BadOption(f"{where} is no function of two values, nor has it {', '.join(PARTS)}")
    if missing:
        raise BadOption(f"{where} has no {' and no '.join(missing)}: an aggregate with a state has {', '.join(PARTS)}")
    try:
        fold: Fold = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise BadOption(f"{where} can't be made: {type(error).__name__}: {error}") from error
    return fold


def is_fold(aggregate: Callable[[str, str], Any] | Fold) -> TypeGuard[Fold]:
    """Whether it has a state."""
    return all(callable(getattr(aggregate, part, None)) for part in PARTS)


def stored(state: Any, key: str) -> str:
    """The state, to be kept. Raises `BadRecord` for what would come back as something else."""
    try:
        text = json.dumps(state, allow_nan=False)
        if restored(text) == state:
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    raise BadRecord(
        f"{key}: a state must be made of numbers, texts, None, lists, and dicts with texts as keys, not {state!r:.80}"
    )


def restored(text: str) -> Any:
    """The state that was kept."""
    return json.loads(text)
