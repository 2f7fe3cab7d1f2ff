"""The examples, run as their comments and the tutorial say."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TUTORIAL = (ROOT / "docs" / "tutorials" / "pipelines.md").read_text()


def copied(name, tmp_path):
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("out")))


def tenure(*arguments):
    command = [sys.executable, "-m", "tenure.cli", "spark", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def lines_in(folder):
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def test_hello_from_toml_at_a_terminal(tmp_path):
    """The tutorial's first command, to the letter."""
    (shown,) = re.findall(r"^\$ tenure spark run (examples/hello/pipeline.toml)\n(.*?)^```", TUTORIAL, re.M | re.S)
    path, results = shown
    folder = copied("hello", tmp_path / "examples")
    assert f"```toml\n{declaration(folder / 'pipeline.toml')}```" in TUTORIAL
    before = {path.name for path in folder.iterdir()}
    code, printed, seen = at_a_terminal("run", path, cwd=tmp_path)
    assert code == 0, seen
    assert printed == results.splitlines()
    assert lines_in(folder / "out") == results.splitlines()
    assert {path.name for path in folder.iterdir()} == before | {"out"}
    assert "hello: starting Spark" in seen, "the live view"
    assert re.search(r"hello: (stage \d of \d, )?\d+ of \d+ tasks", seen)
    assert seen.splitlines()[-1].startswith("hello: 2 records in ")


def declaration(path):
    """A TOML file without the comment above it."""
    return path.read_text().partition("\n\n")[2]


def at_a_terminal(*arguments, cwd):
    """Exit code, lines of standard output, and what there was to see on the terminal."""
    ours, theirs = pty.openpty()
    seen = []
    command = [sys.executable, "-m", "tenure.cli", "spark", *arguments]
    environ = os.environ | {"COLUMNS": "200", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=cwd, env=environ) as process:
        os.close(theirs)
        looking = threading.Thread(target=lambda: seen.extend(looked_at(ours)))
        looking.start()
        printed = process.stdout.read().decode()
        looking.join()
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(seen).decode(errors="replace"))
    return process.returncode, sorted(printed.splitlines()), plain.replace("\r", "\n").rstrip()


def looked_at(terminal):
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:
            return  # nobody writes there any more


def test_a_run_in_the_way_of_another_is_refused_before_spark_starts(tmp_path):
    folder = copied("hello", tmp_path)
    (folder / "out").mkdir()
    (folder / "out" / "mine").touch()
    ran = tenure("run", folder / "pipeline.toml")
    assert ran.returncode == 2
    assert "overwrite = true" in ran.stderr
    assert (folder / "out" / "mine").exists()


def test_hello_from_python(tmp_path):
    folder = copied("hello", tmp_path / "examples")
    (code,) = (
        block for block in re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.M | re.S) if "run(pipeline)" in block
    )
    (tmp_path / "hello.py").write_text(code)
    for program in (folder / "hello.py", tmp_path / "hello.py"):  # the second replaces the output of the first
        ran = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert ran.returncode == 0, ran.stderr
        assert sorted(ran.stdout.splitlines()) == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    assert lines_in(folder / "out") == ["input.txt:0: hi world", "input.txt:2: hi foo"]


def test_hello_as_a_stream_that_goes_on_where_it_was(tmp_path):
    folder = copied("hello", tmp_path)
    quicker = (folder / "stream.toml").read_text().replace("idle_s = 5", "idle_s = 1")
    (folder / "stream.toml").write_text(quicker)
    ran = tenure("run", folder / "stream.toml")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["input.txt:0: hi world", "input.txt:2: hi foo"]
    with (folder / "input.txt").open("a") as file:
        file.write("say hello\n")
    ran = tenure("run", folder / "stream.toml", "--json")
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["output"] for line in told if "output" in line] == ["input.txt:3: say hi"]
    assert (told[-1]["pipeline"], told[-1]["status"]) == ("hello-stream", "succeeded")
    assert lines_in(folder / "out-stream") == ["input.txt:0: hi world", "input.txt:2: hi foo", "input.txt:3: say hi"]
