"""Which application a command line means: a file, a file inside a package, or a module."""

import sys
from dataclasses import dataclass
from pathlib import Path

from tenure.application import load_application
from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Registry

__all__ = ["Application", "load", "source_of"]


@dataclass(frozen=True)
class Application:
    """A loaded application."""

    name: str
    registry: Registry


def load(where: str) -> Application:
    """Import `where`, a path to a Python file or a module's dotted name. Raises `BadApplication`."""
    source, folder = source_of(where)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return Application(where, load_application(source))


def source_of(where: str) -> tuple[str, Path]:
    """What to import, and the folder to import it from. A file of a package is a module of it, with its neighbours."""
    path = Path(where)
    if not where.endswith(".py") and not path.is_file():
        if path.is_dir():
            raise Mistake(f"{where!r} is a folder: name a Python file in it, or a module with dots.")
        return where, Path.cwd()
    file = path.resolve()
    parts, folder = [file.stem], file.parent
    if not (folder / "__init__.py").is_file() or not file.is_file():
        return where, folder
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(part for part in parts if part != "__init__"), folder
