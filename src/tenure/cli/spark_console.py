"""What a pipeline prints, copied to standard output as it comes."""

import sys
from pathlib import Path

__all__ = ["Console"]

COPY_BYTES = 2**20


class Console:
    """Follows a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def copy(self) -> bool:
        """Print what is new. False: nothing was."""
        before = self._at
        with self._path.open("rb") as file:
            file.seek(self._at)
            while data := file.read(COPY_BYTES):
                self._at += len(data)
                sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return self._at > before
