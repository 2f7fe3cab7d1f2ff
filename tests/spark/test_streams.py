"""Streams: in the end they have what a batch has, whatever breaks on the way."""

import threading
import time

import pytest
from msgspec import structs

from tenure.jobs.pipelines import (
    Aggregate,
    Csv,
    Grep,
    KeyBy,
    Map,
    Pipeline,
    Replace,
    Sink,
    Text,
    reference,
    stream_output,
)
from tenure.jobs.pipelines.errors import BadRecord, OutputExists, StateInUse, StateMismatch
from tenure.jobs.pipelines.ledger import Ledger
from tenure.jobs.pipelines.stream_output import StreamOutput
from tenure.jobs.spark import printing, stream
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.silent import SilentReporter
from tenure.jobs.spark.stream import run_stream
from tests.spark.helpers import FOLDER

LINES = [f"2026-01-01T00:00:{second:02} user{second % 3} {second}" for second in range(0, 60, 4)]
TIME, USER, NUMBER = {"regex": r"^(\S+)"}, {"regex": r" (\S+) "}, {"regex": r" (\d+)$"}
BY_USER = KeyBy(USER)
STAGES = {
    "stateless": [Grep("user1", tasks=2), Replace(("user", "u"))],
    "whole": [BY_USER, Aggregate("sum", of=NUMBER, tasks=2), Replace(("1", "one"))],
    "whole twice": [BY_USER, Aggregate("count"), KeyBy("value"), Aggregate("count")],
    "function": [BY_USER, Map(NUMBER), Aggregate(f"{FOLDER}/functions.py:longer")],
    "state": [BY_USER, Map(NUMBER), Aggregate(f"{FOLDER}/functions.py:Different", tasks=2)],
    "windows": [BY_USER, Aggregate("count", window="20s", time=TIME, tasks=2)],
    "sliding": [BY_USER, Aggregate("max", of=NUMBER, window="20s", slide="10s", time=TIME, late="5s")],
    "windows of a function": [
        BY_USER,
        Map(NUMBER),
        Aggregate(f"{FOLDER}/functions.py:longer", window="20s", time="value"),
    ],
    "windows with a state": [
        BY_USER,
        Map(NUMBER),
        Aggregate(f"{FOLDER}/functions.py:Sorted", window="20s", slide="10s", time="value"),
    ],
}


def pipeline(tmp_path, stages, **sink):
    source = Text("in", stream=True, idle_s=0.3, max_batch_records=6)
    sink = Sink(**({"text": "out"} | sink))
    return Pipeline(name="p", source=source, stages=stages, sink=sink, folder=str(tmp_path))


def run(spark, declared):
    return run_stream(spark, declared, SilentReporter("p"))


def write(tmp_path, name, lines):
    (tmp_path / "in").mkdir(exist_ok=True)
    with (tmp_path / "in" / name).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def found(tmp_path, folder="out"):
    lines = [line for part in (tmp_path / folder).glob("part-*") for line in part.read_text().splitlines()]
    return sorted(tuple(line.split(": ", 1)) for line in lines)


def in_python(declared):
    return sorted(reference.run(declared))


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_in_the_end_it_is_as_a_batch(spark, tmp_path, stages):
    declared = pipeline(tmp_path, stages)
    write(tmp_path, "a", LINES[:8])
    result = run(spark, declared)
    assert result["batches"] == 3  # 6 records, 2 records, the end
    write(tmp_path, "a", LINES[8:12])
    write(tmp_path, "b", LINES[12:])
    if any(stage.kind == "aggregate" and stage.window for stage in stages):
        return  # the windows were closed when the first part had ended
    assert run(spark, declared)["records_in"] == len(LINES) - 8
    assert found(tmp_path) == in_python(declared)
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out", ".p.state", "functions.py"}


