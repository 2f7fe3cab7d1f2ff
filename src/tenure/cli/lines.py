"""Lines of standard input as they come: many at once where there are many, and few where more are long in coming."""

import os
import select
import time

__all__ = ["CHUNK_LINES", "LINE_BYTES_MAX", "LineReader"]

CHUNK_LINES = 5_000
CHUNK_BYTES = 8 * 2**20
"""Lines may be as long as messages; so many together are not."""
LINE_BYTES_MAX = 16 * 2**20
"""No message is so long, however it is written. Of a line that is, only so much is kept, and one byte more."""
GATHER_S = 0.2
"""So long may lines wait for others to be sent with. Whoever follows a log sees its messages stored as they come."""
READ_BYTES = 1 << 20


class LineReader:
    """Reads a file descriptor that nobody else reads. Lines are bytes: whether each is text is looked at later."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._partial: list[bytes] = []
        """A line whose end has not been seen."""
        self._partial_bytes = 0
        self._number = 0
        self._ended = False

    async def chunk(self) -> list[tuple[int, bytes]]:
        """The next lines with their numbers from 1, at most `CHUNK_LINES`; none: that was all."""
        import trio

        return await trio.to_thread.run_sync(self._chunk, abandon_on_cancel=True)  # nothing is read after that

    def _chunk(self) -> list[tuple[int, bytes]]:
        self._gather()
        taken = self._lines[:CHUNK_LINES]
        del self._lines[:CHUNK_LINES]
        self._lines_bytes -= sum(map(len, taken))
        first = self._number + 1
        self._number += len(taken)
        return list(enumerate(taken, first))

    def _gather(self) -> None:
        while not self._lines and not self._ended:
            self._read()
        end_s = time.monotonic() + GATHER_S
        while len(self._lines) < CHUNK_LINES and self._lines_bytes < CHUNK_BYTES and not self._ended:
            ready, _, _ = select.select([self._source], [], [], max(0.0, end_s - time.monotonic()))
            if not ready:
                return
            self._read()

    def _read(self) -> None:
        data = os.read(self._source, READ_BYTES)
        if not data:
            self._ended = True
            if self._partial:
                self._end_line()
            return
        first, *others = data.split(b"\n")
        self._begin_line(first)
        if others:
            self._end_line()
            *whole, begun = others
            self._lines += whole
            self._lines_bytes += sum(map(len, whole))
            self._begin_line(begun)

    def _begin_line(self, text: bytes) -> None:
        kept = text[: LINE_BYTES_MAX + 1 - self._partial_bytes]
        if kept:
            self._partial.append(kept)
            self._partial_bytes += len(kept)

    def _end_line(self) -> None:
        self._lines.append(b"".join(self._partial))
        self._lines_bytes += self._partial_bytes
        self._partial, self._partial_bytes = [], 0
