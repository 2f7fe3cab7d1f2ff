"""Functions by name: `module:function`, or `file.py:function` beside the pipeline's own file."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tenure.jobs.pipelines.errors import BadOption
from tenure.scheduler.errors import NotPicklable

__all__ = ["forget_files", "load_function", "load_named", "name_of"]


def load_function(where: Any, folder: Path | str = ".") -> Callable[..., Any]:
    """The function itself, or the one that the text names; files are relative to the folder. Raises `BadOption`."""
    found = load_named(where, folder)
    if not callable(found):
        raise BadOption(f"{where} is a {type(found).__name__}, no function")
    function: Callable[..., Any] = found
    return function


def load_named(where: Any, folder: Path | str = ".") -> Any:
    """The same of whatever has a name; what is no text is itself."""
    if not isinstance(where, str):
        return where
    module_name, colon, path = where.rpartition(":")
    if not colon or not module_name or not path:
        raise BadOption(f"{where!r} names no function: write module:function, or file.py:function")
    module = _module(module_name, Path(folder).resolve())
    try:
        return functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise BadOption(f"{where}: {error}") from error


def _module(name: str, folder: Path) -> ModuleType:
    try:
        return _from_file(folder / name) if name.endswith(".py") else importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadOption(f"there is no module {error.name!r} (for {name!r}); is its folder on the path?") from error
    except OSError as error:
        raise BadOption(f"{name}: {error.strerror or error}") from error


@functools.cache
def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # so that what it defines can be pickled by name within one process
    spec.loader.exec_module(module)
    return module


def forget_files() -> None:
    """Files are loaded anew from now on."""
    _from_file.cache_clear()


def name_of(function: Any) -> str:
    """The name by which other processes find a function. Raises `NotPicklable`."""
    name = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    module = sys.modules.get(getattr(function, "__module__", ""))
    if name.startswith("__main__:") and (file := getattr(module, "__file__", None)):
        name = f"{Path(file).resolve()}:{function.__qualname__}"
    if "<" in name or "None" in name:
        raise NotPicklable(f"{function!r} has no name to import it by: define it at a module's top level")
    return name
