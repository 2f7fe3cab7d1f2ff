"""Spark jobs: `import tenure.jobs.spark.types` (or `from tenure.jobs import PipelineJob`) in an application lets its
nodes run them.

    pipeline = load_pipeline("hello.toml")
    await client.schedule(PipelineJob, id="hello", **parameters(pipeline), cron="0 3 * * *")
    await client.schedule(SparkJob, id="report", function="reports:monthly", arguments=["2026-03"])
"""

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from tenure.jobs.activity_job import ActivityJob, Order
from tenure.jobs.pipelines.sources import TopicSource
from tenure.jobs.pipelines.spec import Pipeline, pipeline_of
from tenure.jobs.pipelines.topics import TOPIC_RESULTS, read_some, write_messages
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.context import Context
from tenure.scheduler.errors import PickledJobsRefused, WrongType
from tenure.scheduler.jobtype import job

__all__ = ["PipelineJob", "SparkJob", "parameters"]

UNWRITTEN_CHARS_MAX = 2**20
PUBLISHED_AT_ONCE_MAX = 500


def parameters(pipeline: Pipeline) -> dict[str, Any]:
    """The parameters of the `PipelineJob` that runs a pipeline. Raises `NotPicklable` for a function without a name."""
    return {"pipeline": pipeline.declared(), "folder": str(Path(pipeline.folder).absolute())}


@job("pipeline")
class PipelineJob(ActivityJob, kw_only=True):
    """A declared pipeline, run by Spark outside the node, once for each start. Its result is in `last`, and goes to
    the jobs that come after it. See `ActivityJob` for when it is started.

    An order may replace parts of the declaration: `{"start": {"source": {"text": "monday.txt"}}}`, and name a file
    for what goes to the console: `{"start": {"console": "/tmp/results"}}`.
    """

    kind: ClassVar[str] = "spark"

    pipeline: dict[str, Any]
    """The pipeline, as TOML has it."""
    folder: str
    """What its paths are relative to; the same on every node's machine."""
    warm: bool = False
    """Have it run by a driver that is kept ready for the next one too. It starts at once; its Spark is shared."""

    taken: int = 0
    """So many messages of the source's topic are in files."""
    untaken: list[str] = []
    """Those that came after them."""
    outgoing: list[str] = []
    """Files with results for the sink's topic, and how far the first of them is published."""
    outgoing_at: int = 0
    published: list[str] = []
    """Files whose results are published: to be removed, once that is committed."""
    batches: int = 0
    """So many batches of a stream are in `outgoing`, or were."""

    def work(self, start: dict[str, Any]) -> Any:
        declared = {**self.pipeline, **{name: value for name, value in start.items() if name != "console"}}
        pipeline_of(declared, folder=self.folder)
        work = SparkWork(pipeline=declared, folder=self.folder, warm=self.warm, console=start.get("console", ""))
        return msgspec.to_builtins(work)

    @property
    def declared(self) -> Pipeline:
        """The pipeline."""
        return pipeline_of(self.pipeline, folder=self.folder)

    @property
    def tells_progress(self) -> bool:
        """Whether this job is to hear of each batch."""
        return self.declared.streaming and self.declared.sink.topic is not None

    def on_start(self, ctx: Context) -> None:
        super().on_start(ctx)
        if isinstance(source := self.declared.source, TopicSource):
            ctx.subscribe(source.topic)

    def on_message(self, ctx: Context, message: Any) -> Any:
        if ctx.message.topic:
            return self._take(ctx, message)
        if isinstance(message, dict) and message.keys() == {"write"}:
            return self._write(ctx, message["write"])
        if message == {"publish": True}:
            return self._publish(ctx)
        try:
            return super().on_message(ctx, msgspec.convert(message, Order))
        except msgspec.ValidationError as error:
            raise WrongType(f"a message to pipeline {ctx.id!r} is an order: {error}") from error

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        super().on_activity(ctx, event)
        sink = self.declared.sink
        if sink.topic is None or event.status not in ("progress", "succeeded"):
            return
        if self.declared.streaming:
            found = event.result or {} if event.status == "succeeded" else event.details.get("metrics", {})
            batches = int(found.get("batches_done", 0))
            folder = self.declared.state_folder / TOPIC_RESULTS
            self.outgoing += [str(folder / f"part-{number:09}") for number in range(self.batches, batches)]
            self.batches = max(self.batches, batches)
        else:
            self.outgoing += event.result["topic_results"]
        if self.outgoing:
            ctx.send(ctx.id, {"publish": True})

    # -- a topic as source ------------------------------------------------------------------------

    def _take(self, ctx: Context, message: Any) -> None:
        """Keep it until it is committed: only then does the word to write it arrive."""
        before = sum(map(len, self.untaken))
        self.untaken.append(msgspec.json.encode(message).decode())
        is_much = before <= UNWRITTEN_CHARS_MAX < before + len(self.untaken[-1])
        if len(self.untaken) == 1 or is_much:
            self._have_written(ctx)

    def _have_written(self, ctx: Context) -> None:
        ctx.send(ctx.id, {"write": self.taken + len(self.untaken)})

    def _write(self, ctx: Context, until: Any) -> None:
        """Write the messages before this number. Those after it may be in the same draft as this turn, and another
        owner may take others in their place."""
        if isinstance(until, bool) or not isinstance(until, int):
            return self._have_written(ctx)
        if committed := self.untaken[: max(0, until - self.taken)]:
            count = write_messages(self.declared.state_folder, self.taken, committed)
            self.taken += count
            self.untaken = self.untaken[count:]
            if self.untaken:
                self._have_written(ctx)
        return None

    # -- a topic as sink --------------------------------------------------------------------------

    def _publish(self, ctx: Context) -> None:
        """Some results: as many as a turn should send. The next turn goes on."""
        topic = self.declared.sink.topic
        assert topic is not None
        for path in self.published:
            Path(path).unlink(missing_ok=True)
        self.published = []
        if not self.outgoing:
            return
        path = self.outgoing[0]
        lines, self.outgoing_at = read_some(Path(path), self.outgoing_at, PUBLISHED_AT_ONCE_MAX)
        for line in lines:
            ctx.publish(topic, msgspec.json.decode(line))
        if len(lines) < PUBLISHED_AT_ONCE_MAX:
            self.published.append(self.outgoing.pop(0))
            self.outgoing_at = 0
        ctx.send(ctx.id, {"publish": True})


