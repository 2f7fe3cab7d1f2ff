"""What is taken from a record: its value, key, a field, the first group of a pattern, or what a function says.

Stages that need one thing out of a record (`key_by`, `map`, the number of a sum, the time of a window) all name it
in the same way: `"value"`, `"key"`, `{ field = "user.id" }`, `{ regex = "(\\d+) ms" }`, `"module:function"`.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.functions import load_function

__all__ = ["Pick", "Picked", "as_pick", "picker"]

ESCAPES = {code: f"\\u{code:04X}" for code in range(32)}
ESCAPES |= {ord(plain): f"\\{letter}" for plain, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}
WIDE = re.compile("[\U00010000-\U0010ffff]")
FIELD = re.compile(r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*")


class Pick(Struct, frozen=True):
    """One thing of a record."""

    kind: Literal["value", "key", "field", "regex", "function"]
    of: Any = None

    def __str__(self) -> str:
        return self.kind if self.of is None else f"{self.kind} {self.of!r}"


if TYPE_CHECKING:
    Picked = str | dict[str, str] | Callable[[str, str], Any] | Pick | None
else:
    Picked = Any
"""How users write a pick."""


def as_pick(given: Picked, option: str) -> Pick:
    """Raises `BadOption`."""
    if isinstance(given, Pick):
        return given
    if callable(given) or isinstance(given, str) and ":" in given:
        return Pick("function", given)
    if given == "value":
        return Pick("value")
    if given == "key":
        return Pick("key")
    if isinstance(given, dict) and len(given) == 1:
        ((kind, of),) = given.items()
        if kind == "function":
            return Pick("function", of)
        if isinstance(of, str) and kind in ("field", "regex"):
            return _checked(Pick("field" if kind == "field" else "regex", of), option)
    raise BadOption(
        f"{option} = {given!r} names nothing of a record: write 'value', 'key', {{ field = \"name\" }}, "
        '{ regex = "(group)" } or "module:function"'
    )


def _checked(pick: Pick, option: str) -> Pick:
    if pick.kind == "field" and not FIELD.fullmatch(pick.of):
        raise BadOption(f"{option}: {pick.of!r} is no field: write its name, with dots for fields of fields")
    if pick.kind == "regex" and compiled(pick.of, option).groups < 1:
        raise BadOption(f"{option}: the pattern {pick.of!r} has no group: put round brackets around what is meant")
    return pick


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """A pattern that means the same here and in Spark: classes like `\\w` are those of ASCII. Raises `BadOption`."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise BadOption(f"{option}: {pattern!r} is no pattern: {error}") from error


def picker(pick: Pick, folder: Path | str = ".") -> Callable[[str, str], str | None]:
    """The plain Python meaning: a function of key and value. None: the record has no such thing."""
    if pick.kind == "value":
        return lambda key, value: value
    if pick.kind == "key":
        return lambda key, value: key
    if pick.kind == "field":
        path = pick.of.split(".")
        return lambda key, value: field_of(value, path)
    if pick.kind == "regex":
        pattern = compiled(pick.of, "regex")
        return lambda key, value: _group(pattern.search(value))
    function = load_function(pick.of, folder)
    return lambda key, value: as_text(function(key, value))


def _group(match: re.Match[str] | None) -> str | None:
    return None if match is None else match.group(1) or ""


def field_of(value: str, path: list[str]) -> str | None:
    """A field of a JSON object, as text; None if it is not there, or null."""
    try:
        found = json.loads(value, parse_float=Number, parse_int=Number)
    except ValueError:
        return None
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return as_text(found)


def as_text(found: Any) -> str | None:
    """Texts are themselves, everything else is as JSON writes it."""
    if found is None or isinstance(found, str):
        return None if found is None else str(found)
    return WIDE.sub(_surrogates, json_text(found))  # inside of what it copies, Spark escapes these


def _surrogates(wide: re.Match[str]) -> str:
    code = ord(wide[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def json_text(value: Any) -> str:
    """JSON without spaces, written as Spark writes it."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return f'"{value.translate(ESCAPES)}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(str(name))}:{json_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value)


class Number(str):
    """A number in JSON, digit by digit as it was read."""
