"""What a run on Spark is to do, as its job tells its driver."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from tenure.jobs.pipelines.spec import Pipeline, pipeline_of
from tenure.scheduler.errors import Mistake

__all__ = ["SparkWork"]


class SparkWork(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The work of an activity of kind `spark`: one of a pipeline, a function, a pickle and a script."""

    pipeline: dict[str, Any] | None = None
    function: str = ""
    pickled: bytes = b""
    script: str = ""
    arguments: list[Any] = []
    folder: str = "."
    master: str = "local[*]"
    spark: dict[str, str] = {}
    warm: bool = False
    """Have it done by a warm driver."""
    console: str = ""
    """A file that a pipeline's console results are written to, instead of standard output."""

    def __post_init__(self) -> None:
        given = [self.pipeline is not None, bool(self.function), bool(self.pickled), bool(self.script)]
        if sum(given) != 1:
            raise Mistake("a Spark job needs one of function, pickled, script (and a PipelineJob a pipeline)")
        if self.script and not all(isinstance(argument, str) for argument in self.arguments):
            raise Mistake(f"the arguments of a script are texts, not {self.arguments!r}")

    def declared(self) -> Pipeline | None:
        """The pipeline, if it is one. Raises a `Mistake` by name."""
        return None if self.pipeline is None else pipeline_of(self.pipeline, folder=Path(self.folder))
