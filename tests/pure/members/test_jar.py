"""Fetching the jar: whole, checked, once; and a sentence for what goes wrong. No network."""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tenure.demo import DemoOptions, play
from tenure.demo.stage import Lines
from tenure.members import ChecksumMismatch, JarUnavailable, fetch_jar
from tenure.members.jar import JAR_SHA256, jar_fetched

CONTENT = b"the very jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Repository:
    """Stands in for jgo's download."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.fetched = 0
        self.error: Exception | None = None
        self.meanwhile: Any = None

    def download(self, resolver: Any, artifact: Any) -> Path:
        self.fetched += 1
        path: Path = artifact.cached_path
        path.parent.mkdir(parents=True)
        path.write_bytes(self.content[: len(self.content) // 2])
        if self.error is not None:
            raise self.error
        if self.meanwhile:
            self.meanwhile()
        if resolver.progress_callback:
            with resolver.progress_callback(artifact.filename, len(self.content)) as advance:
                advance(len(self.content))
        path.write_bytes(self.content)
        return path


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repository:
    repository = Repository()
    monkeypatch.setattr("jgo.maven.PythonResolver.download", lambda self, artifact: repository.download(self, artifact))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    return repository


def test_it_is_fetched_once(repository: Repository, tmp_path: Path) -> None:
    jar = fetch_jar(folder=tmp_path / "cache", sha256=SHA256)
    assert jar.read_bytes() == CONTENT
    assert fetch_jar(folder=tmp_path / "cache", sha256=SHA256) == jar
    assert repository.fetched == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [jar.name], "nothing half done is left"


def test_another_file_is_thrown_away(repository: Repository, tmp_path: Path) -> None:
    repository.content = b"somebody else's"
    with pytest.raises(ChecksumMismatch, match=hashlib.sha256(b"somebody else's").hexdigest()):
        fetch_jar(folder=tmp_path, sha256=SHA256)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(repository: Repository, tmp_path: Path) -> None:
    jar = fetch_jar(folder=tmp_path, sha256=SHA256)
    jar.write_bytes(b"damaged")
    assert fetch_jar(folder=tmp_path, sha256=SHA256).read_bytes() == CONTENT
    assert repository.fetched == 2


def test_no_network_is_said_with_what_to_do(repository: Repository, tmp_path: Path) -> None:
    repository.error = OSError("Name or service not known")
    with pytest.raises(JarUnavailable, match=r"Name or service not known.*mirror"):
        fetch_jar(folder=tmp_path, sha256=SHA256)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_that_fetch_at_once_end_with_one_file(repository: Repository, tmp_path: Path) -> None:
    def other_process() -> None:
        repository.meanwhile = None
        fetch_jar(folder=tmp_path, sha256=SHA256)

    repository.meanwhile = other_process
    jar = fetch_jar(folder=tmp_path, sha256=SHA256)
    assert jar.read_bytes() == CONTENT
    assert repository.fetched == 2


def test_a_folder_that_cannot_be_written_is_said(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JarUnavailable, match=r"can't be kept.*TENURE_CACHE_DIR"):
        fetch_jar(folder=tmp_path / "file", sha256=SHA256)


def test_progress_is_told(repository: Repository, tmp_path: Path) -> None:
    told: list[object] = []

    @contextmanager
    def progress(name: str, size: int) -> Any:
        told.append((name, size))
        yield told.append

    fetch_jar(progress, folder=tmp_path, sha256=SHA256)
    assert told == [("hazelcast-5.7.0.jar", len(CONTENT)), len(CONTENT)]


async def a_demo() -> None:
    await play(DemoOptions().course(), Lines())


@pytest.mark.parametrize("fetching", [jar_fetched, a_demo])
async def test_a_fetch_that_stands_still_can_be_given_up(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetching: Callable[[], Awaitable[Any]]
) -> None:
    monkeypatch.setenv("TENURE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tenure.members.jar._GIVEN_UP_WITHIN_S", 0.05)
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()

    def stand_still() -> None:
        begun.set()
        goes_on.wait(20)

    download = repository.download

    def watched(resolver: Any, artifact: Any) -> Path:
        try:
            path = download(resolver, artifact)
        except JarUnavailable:
            done.set()
            raise
        return path

    repository.meanwhile, repository.download = stand_still, watched  # type: ignore[method-assign]
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetching)
            await trio.to_thread.run_sync(begun.wait)
            nursery.cancel_scope.cancel()
        goes_on.set()
        while list((tmp_path / "cache").iterdir()):  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert done.is_set(), "it does not go on for nobody"


_STANDS_STILL = """
import time, trio
from pathlib import Path
from tenure.members import jar

def stand_still(folder, progress):
    (folder / "half").write_text("of it")
    print(folder, flush=True)
    time.sleep(60)

jar._fetch, jar._GIVEN_UP_WITHIN_S = stand_still, 0.05

async def main():
    with trio.move_on_after(0.3):
        await jar.jar_fetched()

trio.run(main)
"""


def test_what_was_fetched_in_part_does_not_outlive_its_process(tmp_path: Path) -> None:
    environ = {**os.environ, "TENURE_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", _STANDS_STILL], env=environ, timeout=20, check=True, capture_output=True, text=True
    )
    assert ".fetch-" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_pin_is_a_pin() -> None:
    assert len(bytes.fromhex(JAR_SHA256)) == 32
