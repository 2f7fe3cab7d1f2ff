"""Log files that don't grow without end."""

from collections import deque
from contextlib import suppress
from pathlib import Path

__all__ = ["BoundedLog", "remark"]

TAIL_LINES = 40
TAIL_BYTES_MAX = 16 * 1024


def remark(text: str) -> None:
    """A line for people, in `wrapper.log`. Where the disk is full it is lost, and nothing else is."""
    with suppress(OSError, ValueError):
        print(text, flush=True)  # noqa: T201


class BoundedLog:
    """`path` has the newest part; what was before it is in `path.1`. Together they have at most `bytes_max`."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self.path, self._half = path, max(1, bytes_max // 2)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def write(self, data: bytes) -> None:
        """Add what a process said."""
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) > TAIL_BYTES_MAX:
            self._tail_bytes -= len(self._tail.popleft())
        while data:
            if self._size >= self._half:
                self._turn_over()
            part = data[: self._half - self._size]
            self._file.write(part)
            self._size += len(part)
            data = data[len(part) :]

    def _turn_over(self) -> None:
        """Raises `OSError` where no new file can be made: what is written then is lost, and the next try may do it."""
        with suppress(FileNotFoundError):  # it is turned over already, or somebody has removed it
            self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        new = self.path.open("ab", buffering=0)
        self._file.close()
        self._file, self._size = new, 0

    def tail(self) -> str:
        """The last lines."""
        text = b"".join(self._tail)[-TAIL_BYTES_MAX:].decode(errors="replace")
        return "\n".join(text.splitlines()[-TAIL_LINES:])

    def close(self) -> None:
        self._file.close()
