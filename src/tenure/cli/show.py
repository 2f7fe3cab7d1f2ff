"""How results are printed: JSON, one object a line, or for people."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tenure.clients.as_json import as_json

__all__ = [
    "announce",
    "as_json",
    "counted",
    "far",
    "moment",
    "one_line",
    "print_described",
    "print_json",
    "print_table",
    "print_value",
    "say",
    "when",
]


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


def announce(line: str) -> None:
    """That a process is ready. Where nobody can be told, it is no less so: a full disk, or a pipe that was closed, ends
    neither node nor member."""
    try:
        print(line, flush=True)
    except OSError:
        # Else Python would try once more at its exit, and make another exit code of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns that line up, a line for each row. On a terminal only as wide as that, if they are few."""
    cells = [list(columns), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty() and len(cells) <= WRAPPED_MAX and sum(widths) + 3 * len(widths) > _terminal_width():
        _print_wrapped(columns, cells[1:])
        return
    write = sys.stdout.write
    for n, row in enumerate(cells):
        padded = map(_padded, row, widths)
        write("   ".join(padded).rstrip() + "\n")
        if not n:
            write("─" * (sum(widths) + 3 * (len(widths) - 1)) + "\n")


WRAPPED_MAX = 200
"""More rows take long to wrap, and nobody reads them on a terminal."""


def _print_wrapped(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # What people have named is shown as it is: also `shop:key:7`, where rich would draw a key.
    Console(highlight=False, markup=False, emoji=False).print(table)


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def _padded(cell: str, width: int) -> str:
    return cell.ljust(width) if cell.isascii() else cell + " " * (width - _width(cell))


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def one_line(text: str) -> str:
    """The first line of it, and a sign that there are more."""
    if text.isprintable():  # no end of a line is
        return text.strip()
    first, *others = text.strip().splitlines() or [""]
    return f"{first} …" if others else first


def print_described(value: Mapping[str, Any], now_ms: int) -> None:
    """All that is known of something, for people: a line for each thing that there is."""
    for line in _described(value, now_ms):
        print(line)


def _described(value: Mapping[str, Any], now_ms: int, indent: str = "") -> Iterator[str]:
    for name, inner in value.items():
        if inner in (None, "", [], {}) and name != "state":
            continue
        if name.endswith("_ms") and isinstance(inner, int):
            if inner:
                yield f"{indent}{name[:-3]}: {when(inner, now_ms)}"
        elif isinstance(inner, Mapping) and inner:
            yield f"{indent}{name}:"
            yield from _described(inner, now_ms, f"{indent}  ")
        elif isinstance(inner, list) and inner and isinstance(inner[0], Mapping):
            for each in inner:
                yield f"{indent}{name}:"
                yield from _described(each, now_ms, f"{indent}  ")
        elif isinstance(inner, str) and "\n" in inner:
            yield f"{indent}{name}:"
            yield from (f"{indent}  {line}" for line in inner.rstrip().splitlines())
        else:
            yield f"{indent}{name}: {_scalar(inner)}"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else as_json(value)


def when(at_ms: int, now_ms: int) -> str:
    """A time on this machine's clock, and how far it is; nothing where there is none."""
    if not at_ms:
        return ""
    at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    is_today = at.date() == datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    shown = at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
    away = far(abs(at_ms - now_ms) / 1000)
    return f"{shown} (in {away})" if at_ms >= now_ms else f"{shown} ({away} ago)"


def far(seconds: float) -> str:
    """About how long that is."""
    seconds = round(seconds)
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(at_ms: int) -> str:
    """A time in this machine's zone; nothing where there is none."""
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