@pytest.mark.parametrize("name", ["windows", "sliding", "windows of a function", "windows with a state"])
def test_windows_are_closed_as_time_goes_on_and_at_the_end(spark, tmp_path, name, monkeypatch):
    declared = pipeline(tmp_path, STAGES[name])
    write(tmp_path, "a", LINES)
    seen = []
    mark = Ledger.mark
    monkeypatch.setattr(Ledger, "mark", lambda self, batch: (seen.append(batch.results), mark(self, batch))[1])
    run(spark, declared)
    assert found(tmp_path) == in_python(declared)
    assert sum(count > 0 for count in seen) >= 2, f"windows came out as {seen}"


def test_what_comes_too_late_is_counted_and_kept_aside(spark, tmp_path):
    declared = pipeline(tmp_path, STAGES["windows"])
    write(tmp_path, "a", [*LINES[:12], "2026-01-01T00:00:01 user1 7", *LINES[12:]])
    result = run(spark, declared)
    assert result["late"] == 1
    in_time = dict(in_python(declared)) | {"user1@2026-01-01T00:00:00Z": str(len([0, 1]))}
    assert dict(found(tmp_path)) == in_time
    (late,) = (tmp_path / ".p.state" / "late").glob("*/*")
    assert [row["group"] for row in spark.read.parquet(str(late)).collect()] == ["user1"]


class Broken(Exception):
    """As if the process had been killed there."""


def breaking(monkeypatch, owner, name, at, *, after):
    """The method breaks when it is called for the at-th time: before it has done anything, or when it has."""
    original, calls = getattr(owner, name), []

    def broken(*arguments, **options):
        calls.append(1)
        if len(calls) == at and not after:
            raise Broken
        result = original(*arguments, **options)
        if len(calls) == at:
            raise Broken
        return result

    monkeypatch.setattr(owner, name, broken)


PLACES = [(Ledger, "mark"), (StreamOutput, "commit"), (stream, "write"), (Ledger, "done")]


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=lambda place: getattr(place, "__name__", place))
def test_wherever_it_breaks_the_output_is_the_same(spark, tmp_path, owner, name):
    declared = pipeline(tmp_path, STAGES["whole"])
    write(tmp_path, "a", LINES)
    for at, after in ((1, False), (2, True)):
        with pytest.MonkeyPatch.context() as monkeypatch:
            breaking(monkeypatch, owner, name, at, after=after)
            with pytest.raises(Broken):
                run(spark, declared)
    run(spark, declared)
    assert found(tmp_path) == in_python(declared)


def test_it_goes_on_from_a_first_batch_that_was_half_written_down(spark, tmp_path):
    declared = pipeline(tmp_path, STAGES["stateless"])
    write(tmp_path, "a", LINES)
    with pytest.MonkeyPatch.context() as monkeypatch:
        breaking(monkeypatch, stream.Stream, "_query", 1, after=False)
        with pytest.raises(Broken):
            run(spark, declared)
    offsets = tmp_path / ".p.state" / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.91f8.tmp").write_text("v1")
    run(spark, declared)
    assert found(tmp_path) == in_python(declared)
    assert not (offsets / ".0.91f8.tmp").exists()


def test_a_source_that_fails_is_what_is_told_not_the_batch_that_it_interrupts(spark, tmp_path, monkeypatch):
    declared = pipeline(tmp_path, STAGES["stateless"])
    write(tmp_path, "a", LINES)
    begun = threading.Event()
    process = stream.Stream._process_chunk

    def slow(self, chunk, lines):
        begun.set()
        assert self._feeder.stopping.wait(10)
        process(self, chunk, lines)

    def step(self):
        if not begun.is_set():
            return original(self)
        raise OSError("the disk is gone")

    original = stream.Feeder.step
    monkeypatch.setattr(stream.Stream, "_process_chunk", slow)
    monkeypatch.setattr(stream.Feeder, "step", step)
    with pytest.raises(OSError, match="the disk is gone"):
        run(spark, declared)


