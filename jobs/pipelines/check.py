"""What can be seen to be wrong with a pipeline before anything runs: missing inputs, commands, functions; output in
the way."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenure.jobs.pipelines.errors import BadOption, MissingInput, NotExecutable, OutputExists
from tenure.jobs.pipelines.folds import load_aggregate
from tenure.jobs.pipelines.functions import load_function, look_for
from tenure.jobs.pipelines.lines import find_inputs
from tenure.jobs.pipelines.output import Output
from tenure.jobs.pipelines.picks import Pick
from tenure.jobs.pipelines.sources import Files
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import Aggregate, Command, Filter, FlatMap, Join, KeyBy, Map, Stage

__all__ = ["check"]


def check(pipeline: Pipeline, run: str = "", *, imports: bool = True) -> None:
    """Raises a `Mistake` by name, with the stage that it is about. Output of this very run is not in its way. Without
    `imports`, no code of the user's is run: its functions are looked for only."""
    if not Path(pipeline.folder).is_dir():
        raise MissingInput(f"there is no folder {pipeline.folder} for the pipeline's paths")
    if imports and pipeline.folder not in sys.path:
        sys.path.insert(0, pipeline.folder)  # so are modules beside the pipeline's file found
    _check_source(pipeline)
    for label, stage in zip(pipeline.labels, pipeline.stages, strict=True):
        try:
            _check_stage(stage, pipeline, imports=imports)
        except (BadOption, MissingInput, NotExecutable) as error:
            raise error.__class__(f"stage {label}: {error}") from error
    _check_sink(pipeline, run)


def _check_source(pipeline: Pipeline) -> None:
    if not isinstance(pipeline.source, Files):
        return
    path = pipeline.path(pipeline.source.path)
    if pipeline.source.stream and path.is_dir():
        return  # it may be empty: what is not there yet will come
    for file in find_inputs(path):
        if not os.access(file, os.R_OK):
            raise MissingInput(f"{file} may not be read")
    outputs = [pipeline.path(folder).resolve() for folder in pipeline.outputs]
    if any(output == path.resolve() or path.resolve() in output.parents for output in outputs):
        raise BadOption(f"the output would be written into its own input {path}")


def _check_stage(stage: Stage, pipeline: Pipeline, *, imports: bool) -> None:
    folder = Path(pipeline.folder)
    for reference in _functions(stage):
        (load_function if imports else look_for)(reference, folder)
    if isinstance(stage, Aggregate) and stage.custom:
        (load_aggregate if imports else look_for)(stage.aggregate, folder)
    if isinstance(stage, Join):
        find_inputs(pipeline.path(stage.join.source.path))
    if isinstance(stage, Command):
        check_command(stage, folder)


def _functions(stage: Stage) -> Iterator[Any]:
    picks: list[Pick] = []
    if isinstance(stage, Filter):
        yield stage.filter
    elif isinstance(stage, FlatMap):
        yield stage.flat_map
    elif isinstance(stage, Map | KeyBy):
        picks = [stage.pick]
    elif isinstance(stage, Aggregate):
        picks = [stage.number, *([stage.spans.time] if stage.spans else [])]
    yield from (pick.of for pick in picks if pick.kind == "function")


def check_command(stage: Command, folder: Path) -> None:
    """Raises `NotExecutable`."""
    executable = stage.arguments[0]
    if "/" not in executable:
        if shutil.which(executable) is None:
            near = f"; {folder / executable} is there: write ./{executable}" if (folder / executable).exists() else ""
            raise NotExecutable(f"there is no command {executable!r} on the PATH{near}")
        return
    path = folder.absolute() / executable
    if not path.is_file():
        raise NotExecutable(f"there is no command {path}")
    if not os.access(path, os.X_OK):
        raise NotExecutable(f"{path} is not executable: chmod +x {path}")


def _check_sink(pipeline: Pipeline, run: str) -> None:
    for relative in pipeline.outputs:
        folder = pipeline.path(relative)
        if not folder.parent.is_dir():
            raise MissingInput(f"there is no folder {folder.parent} to write {folder.name} in")
        if folder.exists() and not folder.is_dir():
            raise OutputExists(f"the output {folder} is a file; output is a folder of part-* files")
        if pipeline.sink.overwrite or pipeline.streaming or Output(folder, run).committed():
            continue
        if folder.is_dir() and any(folder.iterdir()):
            raise OutputExists(f"the output {folder} is there already: remove it, or set overwrite = true in the sink")
