"""A pipeline over what comes, batch by batch, on Spark's Structured Streaming.

    source ──feeder──► chunks (numbered, written once) ──Spark, one a batch──► stages ──► state, output ──► done

A chunk is a batch, whoever processes it and however often: what it is made of is written down before, and what comes
of it depends on nothing but the chunk and the state after the chunk before it. Output and state appear by renames,
under the batch's number; the last thing that is written says that the batch is done. So a batch that was interrupted
is done again, and comes out the same; one that is done is passed over.
"""

import shutil
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tenure.jobs.pipelines.feeder import Feeder
from tenure.jobs.pipelines.growing import Growing
from tenure.jobs.pipelines.intake import NUL, Chunk, Intake, chunk_of
from tenure.jobs.pipelines.ledger import Ledger
from tenure.jobs.pipelines.sources import Files, Source, TopicSource
from tenure.jobs.pipelines.spec import Pipeline
from tenure.jobs.pipelines.stages import Aggregate
from tenure.jobs.pipelines.stream_output import StreamOutput
from tenure.jobs.pipelines.topics import TOPIC_RESULTS, TopicFiles
from tenure.jobs.reporting import Reporter
from tenure.jobs.spark.printing import print_batch
from tenure.jobs.spark.processed import ProcessedLog
from tenure.jobs.spark.progress import Rate
from tenure.jobs.spark.scaling import Scaling
from tenure.jobs.spark.sources import parsed
from tenure.jobs.spark.stages import Context, apply
from tenure.jobs.spark.stateful import Remembering
from tenure.jobs.spark.writing import CONSOLE, TOPIC, print_text, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Stream", "run_stream"]

LOOK_EVERY_S = 0.1


def run_stream(
    spark: "SparkSession", pipeline: Pipeline, reporter: Reporter, console: IO[str] | None = None
) -> dict[str, Any]:
    """Run it until its source has ended, or it is cancelled; what came out."""
    ledger = Ledger(pipeline.state_folder)
    with ExitStack() as stack:
        stack.enter_context(ledger.held(pipeline))
        outputs = {}
        folders = {folder: pipeline.path(folder) for folder in pipeline.outputs}
        if pipeline.sink.topic is not None:
            folders[TOPIC] = ledger.folder / TOPIC_RESULTS
        for name, folder in folders.items():
            output = StreamOutput(folder, ledger.stream, sync=pipeline.exactly_once)
            stack.callback(output.abandon)
            output.open(pipeline.name, overwrite=pipeline.sink.overwrite)
            outputs[name] = output
        stream = Stream(spark, pipeline, ledger, outputs, reporter, console)
        reporter.on_cancel(stream.stopping.set)
        return stream.run()


