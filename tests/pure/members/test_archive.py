"""The class-data archive: asked for until it is there, then used; whole or not at all."""

from pathlib import Path

import pytest

from tenure.members.archive import Archive
from tenure.members.java import Java

JAVA_17, JAVA_25 = Java(Path("/a/java"), "17.0.15", 17), Java(Path("/b/java"), "25.0.2", 25)
JAR = Path("hazelcast.jar")


def option(archive: Archive) -> tuple[str, Path]:
    name, _, path = archive.options()[0].partition("=")
    return name, Path(path)


@pytest.mark.parametrize(
    ("java", "write", "use"),
    [
        (JAVA_17, "-XX:ArchiveClassesAtExit", "-XX:SharedArchiveFile"),
        (JAVA_25, "-XX:AOTCacheOutput", "-XX:AOTCache"),
    ],
)
def test_it_is_written_once_and_used_from_then_on(tmp_path: Path, java: Java, write: str, use: str) -> None:
    first = Archive(tmp_path, java, JAR)
    assert first.wanted
    name, unfinished = option(first)
    assert name == write
    assert unfinished.parent == tmp_path
    unfinished.write_bytes(b"archive")
    assert Archive(tmp_path, java, JAR).wanted, "what is not finished is not used"
    first.keep()
    second = Archive(tmp_path, java, JAR)
    assert not second.wanted
    assert option(second) == (use, first.path)
    assert first.path.read_bytes() == b"archive"
    second.keep()
    assert option(second) == (use, first.path)


def test_two_members_write_to_different_files(tmp_path: Path) -> None:
    assert option(Archive(tmp_path, JAVA_17, JAR)) != option(Archive(tmp_path, JAVA_17, JAR))


def test_builds_of_one_version_do_not_share(tmp_path: Path) -> None:
    other = Java(Path("/c/java"), JAVA_17.version, 17)
    assert Archive(tmp_path, JAVA_17, JAR).path != Archive(tmp_path, other, JAR).path


def test_a_java_that_cannot_is_not_asked_again(tmp_path: Path) -> None:
    Archive(tmp_path, JAVA_17, JAR).keep()
    again = Archive(tmp_path, JAVA_17, JAR)
    assert not again.wanted
    assert again.options() == []


def test_what_a_killed_member_began_is_removed(tmp_path: Path) -> None:
    archive = Archive(tmp_path, JAVA_25, JAR)
    _, unfinished = option(archive)
    unfinished.write_bytes(b"half")
    unfinished.with_name(f"{unfinished.name}.config").write_bytes(b"half")
    archive.discard()
    assert list(tmp_path.iterdir()) == []
    assert archive.wanted
