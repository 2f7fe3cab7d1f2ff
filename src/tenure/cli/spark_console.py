"""What a pipeline prints, copied to standard output as it comes."""

import sys
from pathlib import Path

from tenure.cli.show import print_json

__all__ = ["Console"]

COPY_BYTES = 2**20


class Console:
    """Follows a file that grows. As JSON, each of its lines is an object: `{"output": "key: value"}`."""

    def __init__(self, path: Path, *, as_json: bool = False) -> None:
        self._path, self._at, self._as_json = path, 0, as_json
        self._begun = b""
        """Of a line whose end has not come yet."""

    def copy(self) -> bool:
        """Print what is new. False: nothing was."""
        before = self._at
        with self._path.open("rb") as file:
            file.seek(self._at)
            while data := file.read(COPY_BYTES):
                self._at += len(data)
                self._print(data)
        sys.stdout.flush()
        return self._at > before

    def end(self) -> None:
        """Print what is left."""
        self.copy()
        if self._begun:
            self._print(b"\n")

    def _print(self, data: bytes) -> None:
        if not self._as_json:
            sys.stdout.buffer.write(data)
            return
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            print_json({"output": line.decode(errors="replace")})
