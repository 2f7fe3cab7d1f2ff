"""What grows is taken in once, line by line, whoever is killed, and whenever."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.pipelines.errors import BadRecord, MissingInput
from tenure.jobs.pipelines.feeder import Feeder
from tenure.jobs.pipelines.growing import Growing
from tenure.jobs.pipelines.intake import Intake, read_chunk
from tenure.jobs.pipelines.records import records_of
from tenure.jobs.pipelines.sources import Csv, Text


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def records_in(intake):
    found = []
    for path in sorted(intake.chunks.glob("*.txt")):
        head, *lines = path.read_text().split("\n")[:-1]
        assert head.startswith("\0")
        assert len(lines) == read_chunk(path).records
        found += [tuple(line.split("\0", 1)) for line in lines]
    return found


def feeder(tmp_path, source=None, clock=None):
    source = source or Text(str(tmp_path / "in"), stream=True, idle_s=5)
    intake = Intake(tmp_path / "state")
    fed = Feeder(source, Growing(source, tmp_path / "in", intake.columns), intake, clock=clock or Clock())
    fed.done(intake.last)
    return fed, intake


def step(fed, intake):
    ended = fed.step()
    fed.done(intake.last)
    return ended


endings = st.sampled_from([b"x", b"yy\n", b"\r", b"\r\n", b"\n", b"z"])
pieces = st.lists(st.tuples(st.sampled_from("abc"), endings), max_size=30)


@settings(deadline=None)
@given(pieces, st.integers(1, 5), st.randoms(use_true_random=False))
def test_in_the_end_a_stream_has_what_a_batch_has(tmp_path_factory, pieces, at_once, luck):
    tmp_path = tmp_path_factory.mktemp("growing")
    (tmp_path / "in").mkdir()
    clock = Clock()
    source = Text("in", stream=True, idle_s=5, max_batch_records=at_once)
    fed, intake = feeder(tmp_path, source, clock)
    for name, piece in pieces:
        with (tmp_path / "in" / name).open("ab") as file:
            file.write(piece)
        if luck.random() < 0.5:
            assert not step(fed, intake)
        if luck.random() < 0.2:
            fed, intake = feeder(tmp_path, source, clock)  # killed, and another goes on
    clock.now += 6
    while not step(fed, intake):
        pass
    assert intake.ended
    assert sorted(records_in(intake)) == sorted(records_of(source, tmp_path / "in"))
    fed, intake = feeder(tmp_path, source, clock)
    clock.now += 6
    assert step(fed, intake)
    assert sorted(records_in(intake)) == sorted(records_of(source, tmp_path / "in"))


def test_of_two_who_take_in_one_comes_too_late_and_reads_on(tmp_path):
    (tmp_path / "in").mkdir()
    feeders = [feeder(tmp_path) for _ in range(2)]
    written = []
    for number in range(50):
        with (tmp_path / "in" / "file").open("a") as file:
            file.write(f"{number}\n")
        written.append((f"file:{number}", str(number)))
        fed, intake = random.choice(feeders)
        fed.step()
        fed.done(intake.last)
        intake.catch_up()
    for fed, intake in feeders:
        step(fed, intake)
    assert records_in(feeders[0][1]) == written


def test_no_more_than_two_chunks_ahead(tmp_path):
    (tmp_path / "in").mkdir()
    fed, intake = feeder(tmp_path)
    for number in range(5):
        (tmp_path / "in" / str(number)).write_text("a\n")
        fed.step()
    assert intake.last == 1
    fed.done(0)
    fed.step()
    assert intake.last == 2
    assert len(records_in(intake)) == 5


def test_no_faster_than_asked(tmp_path):
    clock = Clock()
    (tmp_path / "in").write_text("line\n" * 1000)
    fed, intake = feeder(tmp_path, Text("in", stream=True, rate=10), clock)
    for _ in range(100):
        clock.now += 0.1
        step(fed, intake)
    assert 99 <= len(records_in(intake)) <= 101
    clock.now += 60
    step(fed, intake)
    assert len(records_in(intake)) <= 112


def test_time_spent_on_processing_is_no_silence(tmp_path):
    clock = Clock()
    (tmp_path / "in").write_text("a\nb\nc\n")
    fed, intake = feeder(tmp_path, Text("in", stream=True, idle_s=5, max_batch_records=1), clock)
    fed.step(), fed.step()
    clock.now += 60
    assert not fed.step()
    fed.done(1)
    assert not fed.step()
    assert len(records_in(intake)) == 3


def test_headers_are_no_records_and_must_agree(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("a;b\n1;2\n")
    source = Csv("in", stream=True, separator=";")
    fed, intake = feeder(tmp_path, source)
    step(fed, intake)
    assert records_in(intake) == [("1:1", "1;2")]
    assert Intake(tmp_path / "state").columns == ["a", "b"]
    (tmp_path / "in" / "2").write_text("a;c\n1;2\n")
    fed, intake = feeder(tmp_path, source)
    with pytest.raises(BadRecord, match="2:0: the schema does not fit"):
        step(fed, intake)


def test_a_file_that_shrinks_is_told(tmp_path):
    (tmp_path / "in").write_text("a\nb\n")
    fed, intake = feeder(tmp_path)
    step(fed, intake)
    (tmp_path / "in").write_text("a\n")
    with pytest.raises(MissingInput, match="has become shorter"):
        step(fed, intake)


def test_old_chunks_go_and_places_stay(tmp_path):
    (tmp_path / "in").mkdir()
    fed, intake = feeder(tmp_path)
    for number in range(120):
        (tmp_path / "in" / f"{number:03}").write_text("a\n")
        step(fed, intake)
    intake.forget(115)
    assert sorted(int(path.stem) for path in intake.chunks.glob("*.txt")) == list(range(100, 120))
    assert len(Intake(tmp_path / "state").places) == 120


def test_spark_sees_chunks_in_their_order(tmp_path):
    (tmp_path / "in").mkdir()
    fed, intake = feeder(tmp_path)
    for number in range(20):
        (tmp_path / "in" / str(number)).write_text("a\n")
        step(fed, intake)
    times = [path.stat().st_mtime_ns // 10**6 for path in sorted(intake.chunks.glob("*.txt"))]
    assert times == sorted(set(times))
