"""The archive of loaded classes that halves a member's start, or better; one per Java and jar.

Java takes it if it fits, and ignores it otherwise. It is written when a Java that was told so exits in
peace, under another name first, so that no member ever maps half of one.

From Java 25 on it is an ahead-of-time cache: classes already linked, with profiles of what ran often.
"""

import hashlib
import os
from pathlib import Path

from tenure.members.java import Java

__all__ = ["Archive"]

_AHEAD_OF_TIME_FROM = 25
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")  # that an archive does not fit is no news to anybody


class Archive:
    """Where it is kept, and how Java is told."""

    def __init__(self, folder: Path, java: Java, jar: Path) -> None:
        # Two builds of one version don't fit each other.
        build = hashlib.blake2b(str(java.executable).encode(), digest_size=4).hexdigest()
        self._ahead_of_time = java.major >= _AHEAD_OF_TIME_FROM
        suffix = "aot" if self._ahead_of_time else "jsa"
        self.path = folder / f"{jar.stem}-java{java.version.replace('/', '_')}-{build}.{suffix}"
        self._unfinished = folder / f".{os.getpid()}-{os.urandom(4).hex()}-{self.path.name}"
        self._hopeless = self.path.with_suffix(".none")

    @property
    def wanted(self) -> bool:
        """It is not there, and this Java has not failed to make one."""
        return not self.path.exists() and not self._hopeless.exists()

    def options(self) -> list[str]:
        """Use it, or have it written at the end."""
        if self.path.exists():
            use = "-XX:AOTCache" if self._ahead_of_time else "-XX:SharedArchiveFile"
            return [f"{use}={self.path}", *_QUIET]
        if not self.wanted:
            return []
        write = "-XX:AOTCacheOutput" if self._ahead_of_time else "-XX:ArchiveClassesAtExit"
        return [f"{write}={self._unfinished}", *_QUIET]

    def keep(self) -> None:
        """Put in place what the member wrote on its way out; it may not have been asked to, or not been able to."""
        try:
            self._unfinished.replace(self.path)
        except OSError:
            if not self.path.exists():
                self._hopeless.touch()

    def discard(self) -> None:
        """The member did not end in peace: what it may have begun to write is of no use."""
        for path in self._unfinished, self._unfinished.with_name(f"{self._unfinished.name}.config"):
            path.unlink(missing_ok=True)
