"""What a stream prints to a file, a batch at a time: each line once, wherever it was ended before."""

import os

import pytest

from tenure.jobs.spark.printing import print_batch

LINES = "ä: 1\nö: 2\nü: 3\n"


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def printed(state, number, text, console, *, mode="a"):
    place = state / "text"
    place.write_text(text)
    with console.open(mode, encoding="utf-8") as file:
        print_batch(state, number, place, file)
    return console.read_text()


@pytest.mark.parametrize("ended_at", range(len(LINES.encode()) + 1))
def test_it_is_printed_on_from_where_it_was_ended(state, tmp_path, ended_at):
    console = tmp_path / "console"
    printed(state, 0, "of batch 0\n", console)
    before = console.stat().st_size
    printed(state, 1, LINES, console)
    os.truncate(console, before + ended_at)  # what was not printed when it was killed
    in_another_order = "".join(reversed(LINES.splitlines(keepends=True)))
    assert printed(state, 1, in_another_order, console) == "of batch 0\n" + LINES
    assert printed(state, 2, LINES, console) == "of batch 0\n" + LINES * 2


def test_another_console_and_one_that_was_emptied_get_all_of_it(state, tmp_path):
    assert printed(state, 0, "x\n", tmp_path / "one") == "x\n"
    assert printed(state, 1, LINES, tmp_path / "one") == "x\n" + LINES
    assert printed(state, 1, LINES, tmp_path / "other") == LINES
    assert printed(state, 2, LINES, tmp_path / "other") == LINES * 2
    assert printed(state, 2, LINES, tmp_path / "other", mode="w") == LINES


def test_parts_of_a_folder_are_printed_and_a_pipe_gets_all_each_time(state, tmp_path):
    (tmp_path / "text").mkdir()
    for number, line in enumerate(LINES.splitlines(keepends=True)):
        (tmp_path / "text" / f"part-{number}").write_text(line)
    with (tmp_path / "console").open("a") as file:
        print_batch(state, 0, tmp_path / "text", file)
        print_batch(state, 0, tmp_path / "text", file)
    assert (tmp_path / "console").read_text() == LINES
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w", encoding="utf-8") as pipe, os.fdopen(ours, encoding="utf-8") as read:
        print_batch(state, 1, tmp_path / "text", pipe)
        print_batch(state, 1, tmp_path / "text", pipe)
        pipe.close()
        assert read.read() == LINES * 2
