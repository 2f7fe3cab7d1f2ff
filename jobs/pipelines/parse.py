"""From tables, as TOML has them, to structs; what is wrong is said with its place and the nearest right word."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tenure.jobs.pipelines.errors import BadOption, UnknownOption, UnknownStage
from tenure.jobs.pipelines.nearest import nearest
from tenure.scheduler.errors import Mistake

__all__ = ["known_options", "one_of", "wanted"]

T = TypeVar("T")


def one_of(given: Any, kinds: Mapping[str, type[T]], what: str, place: str) -> T:
    """The struct that the table means: one of its names is the kind. Raises a `Mistake` by name."""
    if not isinstance(given, Mapping):
        raise BadOption(f"{place} = {given!r} is no table: write {{ {next(iter(kinds))} = … }}")
    named = [name for name in given if name in kinds]
    if not named:
        word = next(iter(given), "")
        raise UnknownStage(f"{place}: there is no {what} {word!r}{nearest(word, kinds)}")
    if len(named) > 1:
        raise BadOption(f"{place} is both {named[0]} and {named[1]}: make two of them")
    kind = named[0]
    known_options(given, kinds[kind].__struct_fields__, f"{place} ({kind})")  # type: ignore[attr-defined]
    return wanted(given, kinds[kind], f"{place} ({kind})")


def known_options(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raises `UnknownOption`, with the nearest right one."""
    known = list(known)
    for name in given:
        if name not in known:
            raise UnknownOption(f"{place} has no option {name!r}{nearest(str(name), known)}")


def wanted(given: Mapping[str, Any], type: type[T], place: str) -> T:
    """The struct with these values. Raises `BadOption`."""
    try:
        return msgspec.convert(given, type)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        option = f"{where.rstrip('`')}: " if where else ""
        if isinstance(cause := error.__cause__, Mistake):
            raise cause.__class__(f"{place}: {option}{cause}") from None
        raise BadOption(f"{place}: {option}{what[:1].lower()}{what[1:]}") from None
