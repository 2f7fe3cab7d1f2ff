"""Finding the Java that Spark runs on. Spark asks for a module that small runtimes leave out: so do we."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from tenure.jobs.pipelines.errors import MissingJava, MissingSpark

__all__ = ["VERSION_MIN", "find_java_home", "need_pyspark"]

VERSION_MIN = 17
ASK_TIMEOUT_S = 20
VECTORS = "--add-modules=jdk.incubator.vector"
VERSION = re.compile(r'version "(?P<full>(?P<major>\d+)[^"]*)"')

_fitting: set[Path] = set()
"""Asking takes a moment, and a short job can't wait."""


def find_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The first that fits of JAVA_HOME and PATH; each is asked once. Raises `MissingJava`, with what was seen."""
    seen: list[str] = []
    for where, executable in _candidates(environ):
        real = executable.resolve()
        if (real in _fitting and real.exists()) or (problem := _problem(executable)) is None:
            _fitting.add(real)
            return real.parent.parent
        seen.append(f"{where} ({executable}) {problem}")
    raise MissingJava(
        f"Spark needs Java {VERSION_MIN} or newer: {'; '.join(seen) or 'there is none in JAVA_HOME or PATH'}. "
        "Install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    )


def need_pyspark() -> None:
    """Raises `MissingSpark`."""
    if find_spec("pyspark") is None:
        raise MissingSpark("PySpark is not installed: pip install 'tenure[spark]'")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found)


def _problem(executable: Path) -> str | None:
    """What is wrong with a Java; None: nothing."""
    try:
        answer = _ask(executable)
        if (version := VERSION.search(answer.stderr + answer.stdout)) is None:
            return "does not say its version"
        if int(version["major"]) < VERSION_MIN:
            return f"is version {version['full']}"
        return "lacks the module jdk.incubator.vector" if _ask(executable, VECTORS).returncode else None
    except (OSError, subprocess.SubprocessError):
        return "does not run"


def _ask(executable: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [str(executable), *options, "-version"]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ASK_TIMEOUT_S)
