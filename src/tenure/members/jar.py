"""Hazelcast's jar: fetched once from Maven's repository, checked, and kept for all of a user's clusters.

Nothing runs whose SHA-256 is not the pinned one. The file appears under its name only when it is whole:
two processes that fetch at once do the work twice and end with the same file.
"""

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import platformdirs
import trio

from tenure.members.errors import ChecksumMismatch, JarUnavailable
from tenure.members.settings import HAZELCAST_VERSION

__all__ = ["JAR_SHA256", "Progress", "cache_dir", "fetch_jar", "jar_fetched", "rich_progress"]

JAR_SHA256 = "241ec66cea8491787f68c3336f069ac463877af50bdb7676cd9d538f1940dc33"
_GROUP, _ARTIFACT = "com.hazelcast", "hazelcast"
_FETCH_TIMEOUT_S = 30
_GIVEN_UP_WITHIN_S = 1.0
"""How long a fetch that is cancelled may take to notice; a network that stands still notices nothing."""

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with a file's name and its bytes; what it yields is called with the bytes that came, as they come."""


def cache_dir() -> Path:
    """Where jars and class-data archives are kept. `TENURE_CACHE_DIR` overrides the user's cache folder."""
    return Path(os.environ.get("TENURE_CACHE_DIR") or platformdirs.user_cache_dir("tenure", appauthor=False))


def fetch_jar(progress: Progress | None = None, *, folder: Path | None = None, sha256: str = JAR_SHA256) -> Path:
    """The path of the checked jar, fetched if it is not in the cache. Blocks: call it in a thread."""
    folder = folder or cache_dir()
    jar = folder / f"hazelcast-{HAZELCAST_VERSION}-{sha256[:12]}.jar"
    if jar.exists() and _sha256(jar) == sha256:
        return jar
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workplace = tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder)
    except OSError as error:
        raise JarUnavailable(
            f"Hazelcast's jar can't be kept in {folder}: {error.strerror or error}.",
            "Make the folder writable, or set TENURE_CACHE_DIR to another one.",
        ) from error
    with workplace as temporary:
        fetched = _fetch(Path(temporary), progress)
        found = _sha256(fetched)
        if found != sha256:
            raise ChecksumMismatch(
                f"What came as {_GROUP}:{_ARTIFACT}:{HAZELCAST_VERSION} has the SHA-256 {found}, not {sha256}.",
                "It was thrown away. Look at the Maven repository or proxy that it came from, then try again.",
            )
        fetched.replace(jar)
    return jar


async def jar_fetched(progress: Progress | None = None) -> Path:
    """As `fetch_jar`, in a thread. It can be cancelled: what was fetched is thrown away then, at the latest by the
    thread when it comes to its end, or at the end of this process."""
    given_up, ended = threading.Event(), threading.Event()

    @contextmanager
    def heeding(name: str, size: int) -> Iterator[Callable[[int], None]]:
        with progress(name, size) if progress is not None else nullcontext(lambda _count: None) as advance:

            def on_bytes(count: int) -> None:
                if given_up.is_set():
                    raise JarUnavailable("Nobody waits for Hazelcast's jar any more.", "Fetch it again.")
                advance(count)

            yield on_bytes

    def fetch() -> Path:
        try:
            return fetch_jar(heeding)
        finally:
            ended.set()

    try:
        return await trio.to_thread.run_sync(fetch, abandon_on_cancel=True)
    finally:
        given_up.set()
        with trio.move_on_after(_GIVEN_UP_WITHIN_S, shield=True):
            while not ended.is_set():  # noqa: ASYNC110  # set in a thread that may be left behind
                await trio.sleep(0.01)


def _fetch(folder: Path, progress: Progress | None) -> Path:
    try:
        # Imported here: it is slow, and not needed once the jar is there.
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise JarUnavailable(
            "Hazelcast's jar is not in the cache, and `jgo`, which fetches it, is not installed.",
            "Run `pip install jgo`.",
        ) from error
    user = GlobalSettings.load()  # a user's own mirrors and local repository count
    local = user.repo_cache / _GROUP.replace(".", "/") / _ARTIFACT / HAZELCAST_VERSION
    for known in local.glob(f"{_ARTIFACT}-{HAZELCAST_VERSION}.jar"):
        if _sha256(known) == JAR_SHA256:
            return Path(shutil.copy(known, folder))
    repositories = dict(user.repositories) or None
    maven = MavenContext(
        resolver=PythonResolver(progress_callback=progress),
        repo_cache=folder,
        local_repos=[],
        remote_repos=repositories,
        timeout=_FETCH_TIMEOUT_S,
    )
    try:
        return Path(maven.project(_GROUP, _ARTIFACT).at_version(HAZELCAST_VERSION).artifact().resolve())
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        raise JarUnavailable(
            f"Hazelcast's jar ({_GROUP}:{_ARTIFACT}:{HAZELCAST_VERSION}) could not be fetched: {_in_short(error)}.",
            "Check the network, or name a mirror in jgo's settings (`repositories`); once fetched, it is kept.",
        ) from error


def _in_short(error: Exception) -> str:
    """The first line of the innermost cause: what requests wraps around it fills a screen."""
    reason: BaseException = error
    while (inner := reason.__cause__ or reason.__context__) is not None:
        reason = inner
    text = str(reason).strip() or type(reason).__name__
    return text.splitlines()[0].rstrip(".")[:300]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rich_progress() -> Progress:
    """A progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    @contextmanager
    def show(name: str, size: int):  # type: ignore[no-untyped-def]  # the context manager's type says it all
        columns = TextColumn("Fetching {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=size)
            yield lambda count: bar.advance(task, count)

    return show
