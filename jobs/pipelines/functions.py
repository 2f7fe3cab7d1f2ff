"""Functions by name: `module:function`, or `file.py:function` beside the pipeline's own file."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from tenure.jobs.pipelines.errors import BadOption
from tenure.scheduler.errors import NotPicklable

__all__ = ["forget_files", "load_function", "load_named", "look_for", "name_of"]


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
    module_name, path = _parts(where)
    module = _module(module_name, Path(folder).resolve())
    try:
        return functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise BadOption(f"{where}: {error}") from error


def look_for(where: Any, folder: Path | str = ".") -> None:
    """Is there a file or module of this name? Nothing of it is run. Raises `BadOption`."""
    if not isinstance(where, str):
        return
    module_name, _ = _parts(where)
    if module_name.endswith(".py"):
        if not (file := Path(folder).resolve() / module_name).is_file():
            raise BadOption(f"there is no file {file}")
        return
    top = module_name.partition(".")[0]
    if top not in sys.modules and top not in sys.builtin_module_names:
        importlib.invalidate_caches()
        if PathFinder.find_spec(top, [str(folder), *sys.path]) is None:
            raise _missing(top, module_name)


def _parts(where: str) -> tuple[str, str]:
    module_name, colon, path = where.rpartition(":")
    if not colon or not module_name or not path:
        raise BadOption(f"{where!r} names no function: write module:function, or file.py:function")
    return module_name, path


def _missing(module: str | None, name: str) -> BadOption:
    return BadOption(f"there is no module {module!r} (for {name!r}); is its folder on the path?")


def _module(name: str, folder: Path) -> ModuleType:
    try:
        return _from_file(folder / name) if name.endswith(".py") else importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name, name) from error
    except OSError as error:
        raise BadOption(f"{name}: {error.strerror or error}") from error
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise BadOption(f"{name} can't be imported: {type(error).__name__}: {error}") from error


@functools.cache
def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # so that what it defines can be pickled by name within one process
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise
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
