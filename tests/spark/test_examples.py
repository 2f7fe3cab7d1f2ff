"""The examples, run as their comments say."""

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def copied(name, tmp_path):
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("out")))


def tenure(*arguments):
    command = [sys.executable, "-m", "tenure.cli", "spark", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def lines_in(folder):
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def test_hello_from_toml(tmp_path):
    folder = copied("hello", tmp_path)
    before = {path.name for path in folder.iterdir()}
    ran = tenure("run", folder / "pipeline.toml")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    assert lines_in(folder / "out") == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    assert {path.name for path in folder.iterdir()} == before | {"out"}


def test_a_run_in_the_way_of_another_is_refused_before_spark_starts(tmp_path):
    folder = copied("hello", tmp_path)
    (folder / "out").mkdir()
    (folder / "out" / "mine").touch()
    ran = tenure("run", folder / "pipeline.toml")
    assert ran.returncode == 2
    assert "overwrite = true" in ran.stderr
    assert (folder / "out" / "mine").exists()


def test_hello_from_python(tmp_path):
    folder = copied("hello", tmp_path)
    for _ in range(2):  # the second run replaces the output of the first
        ran = subprocess.run([sys.executable, folder / "hello.py"], capture_output=True, text=True, timeout=400)
        assert ran.returncode == 0, ran.stderr
        assert sorted(ran.stdout.splitlines()) == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    assert lines_in(folder / "out") == ["input.txt:0: hi world", "input.txt:2: hi foo"]


def test_hello_as_a_stream_that_goes_on_where_it_was(tmp_path):
    folder = copied("hello", tmp_path)
    ran = tenure("run", folder / "stream.toml")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    with (folder / "input.txt").open("a") as file:
        file.write("say hello\n")
    ran = tenure("run", folder / "stream.toml")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["input.txt:3: say hi"]
    assert lines_in(folder / "out-stream") == ["input.txt:0: hi world", "input.txt:2: hi foo", "input.txt:3: say hi"]
