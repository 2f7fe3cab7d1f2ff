"""Places for snapshots: all keep the same promises."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trio

from tenure.scheduler.snapshots import aside
from tenure.scheduler.snapshots.errors import BadLocation, StoreFailed
from tenure.scheduler.snapshots.remote import Remote, open_remote
from tenure.scheduler.snapshots.stores import Directory, Memory, Missing, Store, open_store


@pytest.fixture(params=["directory", "memory", "file system", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        yield Directory(tmp_path / "a" / "b")
    elif request.param == "memory":
        yield Memory()
    elif request.param == "file system":
        pytest.importorskip("fsspec")
        yield open_remote(f"file://{tmp_path}/remote")
    else:
        fsspec = pytest.importorskip("fsspec")
        yield open_remote("memory://bucket/folder")
        fsspec.filesystem("memory").store.clear()


async def test_what_was_written_is_read(store: Store) -> None:
    assert await store.files("snapshots") == []
    await store.write("snapshots/one.json", b"1")
    await store.write("packs/x/1", b"22")
    await store.write("packs/y/2", b"333")
    await store.write("packs/x/1", b"4444")
    assert await store.read("packs/x/1") == b"4444"
    found = await store.files("packs")
    assert [(stored.path, stored.size_bytes) for stored in found] == [("packs/x/1", 4), ("packs/y/2", 3)]
    assert all(0 <= stored.age_s < 60 for stored in found)
    assert [stored.path for stored in await store.files("snapshots")] == ["snapshots/one.json"]


async def test_what_is_not_there_is_missing_and_can_be_deleted(store: Store) -> None:
    with pytest.raises(Missing):
        await store.read("packs/nothing")
    await store.delete("packs/nothing")
    await store.write("packs/x/1", b"1")
    await store.delete("packs/x/1")
    with pytest.raises(Missing):
        await store.read("packs/x/1")
    assert await store.files("packs") == []


async def test_a_place_that_can_not_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreFailed, match="file/packs/x can't be written: Not a directory"):
        await Directory(tmp_path / "file").write("packs/x", b"1")
    with pytest.raises(StoreFailed, match="nowhere/packs/x can't be written: No such file"):
        await Directory(Path("/proc/nowhere")).write("packs/x", b"1")
    with pytest.raises(StoreFailed, match="it is no folder"):
        await Directory(tmp_path / "file").files("snapshots")


async def test_a_directory_shows_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Directory(tmp_path)
    await store.write("snapshots/a.json", b"old")

    def fails(descriptor: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreFailed, match="the disk is full"):
        await store.write("snapshots/a.json", b"new")
    assert await store.read("snapshots/a.json") == b"old"
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["a.json"]


@pytest.mark.parametrize("path", ["snapshots/a.json", "restores/a.json"])
async def test_a_remote_place_shows_whole_files_only(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = open_remote("memory://bucket/whole")
    pipe_file = store.fs.pipe_file

    def fails(target: str, content: bytes) -> None:
        pipe_file(target, content[:1])
        raise OSError("the connection is gone")

    try:
        await store.write(path, b"old")
        monkeypatch.setattr(store.fs, "pipe_file", fails)
        with pytest.raises(StoreFailed, match="the connection is gone"):
            await store.write(path, b"new")
        assert await store.read(path) == b"old"
    finally:
        fsspec.filesystem("memory").store.clear()


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}", f"file://localhost{tmp_path}"):
        store = open_store(url)
        assert isinstance(store, Directory)
        assert store.root == tmp_path
    assert open_store("memory:x") is open_store("memory:x")
    with pytest.raises(BadLocation, match="relative"):
        open_store("backups")
    with pytest.raises(BadLocation, match="nonsense"):
        open_store("nonsense://somewhere")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(BadLocation, match=r"tenure\[snapshots\]"):
        open_store("s3://bucket/folder")


class Hanging(Directory):
    """As a network's disk whose server is gone. It answers when `back` is set, or after five seconds."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.back, self.answered = trio.Event(), Event(), 0

    def _hang(self) -> None:
        trio.from_thread.run_sync(self.asked.set)
        self.back.wait(5)
        self.answered += 1

    def write_now(self, path: str, content: bytes) -> None:
        self._hang()
        super().write_now(path, content)

    def read_now(self, path: str) -> bytes:
        self._hang()
        return super().read_now(path)

    def files_now(self, folder: str) -> list[Any]:
        self._hang()
        return super().files_now(folder)

    def delete_now(self, path: str) -> None:
        self._hang()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones, although time is virtual: nothing here waits for a time."""
    monkeypatch.setattr(aside, "is_time_virtual", lambda: False)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("call", ["read", "files", "delete", "write"])
async def test_a_place_that_hangs_holds_up_nobody(tmp_path: Path, call: str) -> None:
    store = Hanging(tmp_path)
    arguments = ("packs/x", b"1") if call == "write" else ("packs/x",)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(getattr(store, call), *arguments)
            await store.asked.wait()
            nursery.cancel_scope.cancel()
        assert store.answered == 0
    finally:
        store.back.set()


@pytest.mark.usefixtures("threads")
async def test_whether_there_is_a_manifest_is_known(tmp_path: Path) -> None:
    store = Hanging(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, "snapshots/x.json", b"1")
        await store.asked.wait()
        nursery.cancel_scope.cancel()
        store.back.set()
    assert (tmp_path / "snapshots" / "x.json").read_bytes() == b"1"


class Recording:
    """A file system of fsspec's that notes what is asked of it."""

    def __init__(self, protocol: str | tuple[str, ...]) -> None:
        self.protocol, self.calls = protocol, list[str]()

    def makedirs(self, path: str, exist_ok: bool) -> None:
        self.calls.append(f"makedirs {path}")

    def pipe_file(self, path: str, content: bytes) -> None:
        self.calls.append(f"put {path}")

    def mv(self, path: str, to: str) -> None:
        self.calls.append("mv")


@pytest.mark.parametrize("protocol", ["s3", ("s3", "s3a"), ("gs", "gcs"), ("abfs", "az", "abfss")])
async def test_no_bucket_is_made_of_a_misspelt_name(protocol: str | tuple[str, ...]) -> None:
    files = Recording(protocol)
    store = Remote("s3://bucket/folder", files, "bucket/folder")
    for n in range(3):
        await store.write(f"parts/a/{n}", b"")
    await store.write("snapshots/a.json", b"")
    assert [call.split("/")[0] for call in files.calls] == [*["put bucket"] * 4, "mv"]


async def test_folders_are_made_once() -> None:
    files = Recording("sftp")
    store = Remote("sftp://host/folder", files, "folder")
    for n in range(3):
        await store.write(f"parts/a/{n}", b"")
    assert files.calls == ["makedirs folder/parts/a", *(f"put folder/parts/a/{n}" for n in range(3))]
