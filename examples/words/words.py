"""The function of the pipeline beside it."""

import re


def words(key: str, value: str) -> list[str]:
    """The words of a line, in small letters."""
    return re.findall(r"\w+", value.lower())
