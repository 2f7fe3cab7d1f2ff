"""What can be seen to be wrong with a pipeline before anything runs: missing inputs, commands, functions; output in
the way."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenure.jobs.pipelines.errors import BadOption, BadRecord, MissingInput, NotExecutable, OutputExists
from tenure.jobs.pipelines.folds import load_aggregate
from tenure.jobs.pipelines.functions import load_function, look_for
from tenure.jobs.pipelines.lines import Input, find_inputs
from tenure.jobs.pipelines.output import Output
from tenure.jobs.pipelines.picks import Pick
from tenure.jobs.pipelines.records import csv_columns
from tenure.jobs.pipelines.sources import Csv, Files
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import Aggregate, Command, Filter, FlatMap, Join, KeyBy, Map, Stage, Table

__all__ = ["check", "check_command", "check_key"]


def check(pipeline: Pipeline, run: str = "", *, imports: bool = True) -> None:
    """Raises a `Mistake` by name, with the stage that it is about; `BadRecord` for headers of CSV files that don't fit
    (a stream's are looked at as they come). Output of this very run is not in its way.

    Without `imports`, no code of the user's is run: its functions are looked for only.
    """
    if not Path(pipeline.folder).is_dir():
        raise MissingInput(f"there is no folder {pipeline.folder} for the pipeline's paths")
    if imports and pipeline.folder not in sys.path:
        sys.path.insert(0, pipeline.folder)  # so are modules beside the pipeline's file found
    _check_source(pipeline)
    for label, stage in zip(pipeline.labels, pipeline.stages, strict=True):
        try:
            _check_stage(stage, pipeline, imports=imports)
        except (BadOption, BadRecord, MissingInput, NotExecutable) as error:
            raise error.__class__(f"stage {label}: {error}") from error
    _check_sink(pipeline, run)


def _check_source(pipeline: Pipeline) -> None:
    if not isinstance(pipeline.source, Files):
        return
    path = pipeline.path(pipeline.source.path)
    if pipeline.source.stream and path.is_dir():
        return  # it may be empty: what is not there yet will come
    inputs = _readable(path)
    if isinstance(pipeline.source, Csv) and not pipeline.source.stream:
        csv_columns(pipeline.source, inputs)
    outputs = [pipeline.path(folder).resolve() for folder in pipeline.outputs]
    if any(output == path.resolve() or path.resolve() in output.parents for output in outputs):
        raise BadOption(f"the output would be written into its own input {path}")


def _readable(path: Path) -> list[Input]:
    inputs = find_inputs(path)
    for file in inputs:
        if not os.access(file, os.R_OK):
            raise MissingInput(f"{file} may not be read")
    return inputs


def _check_stage(stage: Stage, pipeline: Pipeline, *, imports: bool) -> None:
    folder = Path(pipeline.folder)
    for reference in _functions(stage):
        (load_function if imports else look_for)(reference, folder)
    if isinstance(stage, Aggregate) and stage.custom:
        (load_aggregate if imports else look_for)(stage.aggregate, folder)
    if isinstance(stage, Join):
        _check_table(stage.join, pipeline)
    if isinstance(stage, Command):
        check_command(stage, folder)


def _check_table(table: Table, pipeline: Pipeline) -> None:
    path, source = pipeline.path(table.source.path), table.source
    inputs = _readable(path)
    if isinstance(source, Csv):
        check_key(table, csv_columns(source, inputs), path)


def check_key(table: Table, columns: Sequence[str], path: Path) -> None:
    """Raises `BadOption` if these columns of a table lack the one with its key."""
    if table.key not in columns:
        raise BadOption(f"the table {path} has no column {table.key!r}; there are {', '.join(columns)}")


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
