"""How results are printed: JSON, one object a line, or for people."""

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tenure.cli.streams import let_go
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
    "shown",
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
    """What is said beside results; after those that were printed before it, also where both go into a pipe. A command
    whose words nobody can hear goes on all the same."""
    for write in (sys.stdout.flush, lambda: print(text, file=sys.stderr)):
        with suppress(OSError):  # results that nobody reads any more: said at the end; this may still be heard
            write()


def announce(line: str) -> None:
    """That a process is ready. Where nobody can be told, it is no less so: a full disk, or a pipe that was closed, ends
    neither node nor member."""
    with suppress(OSError):
        print(line)
    let_go()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns that line up, a line for each row. On a terminal only as wide as that, if they are few."""
    told = [_told(column) for column in zip(columns, *rows, strict=True)]
    widths = [max(map(_width, cells)) for cells in told]
    if sys.stdout.isatty() and len(told[0]) <= WRAPPED_MAX and sum(widths) + 3 * len(widths) > _terminal_width():
        _print_wrapped(columns, list(zip(*told, strict=True))[1:])
        return
    padded = [[_padded(cell, width) for cell in cells] for cells, width in zip(told, widths, strict=True)]
    title, *lines = ("   ".join(row).rstrip() + "\n" for row in zip(*padded, strict=True))
    line = "─" if "utf" in (sys.stdout.encoding or "utf").lower() else "-"
    rule = line * (sum(widths) + 3 * (len(widths) - 1)) + "\n"
    sys.stdout.writelines((title, rule, *lines))  # a pipe takes a line as a whole or not at all


def _told(column: Sequence[Any]) -> list[str]:
    """Each cell in one line. Whole columns are looked at first: there may be very many rows."""
    cells = list(map(str, column))
    return [cell.strip() for cell in cells] if "".join(cells).isprintable() else list(map(one_line, cells))


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
    first = shown(first)
    return f"{first} …" if others else first


def shown(text: str) -> str:
    """What would move a terminal's cursor, or colour it, is written out."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    return letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]


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
            yield from (f"{indent}  {line}" for line in shown(inner).rstrip().splitlines())
        else:
            yield f"{indent}{name}: {_scalar(inner)}"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value) if isinstance(value, str) else as_json(value)


def when(at_ms: int, now_ms: int) -> str:
    """A time on this machine's clock, and how far it is; nothing where there is none."""
    if not at_ms:
        return ""
    at = _local(at_ms)
    told = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    if (at.tm_year, at.tm_yday) != _day(now_ms):
        told = f"{_date(at)} {told}"
    away = far(abs(at_ms - now_ms) / 1000)
    return f"{told} (in {away})" if at_ms >= now_ms else f"{told} ({away} ago)"


def _local(at_ms: int) -> time.struct_time:
    """Not as a `datetime`, which ends with the year 9999: who means never may have set just its end."""
    return time.localtime(min(at_ms // 1000, LAST_S))


LAST_S = 2**52
"""No year that a machine knows is later."""


@lru_cache(1)
def _day(at_ms: int) -> tuple[int, int]:
    at = _local(at_ms)
    return at.tm_year, at.tm_yday


def _date(at: time.struct_time) -> str:
    return f"{at.tm_year:04}-{at.tm_mon:02}-{at.tm_mday:02}"


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
    at = _local(at_ms)
    minutes = at.tm_gmtoff // 60
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    return f"{_date(at)} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}{zone}"