def test_results_appear_once_although_a_batch_is_done_twice(spark, tmp_path, capsys):
    declared = pipeline(tmp_path, STAGES["stateless"], console=True)
    write(tmp_path, "a", LINES)
    with pytest.MonkeyPatch.context() as monkeypatch:
        breaking(monkeypatch, StreamOutput, "commit", 1, after=True)
        with pytest.raises(Broken):
            run(spark, declared)
    run(spark, declared)
    assert found(tmp_path) == in_python(declared)
    assert len(capsys.readouterr().out.splitlines()) == len(in_python(declared))


class Full(Exception):
    """As if the process had been killed while it printed."""


@pytest.mark.parametrize(("name", "text"), [("stateless", None), ("whole", "out")])
def test_a_console_that_is_a_file_has_each_line_once(spark, tmp_path, name, text):
    declared = pipeline(tmp_path, STAGES[name], text=text, console=True)
    write(tmp_path, "a", LINES)
    undisturbed = structs.replace(declared, state="undisturbed", sink=Sink(console=True))
    with (tmp_path / "expected").open("a") as console:
        run_stream(spark, undisturbed, SilentReporter("p"), console)

    def half(place, console, *, skip_bytes=0):
        with place.open("rb") as file:
            console.buffer.write(file.read()[skip_bytes : skip_bytes + 7])
        console.flush()
        raise Full

    for is_half, break_at in [(False, 1), (True, 1), (False, 2)]:
        with pytest.MonkeyPatch.context() as monkeypatch, (tmp_path / "console").open("a") as console:
            if is_half:
                monkeypatch.setattr(printing, "print_text", half)
            else:
                breaking(monkeypatch, Ledger, "mark", break_at, after=False)
            with pytest.raises((Broken, Full)):
                run_stream(spark, declared, SilentReporter("p"), console)
    with (tmp_path / "console").open("a") as console:
        run_stream(spark, declared, SilentReporter("p"), console)
    assert (tmp_path / "console").read_text() == (tmp_path / "expected").read_text()


def test_what_was_done_is_told_again_when_nobody_may_have_heard_it(spark, tmp_path):
    declared = pipeline(tmp_path, STAGES["stateless"])
    write(tmp_path, "a", LINES[:3])
    said = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        breaking(monkeypatch, Ledger, "mark", 1, after=True)
        with pytest.raises(Broken):
            run(spark, declared)
        monkeypatch.setattr(SilentReporter, "_say", lambda self, line: said.append(line))
        monkeypatch.setattr(stream.Stream, "_query", lambda self: pytest.fail("not told before"))
        with pytest.raises(pytest.fail.Exception):
            run(spark, declared)
    assert {"metrics": {"batches_done": 1}} in said
    known = Ledger(declared.state_folder)
    with known.held(declared):
        assert {"started": True, "info": {"stream": known.stream}} in said


@pytest.mark.parametrize("exactly_once", [True, False])
def test_exactly_once_asks_the_job_and_waits_for_the_disk(spark, tmp_path, exactly_once, monkeypatch):
    asked, synced = [], []
    monkeypatch.setattr(SilentReporter, "confirm", lambda self: asked.append(1), raising=False)
    monkeypatch.setattr(stream_output, "_sync", synced.append)
    declared = structs.replace(pipeline(tmp_path, STAGES["stateless"]), exactly_once=exactly_once)
    write(tmp_path, "a", LINES)
    result = run(spark, declared)
    assert found(tmp_path) == in_python(declared)
    assert (len(asked), bool(synced)) == ((result["batches"], True) if exactly_once else (0, False))
    before = found(tmp_path)
    run(spark, declared)
    assert found(tmp_path) == before, "what is done is passed over all the same"


