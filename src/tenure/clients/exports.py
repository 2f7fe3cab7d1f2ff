"""Files that are written whole, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["replaced"]


@contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """What is written takes the place of the file at the end, if all went well; until then that stays as it was."""
    if path.exists() and not path.is_file():  # a terminal, a pipe
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
