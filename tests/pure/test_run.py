"""`run.py`, which sets all up: how it ends."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "run.py"
TEST = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here, and inherited
print("began", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.6)
    print("cleaned up", flush=True)
    sys.exit(2)
"""
PROGRAM = """
import runpy, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
run = runpy.run_path(sys.argv[1])
run["succeeds"].__globals__["VENV"] = Path(sys.argv[2])
run["succeeds"](["pytest"])
"""


def test_ctrl_c_waits_for_the_tests_to_clean_up(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tests = tmp_path / "bin" / "pytest"
    tests.write_text(f"#!{sys.executable}\n{TEST}")
    tests.chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, str(RUN), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        assert next(lines).startswith("$ pytest")
        assert next(lines) == "began\n"
        time.sleep(0.1)  # into its sleep
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert list(lines) == ["cleaned up\n"]
        assert process.wait(10) == 130


def test_it_says_what_succeeds() -> None:
    run = runpy.run_path(str(RUN))
    assert run["succeeds"](["python", "-c", ""])
    assert not run["succeeds"](["python", "-c", "raise SystemExit(1)"])


MAKES_NO_VENV = """
import sys
sys.stdout.write("ensurepip is not available")
sys.exit(not __import__("os").path.exists(sys.argv[0] + ".mended"))
"""


@pytest.mark.parametrize("may_install", [True, False])
def test_where_pythons_venv_is_not_whole_its_package_is_installed_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], may_install: bool
) -> None:
    """As Debian has it; the Python and the apt-get of this test only do as if."""
    python, apt, log = tmp_path / "python", tmp_path / "apt-get", tmp_path / "log"
    python.write_text(f"#!{sys.executable}\n{MAKES_NO_VENV}")
    apt.write_text(f'#!/bin/sh\necho "$@" >> {log}\ntouch {python}.mended\n')
    python.chmod(0o755)
    apt.chmod(0o755)
    run = runpy.run_path(str(RUN))
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if may_install else 1000)
    if may_install:
        run["make_venv"]()
        assert log.read_text().splitlines()[0] == "update"
        assert f"python3.{sys.version_info.minor}-venv" in log.read_text()
        return
    with pytest.raises(SystemExit, match="apt install python3"):
        run["make_venv"]()
    assert not log.exists()
    assert "ensurepip is not available" in capfd.readouterr().err