@job("spark")
class SparkJob(ActivityJob, kw_only=True):
    """A PySpark function or script, run outside the node, once for each start.

    The function is called with a session, then the arguments; what it returns, made of what JSON can hold, is the
    job's result; `tenure.jobs.spark.current_reporter()` lets it tell how far it is, and ask whether it still counts.
    A script makes its own session, with the job's settings as defaults, and its own `Reporter.from_environment()`.
    """

    kind: ClassVar[str] = "spark"
    allow_pickled: ClassVar[bool] = False
    """Set it in the application to let clients send functions as pickles: whoever may schedule then runs any code."""

    function: str = ""
    """`module:function`, or `file.py:function` in `folder`."""
    pickled: bytes = b""
    """Instead: the function, by `cloudpickle.dumps`."""
    script: str = ""
    """Instead: a Python file in `folder`."""
    arguments: list[Any] = []
    """Of a script, texts."""
    folder: str = "."
    """Where modules, files and relative paths are."""
    master: str = "local[*]"
    spark: dict[str, str] = {}
    """Settings of Spark, resources among them: `{"spark.executor.memory": "4g"}`."""
    warm: bool = False
    """Have a function run by a driver that is kept ready for the next one too. It starts at once; its Spark is
    shared."""

    def work(self, start: dict[str, Any]) -> Any:
        names = ("function", "script", "arguments", "folder", "master", "spark", "warm")
        own = {name: getattr(self, name) for name in names}
        if self.pickled or start.get("pickled"):
            if not self.allow_pickled:
                raise PickledJobsRefused(
                    "this application runs no pickled Spark functions: name one with function =, "
                    "or set SparkJob.allow_pickled = True in it"
                )
            own["pickled"] = self.pickled
        try:
            work = msgspec.convert({**own, **start}, SparkWork)
        except msgspec.ValidationError as error:
            raise WrongType(f"a Spark job can't be started so: {error}") from error
        return msgspec.to_builtins(work)
