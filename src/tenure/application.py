"""Applications: a Python file or module whose import registers job types."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from os import PathLike
from pathlib import Path
from types import CodeType, ModuleType

from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.jobtype import registry as process_registry

__all__ = ["BadApplication", "Source", "load_application"]

Source = str | PathLike[str] | ModuleType | Registry | None


class BadApplication(Mistake):
    """An application can't be loaded; the text says where it went wrong, in one sentence."""


class _FromSource(SourceFileLoader):
    """Compiles the file as it is now. Python believes stored bytecode by the second of the file's change and by its
    size: an edit of the same length within a second would run the old application."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load_application(source: Source = None, *, apart: bool = False) -> Registry:
    """The job types of an application: a file (`app.py`), a module's name, a module, or a registry.

    None means what this process has registered. What a file or module registers goes into the process's
    registry; with `apart` into one of its own, which has what the process had registered too: so two
    versions of one application can live in one process.
    """
    if source is None or isinstance(source, ModuleType):
        return process_registry
    if isinstance(source, Registry):
        return source
    if not apart:
        _run(source)
        return _not_empty(process_registry, source)
    before = {type.name: type for type in process_registry}
    with process_registry.collecting() as collected:
        _run(source)
    types = before | {type.name: type for type in collected}
    return _not_empty(Registry(*types.values()), source)


def is_file(source: str | PathLike[str]) -> bool:
    """Does this name a file, not a module?"""
    text = str(source)
    return not isinstance(source, str) or text.endswith(".py") or "/" in text or "\\" in text


def _run(source: str | PathLike[str]) -> None:
    try:
        if is_file(source):
            _run_file(Path(source))
        else:
            importlib.import_module(str(source))
    except BadApplication:
        raise
    except (Exception, SystemExit) as error:
        raise BadApplication(_sentence(source, error)) from error


def _run_file(path: Path) -> None:
    path = path.expanduser().resolve()
    if path.is_dir():
        raise BadApplication(f"{path} is a folder; name the Python file that registers the job types")
    if not path.is_file():
        raise BadApplication(f"there is no file {path}: name the Python file that registers the job types")
    name = f"_tenure_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    loader = _FromSource(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # there is a loader
    module = importlib.util.module_from_spec(spec)
    # Its neighbours can be imported, as when it is run as a script.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise


def _not_empty(registry: Registry, source: str | PathLike[str]) -> Registry:
    if not len(registry):
        raise BadApplication(f"{source} registers no job type: put @tenure.job(…) on its classes or functions")
    return registry


def _sentence(source: str | PathLike[str], error: BaseException) -> str:
    """`app.py, line 12: NameError: name 'x' is not defined`: the innermost line of the application itself."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{error.filename or source}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    own = Path(source).expanduser().resolve() if is_file(source) else None
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _is_ours(frame.filename)]
    inside = [frame for frame in theirs if own is not None and Path(frame.filename) == own] or theirs
    if not inside:
        return f"{source} can't be loaded: {what}; name a Python file (app.py), or a module that can be imported here"
    return f"{inside[-1].filename}, line {inside[-1].lineno}: {what}"


def _is_ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen") or "importlib" in filename
