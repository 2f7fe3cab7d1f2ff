"""Output appears at once, of one attempt only."""

import threading

import pytest

from tenure.jobs.pipelines.errors import OutputExists
from tenure.jobs.pipelines.output import MARKER, Output


def write(output, text):
    output.begin()
    (output.staging / "part-0").write_text(text)
    return output


def commit(output, **options):
    output.commit("p", {"records": 1}, **({"overwrite": False} | options))
    output.abandon()


def test_nothing_is_there_before_the_commit_and_nothing_beside_it_after(tmp_path):
    output = write(Output(tmp_path / "out", "run/1", 1), "a")
    assert not (tmp_path / "out").exists()
    commit(output)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARKER, "part-0"]


def test_an_attempt_that_was_given_up_commits_nothing(tmp_path):
    old = write(Output(tmp_path / "out", "run", 1), "old")
    new = write(Output(tmp_path / "out", "run", 2), "new")
    with pytest.raises(FileNotFoundError):
        commit(old)
    commit(new)
    assert (tmp_path / "out" / "part-0").read_text() == "new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_nor_does_it_touch_what_its_successor_has_committed(tmp_path, overwrite):
    old = write(Output(tmp_path / "out", "run", 1), "old")
    commit(write(Output(tmp_path / "out", "run", 2), "new"))
    with pytest.raises(FileNotFoundError):
        commit(old, overwrite=overwrite)
    assert (tmp_path / "out" / "part-0").read_text() == "new"


def test_what_the_run_has_committed_is_known_to_its_next_attempt(tmp_path):
    commit(write(Output(tmp_path / "out", "run", 1), "a"))
    assert Output(tmp_path / "out", "run", 2).committed().result == {"records": 1}
    assert Output(tmp_path / "out", "another run", 1).committed() is None
    assert Output(tmp_path / "nowhere", "run", 1).committed() is None


def test_output_that_has_appeared_meanwhile_is_kept(tmp_path):
    output = write(Output(tmp_path / "out", "run", 1), "a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OutputExists, match="overwrite"):
        commit(output)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_an_empty_folder_is_no_output(tmp_path):
    (tmp_path / "out").mkdir()
    commit(write(Output(tmp_path / "out", "run", 1), "a"))
    assert (tmp_path / "out" / "part-0").read_text() == "a"


def test_replaced_output_is_there_all_the_time(tmp_path):
    commit(write(Output(tmp_path / "out", "run 0", 1), "0"))
    seen, over = set(), threading.Event()

    def read():
        while not over.is_set():
            seen.add((tmp_path / "out" / "part-0").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 50):
            commit(write(Output(tmp_path / "out", f"run {number}", 1), str(number)), overwrite=True)
    finally:
        over.set()
        reader.join()
    assert seen <= {str(number) for number in range(50)}
    assert (tmp_path / "out" / "part-0").read_text() == "49"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
