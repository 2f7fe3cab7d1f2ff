"""How results are printed: JSON, one object a line, or for people."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tenure.clients.as_json import as_json

__all__ = ["as_json", "counted", "moment", "print_json", "print_table", "print_value", "say"]


def counted(count: int, noun: str) -> str:
    """1 job, 2 jobs, 1,000 jobs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_json(value: Any) -> None:
    print(as_json(value))


def print_value(value: Any, *, json: bool) -> None:
    """A result: as JSON either way, indented for people."""
    import msgspec

    text = as_json(value)
    print(text if json else msgspec.json.format(text, indent=2))


def say(text: str) -> None:
    """What is said beside results; after those that were printed before it, also where both go into a pipe."""
    try:
        sys.stdout.flush()
    except OSError:
        pass  # nobody reads results any more, or their disk is full; this may still be heard
    print(text, file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns that line up. On a terminal only as wide as that."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    # What people have named is shown as it is: also `shop:key:7`, where rich would draw a key.
    as_it_is: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = Console(**as_it_is)
    if not console.is_terminal:
        console = Console(**as_it_is, width=max(80, console.measure(table).maximum + 4, 200))
    console.print(table)


def moment(at_ms: int) -> str:
    """A time in this machine's zone; nothing where there is none."""
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
