"""Feeding a stream: what is new in the source goes into the intake, no faster than asked, and not far ahead."""

import threading
import time
from collections.abc import Callable
from itertools import islice

from tenure.jobs.pipelines.growing import Growing, Line
from tenure.jobs.pipelines.intake import Intake
from tenure.jobs.pipelines.sources import Files, TopicSource
from tenure.jobs.pipelines.topics import TopicFiles

__all__ = ["Feeder"]

LOOK_EVERY_S = 0.1
AHEAD_CHUNKS_MAX = 2
CHUNK_CHARS_MAX = 64 * 2**20


class Feeder:
    """Moves records from a source that grows to an intake, in a thread of its own."""

    def __init__(
        self,
        source: Files | TopicSource,
        growing: Growing | TopicFiles,
        intake: Intake,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._source, self._growing, self._intake = source, growing, intake
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._done = -1
        self._clock, self._pause = clock, pause or self.stopping.wait
        self._moved = self._counted = clock()
        self._allowance = 0.0

    def done(self, chunk: int) -> None:
        """The chunk was processed."""
        self._done = max(self._done, chunk)

    def run(self) -> None:
        """Until the stream has ended, or `stopping` is set. What goes wrong is in `error`."""
        try:
            while not self.stopping.is_set() and not self.step():
                self._pause(LOOK_EVERY_S)
        except Exception as error:  # noqa: BLE001  # whoever waits for the stream raises it
            self.error = error

    def step(self) -> bool:
        """Move what may be moved now. True: the stream has ended."""
        if self._intake.last - self._done >= AHEAD_CHUNKS_MAX:
            self._moved = self._clock()  # what waits to be processed is no silence of the source
            return False
        idle_s = self._source.idle_s
        over = idle_s is not None and self._clock() - self._moved >= idle_s
        if lines := self._new_lines(at_end=over):
            if self._intake.append(lines, self._growing.columns):
                self._allowance -= len(lines)
            if not over:
                self._moved = self._clock()
            return False
        return over and (self._intake.ended or self._intake.append([], self._growing.columns, ended=True))

    def _new_lines(self, *, at_end: bool) -> list[Line]:
        lines: list[Line] = []
        chars = 0
        for line in islice(self._growing.new_lines(self._intake.places, at_end=at_end), self._most()):
            lines.append(line)
            chars += len(line.text)
            if chars > CHUNK_CHARS_MAX:
                break
        return lines

    def _most(self) -> int:
        """How many records may come now. The rate allows for a second's worth at once, no more."""
        most, rate = self._source.max_batch_records, self._source.rate
        if rate is None:
            return most
        now = self._clock()
        self._allowance = min(max(rate, 1.0), self._allowance + (now - self._counted) * rate)
        self._counted = now
        return min(most, int(self._allowance))
