"""A declared pipeline: a source, named stages, a sink. The same in Python and in TOML."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr

from tenure.jobs.pipelines.autoscale import Autoscale
from tenure.jobs.pipelines.errors import BadOption, MissingInput
from tenure.jobs.pipelines.functions import name_of
from tenure.jobs.pipelines.hashing import HASHES
from tenure.jobs.pipelines.nearest import nearest
from tenure.jobs.pipelines.parse import known_options, one_of, wanted
from tenure.jobs.pipelines.sinks import Sink
from tenure.jobs.pipelines.sources import SOURCES, Source, TopicSource
from tenure.jobs.pipelines.stages import STAGES, Stage, Table

__all__ = ["Pipeline", "load_pipeline"]


class Pipeline(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is read, what is done to it, where the result goes. Whatever is wrong with that is said at once, by name.

    Source, stages and sink are the structs of `tenure.jobs.pipelines`, or the same as TOML has them:
    `stages=[{"grep": "hello"}]`.
    """

    name: str
    source: Source
    stages: list[Stage] = []
    sink: Sink
    hash: str = "fnv1a"
    """By which records are given to the tasks of a stage: fnv1 or fnv1a, both of 32 bits."""
    exactly_once: bool = True
    """Each result counts once, whatever is killed. Without it, a stream may repeat results after a crash."""
    processed: str | None = None
    """A folder for logs of processed keys: per task of a stage, a line `PROCESSED,<key>` each."""
    state: str | None = None
    """A folder for what a stream remembers from run to run; `.NAME.state` if it is not said."""
    autoscale: Autoscale | None = None
    """Of a stream: how many tasks its stages have, by how fast records come."""
    master: str = "local[*]"
    """Where Spark runs."""
    spark: dict[str, str] = field(default_factory=dict)
    """Further settings of Spark, by their names there."""
    folder: str = "."
    """What paths are relative to."""

    def __post_init__(self) -> None:
        if not self.name or not set(self.name).isdisjoint("/\n\0"):
            raise BadOption(f"name = {self.name!r}: a pipeline needs a name, on one line and without a slash")
        force_setattr(self, "source", _source(self.source))
        force_setattr(self, "stages", [_stage(number, stage) for number, stage in enumerate(self.stages, 1)])
        force_setattr(self, "sink", _sink(self.sink))
        force_setattr(self, "autoscale", _autoscale(self.autoscale))
        if self.autoscale is not None and not self.streaming:
            raise BadOption("autoscale is for streams: add stream = true to the source, or leave it out")
        if self.hash not in HASHES:
            raise BadOption(f"there is no hash {self.hash!r}{nearest(self.hash, HASHES)}")
        if len(set(self.outputs)) != len(self.outputs):
            raise BadOption(f"results and logs of processed keys can't share the folder {self.processed!r}")
        labels = self.labels
        if len(set(labels)) != len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise BadOption(f"two stages are called {twice!r}")

    @property
    def labels(self) -> list[str]:
        """What the stages are called."""
        return [stage.name or f"{number}-{stage.kind}" for number, stage in enumerate(self.stages, 1)]

    @property
    def streaming(self) -> bool:
        """Whether it goes on with what comes."""
        return bool(getattr(self.source, "stream", True))

    def changed(self, *, master: str | None = None, overwrite: bool | None = None) -> "Pipeline":
        """The same pipeline elsewhere, or with leave to replace its output. None: as it is."""
        sink = self.sink if overwrite is None else msgspec.structs.replace(self.sink, overwrite=overwrite)
        return msgspec.structs.replace(self, master=master or self.master, sink=sink)

    def declared(self) -> dict[str, Any]:
        """The table that declares it, made of what JSON can hold. Raises `NotPicklable` for a function without a name
        that other processes can import."""
        found: dict[str, Any] = msgspec.to_builtins(self, enc_hook=name_of)
        found.pop("folder")
        return found

    @property
    def outputs(self) -> list[str]:
        """All folders that it writes results or logs in."""
        return [*self.sink.folders, *([self.processed] if self.processed else [])]

    @property
    def needs_job(self) -> bool:
        """Whether it can be run by a job only: topics are for jobs."""
        return self.sink.topic is not None or isinstance(self.source, TopicSource)

    @property
    def state_folder(self) -> Path:
        """Where a stream remembers."""
        return self.path(self.state or f".{self.name}.state")

    def path(self, relative: str) -> Path:
        """A path of the pipeline, as an absolute one."""
        return Path(self.folder).absolute() / relative


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline that a TOML file declares; its paths are relative to the file. Raises a `Mistake` by name."""
    path = Path(path)
    try:
        declared = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MissingInput(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadOption(f"{path} is no TOML: {error}") from error
    return pipeline_of(declared, folder=path.absolute().parent)


def pipeline_of(declared: Mapping[str, Any], *, folder: str | Path) -> Pipeline:
    """The pipeline that a table declares. Raises a `Mistake` by name."""
    known = [name for name in Pipeline.__struct_fields__ if name != "folder"]
    known_options(declared, known, "a pipeline")
    for name in ("name", "source", "sink"):
        if name not in declared:
            raise BadOption(f"a pipeline needs a {name}")
    plain = {name: value for name, value in declared.items() if name not in PARTS}
    parts = {name: declared[name] for name in PARTS if name in declared}
    if not isinstance(parts.get("stages", []), list):
        raise BadOption('stages is a list: stages = [{ grep = "hello" }]')
    checked = wanted(plain, _Plain, "the pipeline")
    options = {name: getattr(checked, name) for name in plain}
    return Pipeline(**options, **parts, folder=str(folder))


PARTS = ("source", "stages", "sink", "autoscale")


class _Plain(Struct, frozen=True, kw_only=True):
    """The options of a pipeline that are plain values, to check their types."""

    name: str
    hash: str = ""
    exactly_once: bool = True
    processed: str | None = None
    state: str | None = None
    master: str = ""
    spark: dict[str, str] = {}


def _source(given: Any) -> Source:
    return given if isinstance(given, Source) else one_of(given, SOURCES, "source", "source")


def _stage(number: int, given: Any) -> Stage:
    if isinstance(given, Mapping) and isinstance(table := given.get("join"), Mapping):
        known_options(table, Table.__struct_fields__, f"stage {number} (join): the table")
    return given if isinstance(given, Stage) else one_of(given, STAGES, "stage", f"stage {number}")


def _autoscale(given: Any) -> Autoscale | None:
    if given is None or isinstance(given, Autoscale):
        return given
    if not isinstance(given, Mapping):
        raise BadOption(f"autoscale = {given!r} is no table: write {{ low = 100, high = 1000, tasks_max = 8 }}")
    known_options(given, Autoscale.__struct_fields__, "autoscale")
    return wanted(given, Autoscale, "autoscale")


def _sink(given: Any) -> Sink:
    if isinstance(given, Sink):
        return given
    if not isinstance(given, Mapping):
        raise BadOption(f'sink = {given!r} is no table: write {{ text = "folder", console = true }}')
    known_options(given, Sink.__struct_fields__, "a sink")
    return wanted(given, Sink, "sink")
