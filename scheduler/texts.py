"""Texts from outside, as they can be stored. What errors say may be anything: names of files that are no UTF-8,
megabytes."""

__all__ = ["ERROR_CHARS_MAX", "storable", "told"]

ERROR_CHARS_MAX = 2000


def told(error: BaseException) -> str:
    """`Name: what happened`, as it can be stored, whatever the error says of itself."""
    try:
        text = str(error)
    except Exception as another:  # noqa: BLE001  # somebody else's code, asked for no more than a text
        text = f"(what it says can't be had: {type(another).__name__})"
    return storable(f"{type(error).__name__}: {text}"[:ERROR_CHARS_MAX])


def storable(text: str) -> str:
    """The same, with what UTF-8 has no bytes for (lone surrogates) written out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
