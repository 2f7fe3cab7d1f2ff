"""Standard output and error that are closed, full, without a reader, or of few letters: results that could not be given
are a failure, told in a sentence with exit code 1; what is only said beside them is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TABLE = "list"
"""Prints a table of nothing, and is done."""
FAILS = "verify"
"""Says that there is no snapshot, and prints nothing."""


def shell(
    tmp_path: Path, what: str, redirected: str = "", output: int = subprocess.PIPE, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """As users have it: Python gathers what is printed, and writes it at the end."""
    command = f"{sys.executable} -m tenure.cli snapshots {what} {tmp_path} {redirected}"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", command],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env=kept | environment,
    )


def test_results_go_nowhere_where_standard_output_is_closed(tmp_path: Path) -> None:
    done = shell(tmp_path, TABLE, ">&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = shell(tmp_path, FAILS, ">&-")
    assert done.returncode == 1
    assert done.stderr.startswith("tenure: there is no snapshot here")
    assert "Traceback" not in done.stderr


def test_what_is_said_is_not_among_the_results_where_standard_error_is_closed(tmp_path: Path) -> None:
    done = shell(tmp_path, FAILS, "--json 2>&-")
    assert (done.returncode, done.stdout) == (1, "")
    assert shell(tmp_path, TABLE, "2>&-").returncode == 0


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_command_whose_words_nobody_can_hear_ends_as_ever(tmp_path: Path, options: str) -> None:
    assert shell(tmp_path, FAILS, f"{options} 2>/dev/full").returncode == 1
    assert shell(tmp_path, TABLE, f"{options} 2>/dev/full").returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_for_which_there_is_no_room_are_a_failure_in_a_sentence(tmp_path: Path, unbuffered: str) -> None:
    done = shell(tmp_path, TABLE, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.startswith("tenure: [Errno 28] No space left on device")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_who_reads_no_more_has_read_enough(tmp_path: Path, unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = shell(tmp_path, TABLE, output=writes, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


def test_letters_that_a_stream_lacks_are_written_out(tmp_path: Path) -> None:
    done = shell(tmp_path, TABLE, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    title, rule = done.stdout.splitlines()
    assert rule == "-" * len(title)
