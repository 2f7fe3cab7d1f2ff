"""Lines and the keys of records, as Python sees them: the meaning that Spark's side must have too."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from tenure.jobs.pipelines.errors import MissingInput

__all__ = ["Input", "find_inputs", "lines_of"]

GLOB = frozenset("*?[")


class Input(str):
    """A file to read: its absolute path. `shown` is its name in keys."""

    shown: str

    def __new__(cls, path: str, shown: str) -> "Input":
        self = super().__new__(cls, path)
        self.shown = shown
        return self


def find_inputs(path: str | Path) -> list[Input]:
    """The files of a path, folder or pattern, in the order of their names. Raises `MissingInput`."""
    path = str(path)
    if os.path.isdir(path):
        return sorted(_walk(path))
    if os.path.isfile(path):
        return [Input(path, os.path.basename(path))]
    if not GLOB.isdisjoint(path):
        root = _fixed_part(path)
        files = sorted(found for found in glob.glob(path, recursive=True) if os.path.isfile(found))
        if files:
            return [Input(file, os.path.relpath(file, root)) for file in files]
        raise MissingInput(f"no file fits {path}")
    raise MissingInput(f"there is no file or folder {path}")


def _walk(root: str) -> Iterator[Input]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not hidden(name)]
        for name in files:
            if not hidden(name):
                file = os.path.join(folder, name)
                yield Input(file, os.path.relpath(file, root))


def hidden(name: str) -> bool:
    """As Spark sees it: `_SUCCESS`, `.part-0.crc` and the like are no data."""
    return name.startswith(("_", "."))


def _fixed_part(pattern: str) -> str:
    """The folder above the first part that is a pattern."""
    parts = pattern.split(os.sep)
    fixed = next(number for number, part in enumerate(parts) if not GLOB.isdisjoint(part))
    return os.sep.join(parts[:fixed]) or (os.sep if pattern.startswith(os.sep) else ".")


def lines_of(path: str) -> Iterator[str]:
    """The lines of a text file, without what ends them."""
    with open(path, encoding="utf-8-sig", errors="replace", newline=None) as file:
        for line in file:
            yield line.removesuffix("\n")