def test_it_goes_on_with_what_is_added_while_it_runs(spark, tmp_path):
    declared = pipeline(tmp_path, [Grep("user")])
    write(tmp_path, "a", LINES[:1])
    results = []
    running = threading.Thread(target=lambda: results.append(run(spark, declared)))
    running.start()
    for number, line in enumerate(LINES[1:]):
        write(tmp_path, f"file-{number % 2}", [line])
        time.sleep(0.05)
    running.join()
    assert found(tmp_path) == in_python(declared)
    assert results[0]["records"] == len(LINES)


def test_rows_of_csv(spark, tmp_path):
    write(tmp_path, "a", ["id,n", "x,1", "y,2", "x,3"])
    source = Csv("in", stream=True, idle_s=0.3, max_batch_records=2)
    stages = [KeyBy({"field": "id"}), Aggregate("sum", of={"field": "n"})]
    declared = Pipeline(name="p", source=source, stages=stages, sink=Sink(parquet="out"), folder=str(tmp_path))
    run(spark, declared)
    rows = spark.read.parquet(str(tmp_path / "out" / "part-*")).collect()
    assert sorted(map(tuple, rows)) == [("x", "4"), ("y", "2")]


def test_logs_of_processed_keys_by_task_and_batch(spark, tmp_path):
    write(tmp_path, "a", LINES)
    stages = [Grep("user1", tasks=2)]
    source = Text("in", stream=True, idle_s=0.3, max_batch_records=6)
    sink = Sink(text="out")
    declared = Pipeline(name="p", source=source, stages=stages, sink=sink, processed="logs", folder=str(tmp_path))
    run(spark, declared)
    keys = [line for log in (tmp_path / "logs").glob("1-grep-*.log") for line in log.read_text().splitlines()]
    assert sorted(keys) == sorted(f"PROCESSED,a:{number}" for number in range(len(LINES)))


def test_logs_of_tasks_that_a_batch_no_longer_has_go(spark, tmp_path):
    write(tmp_path, "a", LINES)
    sink = Sink(text="out")
    source = Text("in", stream=True, idle_s=0.3, max_batch_records=20)
    many, few = (
        Pipeline(
            name="p",
            source=source,
            stages=[Grep("user1", tasks=tasks)],
            sink=sink,
            processed="logs",
            folder=str(tmp_path),
        )
        for tasks in (5, 1)
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        breaking(monkeypatch, Ledger, "mark", 1, after=False)
        with pytest.raises(Broken):
            run(spark, many)
    assert len(list((tmp_path / "logs").glob("*.log"))) > 1
    run(spark, few)
    logs = {path.name: path.read_text().splitlines() for path in (tmp_path / "logs").glob("*.log")}
    assert {name for name, keys in logs.items() if keys} == {"1-grep-0.000000000.log"}
    assert sorted(logs["1-grep-0.000000000.log"]) == sorted(f"PROCESSED,a:{number}" for number in range(len(LINES)))


def test_a_bad_record_ends_it_with_its_key(spark, tmp_path):
    write(tmp_path, "a", ["1", "x"])
    with pytest.raises(Exception) as failed:  # what Spark makes of it
        run(spark, pipeline(tmp_path, [Aggregate("sum")]))
    assert isinstance(told(failed.value), BadRecord)
    assert str(told(failed.value)).startswith("a:1: no number: x")


def test_state_belongs_to_one_pipeline_and_one_run(spark, tmp_path):
    write(tmp_path, "a", LINES)
    declared = pipeline(tmp_path, STAGES["stateless"])
    with Ledger(declared.state_folder).held(declared), pytest.raises(StateInUse):
        run(spark, declared)
    run(spark, declared)
    with pytest.raises(StateMismatch, match="another pipeline"):
        run(spark, pipeline(tmp_path, STAGES["whole"]))


def test_output_of_somebody_else_is_not_touched(spark, tmp_path):
    write(tmp_path, "a", LINES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OutputExists):
        run(spark, pipeline(tmp_path, STAGES["stateless"]))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    run(spark, pipeline(tmp_path, STAGES["stateless"], overwrite=True))
    assert len(found(tmp_path)) == 5
