"""Topics as sources and sinks: files between a pipeline's job, which takes and publishes messages, and its driver.

    topic ──► job ── turn: kept in its state ── commit ── turn: written ──► STATE/topic/000000000017.jsonl ──► driver
    topic ◄── job ── turn: read and published ◄── STATE/results/part-000000012 ◄── driver, batch by batch

What is written was committed in the job before, as the word to write it leaves with that commit and says how far it
goes: however often a turn is tried, and by whom, a file begins with the same messages.
What is published takes effect with the job's turn, once.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from tenure.jobs.pipelines.growing import Line, Place

__all__ = ["TOPIC_RESULTS", "TopicFiles", "read_some", "write_messages"]

TOPIC_RESULTS = "results"
TOPIC_MESSAGES = "topic"


def write_messages(state: Path, first: int, messages: list[str]) -> int:
    """Write messages, numbered from `first`. How many of them a file has now: an earlier try may have known fewer."""
    folder = state / TOPIC_MESSAGES
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first:012}.jsonl"
    aside = folder / f".{path.name}-{os.getpid()}"
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(f"{message}\n" for message in messages)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(aside, path)
    except FileExistsError:
        return path.read_bytes().count(b"\n")
    finally:
        aside.unlink()
    return len(messages)


class TopicFiles:
    """The messages of a topic as lines, for a feeder: as `Growing` is for files."""

    columns = None

    def __init__(self, state: Path, topic: str) -> None:
        self._folder, self._topic = state / TOPIC_MESSAGES, topic

    def new_lines(self, places: Mapping[str, Place], *, at_end: bool = False) -> Iterator[Line]:
        """Messages from the first that was not taken, without a gap."""
        taken = places.get(self._topic, Place()).line
        for path in sorted(self._folder.glob("[0-9]*.jsonl")):
            first = int(path.stem)
            if first > taken:
                return  # what is between is still being written
            with path.open(encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, first):
                    if number == taken:
                        taken += 1
                        yield Line(f"{self._topic}:{number}", line.removesuffix("\n"), self._topic, Place(0, taken))

    def forget(self, places: Mapping[str, Place]) -> None:
        """Files whose messages were all taken go."""
        taken = places.get(self._topic, Place()).line
        paths = sorted(self._folder.glob("[0-9]*.jsonl"))
        for path, following in pairwise(paths):
            if int(following.stem) <= taken:
                path.unlink(missing_ok=True)


def read_some(path: Path, at: int, lines_max: int) -> tuple[list[bytes], int]:
    """Lines of a file from a position on, and where the next one begins; no lines: there are no more, or no file."""
    if not path.exists():
        return [], at
    with path.open("rb") as file:
        file.seek(at)
        lines = [line for _, line in zip(range(lines_max), file, strict=False)]
    return lines, at + sum(map(len, lines))
