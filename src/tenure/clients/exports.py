"""Files that are written whole, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["replaced"]


@contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """What is written takes the place of the file at the end, if all went well; until then that stays as it was.

    Links stay, and lead to what is new; who could read the old one can read the new one, and nobody else. What is no
    file of a folder (a terminal, a pipe, where the shell has sent the output) is written to as it comes.
    """
    if (path.exists() and not path.is_file()) or _is_open_here(path):
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        with open(draft, "w", encoding="utf-8", opener=_for_us_alone) as file:
            draft.chmod(_mode_of(path))
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _for_us_alone(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_EXCL, 0o600)


def _mode_of(path: Path) -> int:
    """As the file has it that is there; a new one is for its owner: states of jobs may be anything."""
    return path.stat().st_mode & 0o777 if path.exists() else 0o600


def _is_open_here(path: Path) -> bool:
    """`/dev/stdout` leads to the very file that the shell has opened for us."""
    for stream in range(3):
        try:
            if path.exists() and os.path.samestat(os.fstat(stream), path.stat()):
                return True
        except OSError:
            continue  # closed
    return False
