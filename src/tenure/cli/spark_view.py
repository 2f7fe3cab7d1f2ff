"""How a run looks while it goes on: a live view on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tenure.cli.show import print_json, say
from tenure.jobs.pipelines import Pipeline

__all__ = ["View", "view_for"]

PLAIN_EVERY_S = 5.0


class View(Protocol):
    """Hears what a run reports."""

    def hear(self, said: dict[str, Any]) -> None: ...


@contextmanager
def view_for(pipeline: Pipeline, *, as_json: bool) -> Iterator[View]:
    """The view that fits where it is seen."""
    if as_json:
        yield JsonView()
    elif sys.stderr.isatty():
        with _live(pipeline) as view:
            yield view
    else:
        yield PlainView(pipeline.name)


class JsonView:
    """One object a report."""

    def hear(self, said: dict[str, Any]) -> None:
        print_json(said)


class State:
    """The last of each thing that was reported, and rates."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.monotonic()
        self.done = self.total = 0
        self.stage: dict[str, Any] = {}
        self.metrics: dict[str, float] = {}
        self.rate = 0.0
        self._counted = (self.began, 0.0)

    def hear(self, said: dict[str, Any]) -> None:
        """Take a report in."""
        self.done, self.total = said.get("progress", (self.done, self.total))
        self.stage = said.get("stage", self.stage)
        self.metrics |= said.get("metrics", {})
        records, now = self.metrics.get("records_read", 0.0), time.monotonic()
        then, before = self._counted
        if now - then >= 1.0:
            self.rate, self._counted = (records - before) / (now - then), (now, records)

    def sentence(self) -> str:
        """All of it on one line."""
        parts = [f"{self.done} of {self.total} tasks"] if self.total else ["starting Spark"]
        if self.stage.get("of"):
            parts.insert(0, f"stage {self.stage['number']} of {self.stage['of']}")
        if self.stage.get("batch") is not None:
            parts.append(f"batch {self.stage['batch']}")
        if records := self.metrics.get("records_read"):
            parts.append(f"{records:,.0f} records read, {self.rate:,.0f} a second")
        return f"{self.name}: {', '.join(parts)}"


class PlainView:
    """A line every few seconds."""

    def __init__(self, name: str) -> None:
        self._state, self._told = State(name), time.monotonic()
        say(self._state.sentence())

    def hear(self, said: dict[str, Any]) -> None:
        """Tell it, if the last line is old enough."""
        self._state.hear(said)
        if time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            say(self._state.sentence())


@contextmanager
def _live(pipeline: Pipeline) -> Iterator[View]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        state = State(pipeline.name)
        task = bar.add_task(state.sentence(), total=None)

        class Live:
            def hear(self, said: dict[str, Any]) -> None:
                state.hear(said)
                bar.update(task, description=state.sentence(), completed=state.done, total=state.total or None)

        yield Live()
