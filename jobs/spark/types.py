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
from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.sources import TopicSource
from tenure.jobs.pipelines.spec import Pipeline, pipeline_of
from tenure.jobs.pipelines.topics import TOPIC_RESULTS, read_some, write_messages
from tenure.jobs.spark.work import SparkWork
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.context import Context
from tenure.scheduler.errors import PickledJobsRefused, WrongType
from tenure.scheduler.jobtype import job
from tenure.scheduler.topic import Topic

__all__ = ["PipelineJob", "SparkJob", "parameters"]

UNWRITTEN_CHARS_MAX = 2**20
PUBLISHED_AT_ONCE_MAX = 500
STREAM_HEALTHY_AFTER_S = 600.0
"""Longer than it takes to do a batch again, and to notice that a driver is gone."""
STREAMS_KEPT_MAX = 100
"""So many streams are remembered, of those that a job's orders have named."""


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
    outgoing_topics: dict[str, str] = {}
    """Of those that are for another topic, by the order of their run: which one."""
    published: list[str] = []
    """Files whose results are published: to be removed, once that is committed."""
    batches: int = 0
    """So many batches of a stream are in `outgoing`, or were;"""
    stream: str = ""
    """the stream's id,"""
    batches_before: dict[str, int] = {}
    """and the batches of others that this job has run, by their ids."""
    replaced: dict[str, Any] = {}
    """What the order of the last run has replaced in the declaration."""

    def work(self, start: dict[str, Any]) -> Any:
        replaced = _replaced(start)
        pipeline = pipeline_of({**self.pipeline, **replaced}, folder=self.folder)
        if replaced and isinstance(pipeline.source, TopicSource):
            self._check_topic(pipeline, pipeline.source)
        work = SparkWork(
            pipeline={**self.pipeline, **replaced},
            folder=self.folder,
            warm=self.warm,
            console=start.get("console", ""),
        )
        return msgspec.to_builtins(work)

    def _check_topic(self, pipeline: Pipeline, source: TopicSource) -> None:
        own = self.declared
        if not isinstance(own.source, TopicSource) or own.source.topic != source.topic:
            raise BadOption(
                f"an order can't have pipeline {own.name!r} read topic {source.topic!r}, which its job does not take "
                "messages of: schedule another job with this source"
            )
        if own.state_folder != pipeline.state_folder:
            raise BadOption(
                f"an order can't give pipeline {own.name!r} the state {pipeline.state_folder}: messages of its topic "
                f"are kept in {own.state_folder}; schedule another job with this state"
            )

    @property
    def declared(self) -> Pipeline:
        """The pipeline."""
        return pipeline_of(self.pipeline, folder=self.folder)

    @property
    def running(self) -> Pipeline:
        """The pipeline as it runs, or ran last: with what the order has replaced."""
        return pipeline_of({**self.pipeline, **self.replaced}, folder=self.folder)

    @property
    def tells_progress(self) -> bool:
        """Whether this job is to hear of each batch."""
        return (running := self.running).streaming and running.sink.topic is not None

    @property
    def healthy_after_s(self) -> float | None:
        """A stream has no end: failures that are far apart are not one that can't be mended."""
        return STREAM_HEALTHY_AFTER_S if self.running.streaming else None

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
        running = self.running
        super().on_activity(ctx, event)  # it may begin the next
        if running.sink.topic is None:
            return
        found = self._batches(running, event) if running.streaming else _results(event)
        self.outgoing += found
        if running.sink.topic != self.declared.sink.topic:
            self.outgoing_topics |= dict.fromkeys(found, running.sink.topic)
        if self.outgoing:
            ctx.send(ctx.id, {"publish": True})

    def _begin(self, ctx: Context, start: dict[str, Any]) -> dict[str, Any]:
        self.replaced = _replaced(start)
        return super()._begin(ctx, start)

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

    def _batches(self, running: Pipeline, event: ActivityEvent) -> list[str]:
        """Files of batches that are done, and were not known to be. Whatever becomes of the run, they are."""
        folder = running.state_folder / TOPIC_RESULTS
        self._follow(event.details.get("info", {}).get("stream", ""), folder)
        found = event.details.get("metrics", {}) | (event.result or {})
        batches = int(found.get("batches_done", 0))
        known, self.batches = self.batches, max(self.batches, batches)
        return [str(folder / f"part-{number:09}") for number in range(known, batches)]

    def _follow(self, stream: str, folder: Path) -> None:
        """Count the batches of this stream. One that is new has begun anew where another one's state was removed."""
        if stream in ("", self.stream):
            return
        if self.stream:
            self.batches_before[self.stream] = self.batches
            if stream not in self.batches_before:
                self._forget_outgoing(folder)
            self.batches = self.batches_before.pop(stream, 0)
            for oldest in list(self.batches_before)[:-STREAMS_KEPT_MAX]:
                del self.batches_before[oldest]
        self.stream = stream

    def _forget_outgoing(self, folder: Path) -> None:
        gone = {path for path in (*self.outgoing, *self.published) if Path(path).parent == folder}
        if self.outgoing and self.outgoing[0] in gone:
            self.outgoing_at = 0
        self.outgoing = [path for path in self.outgoing if path not in gone]
        self.published = [path for path in self.published if path not in gone]
        for path in gone:
            self.outgoing_topics.pop(path, None)

    def _publish(self, ctx: Context) -> None:
        """Some results: as many as a turn should send. The next turn goes on."""
        for path in self.published:
            Path(path).unlink(missing_ok=True)
        self.published = []
        if not self.outgoing:
            return
        path = self.outgoing[0]
        topic = self.outgoing_topics.get(path) or self.declared.sink.topic
        assert topic is not None
        lines, self.outgoing_at = read_some(Path(path), self.outgoing_at, PUBLISHED_AT_ONCE_MAX)
        for line in lines:
            ctx.publish(Topic(topic), msgspec.json.decode(line))
        if len(lines) < PUBLISHED_AT_ONCE_MAX:
            self.published.append(self.outgoing.pop(0))
            self.outgoing_topics.pop(path, None)
            self.outgoing_at = 0
        ctx.send(ctx.id, {"publish": True})


def _replaced(start: dict[str, Any]) -> dict[str, Any]:
    """What an order replaces in the declaration."""
    return {name: value for name, value in start.items() if name != "console"}


def _results(event: ActivityEvent) -> list[str]:
    """Files with the results of a batch pipeline, if it has ended well."""
    return list(event.result["topic_results"]) if event.status == "succeeded" else []


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