class Stream:
    """One run of a stream."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: Pipeline,
        ledger: Ledger,
        outputs: dict[str, StreamOutput],
        reporter: Reporter,
        console: IO[str] | None,
    ) -> None:
        assert isinstance(pipeline.source, Files | TopicSource)
        self._spark, self._pipeline, self._ledger, self._outputs = spark, pipeline, ledger, outputs
        self._reporter, self._console = reporter, console
        self._intake = Intake(ledger.folder)
        self._source = pipeline.source
        self._topic: TopicFiles | None = None
        if isinstance(self._source, TopicSource):
            self._topic = TopicFiles(ledger.folder, self._source.topic)
            self._feeder = Feeder(self._source, self._topic, self._intake)
        else:
            growing = Growing(self._source, pipeline.path(self._source.path), self._intake.columns)
            self._feeder = Feeder(self._source, growing, self._intake)
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._batches = self._records = self._results = self._late = 0
        self._rate = Rate(self._began)
        self._scaling = Scaling(pipeline, time.monotonic())
        self.stopping = threading.Event()
        """Set it to have the stream stop after the batch that is under way."""

    def run(self) -> dict[str, Any]:
        """Until the end. Raises what went wrong in a batch, or in the source."""
        self._reporter.started(stream=self._ledger.stream)
        if last := self._ledger.last():
            # An earlier attempt may have been killed before it told.
            self._reporter.metrics(batches_done=last.number + 1)
            self._feeder.done(last.number)
        query = self._query()
        feeding = threading.Thread(target=self._feeder.run, name="tenure-feeder", daemon=True)
        feeding.start()
        try:
            while not self.stopping.wait(LOOK_EVERY_S) and query.isActive and not self._feeder.error:
                if not feeding.is_alive() and self._is_done():
                    break
        finally:
            self._feeder.stopping.set()
            feeding.join()
            query.stop()
        # A batch that was under way when the source failed says only that it was interrupted.
        if error := self._feeder.error or self._error or query.exception():
            raise error
        return {
            "batches": self._batches,
            "batches_done": done.number + 1 if (done := self._ledger.last()) else 0,
            "records_in": self._records,
            "records": self._results,
            "late": self._late,
            "seconds": round(time.monotonic() - self._began, 3),
        }

    def _is_done(self) -> bool:
        return self._intake.last < 0 or self._ledger.done(self._intake.last) is not None

    def _query(self) -> Any:
        checkpoint = self._ledger.folder / "spark"
        _clear_unbegun(checkpoint)
        chunks = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._intake.chunks))
        writer = chunks.writeStream.option("checkpointLocation", str(checkpoint))
        return writer.foreachBatch(self._process_and_keep_error).start()

    def _process_and_keep_error(self, lines: "DataFrame", spark_batch: int) -> None:
        try:
            self._process(lines)
        except BaseException as error:
            self._error = self._error or error
            raise

    def _process(self, lines: "DataFrame") -> None:
        from pyspark.sql import functions as F

        for head in lines.filter(F.startswith("value", F.lit(NUL))).collect():
            chunk = chunk_of(head["value"].encode())
            if self._ledger.done(chunk.number) is None:
                self._process_chunk(chunk, lines)
            self._feeder.done(chunk.number)
            self._intake.forget(chunk.number - 1)
            if self._topic is not None:
                self._topic.forget(self._intake.places)

    def _process_chunk(self, chunk: Chunk, lines: "DataFrame") -> None:
        remembering = Remembering(self._ledger, chunk)
        self._reporter.stage("batch", batch=chunk.number)
        with ExitStack() as stack:
            places = {folder: stack.enter_context(out.batch(chunk.number)) for folder, out in self._outputs.items()}
            logs = places.pop(str(self._pipeline.processed), None)
            processed = None if logs is None else ProcessedLog(logs, _log_suffix(chunk))
            results, whole = self._results_of(chunk, lines, remembering, processed)
            if self._pipeline.sink.console and self._pipeline.sink.text is None:
                places[CONSOLE] = self._ledger.folder / "console"
            count = write(self._pipeline, results, places, single=True)
            if processed is not None:
                processed.close()
            if self._pipeline.exactly_once:
                self._reporter.confirm()
            text = self._commit(chunk, places, logs, whole=whole)
            if self._pipeline.sink.console and text is not None:
                self._print(chunk.number, text)
            self._ledger.mark(remembering.batch(count))
        self._tell(chunk, count, remembering.late, whole=whole)

    def _commit(self, chunk: Chunk, places: dict[str, Path], logs: Path | None, *, whole: bool) -> Path | None:
        """Let a batch's results appear; the text among them, if there is any."""
        text = places.get(CONSOLE)
        for folder, output in self._outputs.items():
            if folder == self._pipeline.processed:
                assert logs is not None
                output.commit_files(logs, _log_suffix(chunk))
                continue
            path = output.commit(chunk.number, places[folder], whole=whole and folder != TOPIC)
            text = path if folder == self._pipeline.sink.text else text
        return text

    def _print(self, number: int, text: Path) -> None:
        if self._console is None:
            print_text(text, sys.stdout)  # others write there too
        else:
            print_batch(self._ledger.folder, number, text, self._console)

    def _results_of(
        self, chunk: Chunk, lines: "DataFrame", remembering: Remembering, processed: ProcessedLog | None
    ) -> "tuple[DataFrame, bool]":
        """The results, and whether they are the whole result anew: so they are behind an aggregate without windows."""
        records = _records(lines, self._source, chunk.columns or self._intake.columns)
        whole = False
        stages = self._scaling.stages(chunk.records, time.monotonic())
        for label, stage in zip(self._pipeline.labels, stages, strict=True):
            context = Context(lines.sparkSession, self._pipeline, label, processed)
            if not isinstance(stage, Aggregate) or whole:
                records = apply(stage, records, context)
            elif stage.window is not None:
                records = remembering.windows(stage, records, context)
            else:
                records, whole = remembering.whole(stage, records, context), True
        return records.select("key", "value"), whole

    def _tell(self, chunk: Chunk, count: int, late: int, *, whole: bool) -> None:
        self._batches += 1
        self._records += chunk.records
        self._results = count if whole else self._results + count
        self._late += late
        self._reporter.metrics(
            records_read=self._records,
            records_per_s=self._rate.at(self._records, time.monotonic()),
            records_written=self._results,
            batches=self._batches,
            batches_done=chunk.number + 1,
            late_records=self._late,
        )
        if (tasks := self._scaling.tasks) is not None:
            self._reporter.metrics(tasks=tasks)


def _log_suffix(chunk: Chunk) -> str:
    return f".{chunk.number:09}.log"


def _clear_unbegun(checkpoint: Path) -> None:
    """Killed while it wrote down its first batch, Spark leaves a file that it then takes for another query's."""
    if checkpoint.exists() and not any(path.name.isdecimal() for path in (checkpoint / "offsets").glob("*")):
        shutil.rmtree(checkpoint)


def _records(lines: "DataFrame", source: Source, columns: list[str] | None) -> "DataFrame":
    from pyspark.sql import functions as F

    mark = F.lit(NUL)
    records = lines.filter(~F.startswith("value", mark))
    key = F.substring_index("value", NUL, 1)
    value = F.col("value").substr(F.length(key) + 2, F.length("value"))
    return parsed(source, records.select(key.alias("key"), value.alias("value")), columns)
