"""The handlers of a job type, looked at when it is registered: what could never be called is refused here, not missed
later.
"""

import difflib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from tenure.scheduler.errors import Mistake

__all__ = ["check_handlers", "decoder_of", "message_type_of", "name_shown", "own_names"]

ALSO_KNOWN_AS = {
    "on_create": "on_start",
    "on_init": "on_start",
    "on_receive": "on_message",
    "on_alarm": "on_timeout",
    "on_cron": "on_timeout",
    "on_tick": "on_timeout",
    "on_timer": "on_timeout",
    "on_wake": "on_timeout",
    "on_destroy": "on_stop",
    "on_remove": "on_stop",
}
"""What other systems call them."""
_Class = type
ALIKE = 0.8
"""How much a name must be like a handler's to be taken for a slip."""


def check_handlers(type_name: str, target: Any, handlers: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises `Mistake` for a handler that can't be called, and for a method that was meant to be one. `handlers` are
    those that there are (of a function: itself, under no name), `known` the names of all that there could be."""
    for name, handler in handlers.items():
        _check_signature(name, handler, is_class=isinstance(target, type))
    for cls, name in _methods(target) if isinstance(target, type) else ():
        _check_name(type_name, cls, name, known)


def _methods(target: type) -> Iterator[tuple[type, str]]:
    for cls in target.__mro__:
        for name, value in vars(cls).items():
            if name.startswith("on_") and callable(getattr(value, "__func__", value)):
                yield cls, name


def _check_name(type_name: str, cls: type, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    meant = ALSO_KNOWN_AS.get(name) or next(iter(difflib.get_close_matches(name, sorted(known), 1, ALIKE)), "")
    if meant and meant not in vars(cls):  # beside the real one it is a helper
        raise Mistake(
            f"job type {type_name!r}: nothing calls {cls.__qualname__}.{name}; is {meant} meant? "
            f"(Handlers are {', '.join(sorted(known))}.)"
        )


def _check_signature(name: str, handler: Callable[..., Any], *, is_class: bool) -> None:
    parameters = ["self", "ctx"] if is_class else ["ctx"]
    if name in ("on_message", ""):
        parameters.append("message")
    elif name == "on_activity":
        parameters.append("event")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # some callables have none
    try:
        signature.bind(*parameters)
    except TypeError as error:
        shown = f"def {getattr(handler, '__name__', name)}({', '.join(parameters)})"
        has = own_names(f"{name_shown(handler)}{signature}")
        raise Mistake(f"{has} can't be called as `{shown}`: {error}") from None


def name_shown(handler: Any) -> str:
    """As people call it: `Account.on_message`."""
    return str(getattr(handler, "__qualname__", None) or repr(handler)).rpartition("<locals>.")[2]


_LOADED = re.compile(r"\b_tenure_\S*?_[0-9a-f]{8}\.")


def own_names(text: str) -> str:
    """A text without the module that a file becomes when it is loaded as an application: what is in there is called by
    the names that it has in the file."""
    return _LOADED.sub("", text)


def message_type_of(handler: Any, skip: int) -> Any:
    """The annotation of its message; Any if there is none."""
    if handler is None:
        return Any
    try:
        hints = typing.get_type_hints(handler, include_extras=True)
        names = list(inspect.signature(handler).parameters)
    except (NameError, TypeError, ValueError):
        return Any
    return hints.get(names[skip], Any) if len(names) > skip else Any


TAGS = (
    "Messages of several kinds are tagged structs: `class Paid(msgspec.Struct, tag=True): …` for each, "
    "and `message: Paid | Refunded`"
)


def decoder_of(type_name: str, what: str, type: Any) -> Callable[[Any], Any]:
    """How values of this type are read. Raises `Mistake`, with advice, if none can be."""
    try:
        return msgspec.msgpack.Decoder(type).decode
    except TypeError as error:
        raise Mistake(f"job type {type_name!r}: {_blamed(what, type)}: {own_names(_advised(error))}") from None


def _advised(error: TypeError) -> str:
    text = str(error).partition(" - type ")[0].rstrip(".")
    return f"{text}. {TAGS}" if "unions may not contain more than one" in text else text


def _blamed(what: str, type: Any) -> str:
    """The field that can't be read, where one by itself can't."""
    try:
        fields = typing.get_type_hints(type, include_extras=True) if isinstance(type, _Class) else {}
    except (NameError, TypeError):
        fields = {}
    for name, hint in fields.items():
        try:
            msgspec.msgpack.Decoder(hint)
        except TypeError:
            return f"field {name!r} of its {what}"
    return f"its {what}"
