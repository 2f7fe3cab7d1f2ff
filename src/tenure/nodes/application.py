"""An application: a Python file or module that registers job types.

Whatever goes wrong in it is told in one sentence, with the file and the line of the user's own code.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tenure.nodes.errors import ApplicationError
from tenure.scheduler.jobtype import Registry, registry

__all__ = ["Application", "load_application"]


@dataclass(frozen=True)
class Application:
    """A loaded application; `folder` is where its own files are."""

    name: str
    registry: Registry
    folder: Path


def load_application(where: str) -> Application:
    """Import `where` (a path to a .py file, or a module's dotted name). Raises `ApplicationError`."""
    path = Path(where)
    if where.endswith(".py") or path.is_file():
        if not path.is_file():
            raise ApplicationError(f"There is no file {where!r}; name a Python file or a module that registers job types.")
        module = _import_file(path.resolve(), where)
    elif path.is_dir():
        raise ApplicationError(f"{where!r} is a folder; name a Python file in it, or its module with dots.")
    else:
        module = _import_module(where)
    if not len(registry):
        raise ApplicationError(f'{where} registers no job type; put @tenure.job("name") on a class or function.')
    file = getattr(module, "__file__", None)
    return Application(where, registry, Path(file).resolve().parent if file else Path.cwd())


def _import_file(path: Path, where: str) -> ModuleType:
    if (path.parent / "__init__.py").is_file():
        # It may import its neighbours relatively: import it as what it is, a part of its package.
        parts, folder = [path.stem] if path.stem != "__init__" else [], path.parent
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        _put_first(folder)
        with _explained(where):
            return importlib.import_module(".".join(parts))
    _put_first(path.parent)
    name = path.stem if path.stem.isidentifier() and not _is_taken(path.stem) else f"tenure_application_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ApplicationError(f"{where!r} is no Python file; name one that ends in .py.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _explained(where):
        spec.loader.exec_module(module)
    return module


def _import_module(where: str) -> ModuleType:
    _put_first(Path.cwd())
    try:
        found = importlib.util.find_spec(where) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise ApplicationError(f"There is no file and no module {where!r}; name a Python file or a module that registers job types.")
    with _explained(where):
        return importlib.import_module(where)


def _is_taken(name: str) -> bool:
    return name in sys.modules or name in sys.stdlib_module_names or name == "tenure"


def _put_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextlib.contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        place = f"{_shown(error.filename or where)}:{error.lineno}"
        raise ApplicationError(f"{place}: {type(error).__name__}: {error.msg}; correct it and start again.") from error
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code: whatever it raises is told
        text = str(error).strip().partition("\n")[0]
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise ApplicationError(f"{_place(error, where)}: {what}; correct it and start again.") from error


def _place(error: BaseException, where: str) -> str:
    """The innermost line that is neither ours nor the import system's nor an installed library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_foreign(f.filename)]
    return f"{_shown(own[-1].filename)}:{own[-1].lineno}" if own else where


def _is_foreign(file: str) -> bool:
    ours = str(Path(__file__).resolve().parent.parent)
    path = os.path.realpath(file)
    return (
        file.startswith("<")
        or path.startswith((ours, os.path.realpath(os.path.dirname(os.__file__))))
        or "site-packages" in path
        or path.startswith(os.path.realpath(Path(sys.modules["tenure.scheduler"].__file__ or ours).parent))
    )


def _shown(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
