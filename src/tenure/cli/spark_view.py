"""How a run looks while it goes on: a live view on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from tenure.cli.show import print_json, say
from tenure.jobs.pipelines import Pipeline

__all__ = ["State", "View", "view_for"]

PLAIN_EVERY_S = 5.0


class View(Protocol):
    """Sees a run again and again, as `describe` tells of its activity."""

    def hear(self, activity: Mapping[str, Any]) -> None: ...


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
    """One object whenever something is new."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def hear(self, activity: Mapping[str, Any]) -> None:
        """Print it, if it is not what was printed last."""
        now = {name: activity[name] for name in ("status", "attempt", "progress", "details", "error")}
        if now != self._last:
            self._last = now
            print_json(now)


class State:
    """Where a run stands, in words, and how fast it goes."""

    def __init__(self, name: str) -> None:
        self.name, self.done, self.total = name, 0, 0
        self._activity: Mapping[str, Any] = {"status": "wanted", "attempt": 1, "progress": None, "details": {}}

    def hear(self, activity: Mapping[str, Any]) -> None:
        """Take in what `describe` tells."""
        self._activity = activity
        self.done, self.total = activity["progress"] or (0, 0)

    def sentence(self) -> str:
        """All of it on one line."""
        details, attempt = self._activity["details"], self._activity["attempt"]
        stage, metrics = details.get("stage", {}), details.get("metrics", {})
        parts = [f"attempt {attempt}"] if attempt > 1 else []
        if stage.get("of"):
            parts.append(f"stage {stage['number']} of {stage['of']}")
        parts.append(f"{self.done} of {self.total} tasks" if self.total else "starting Spark")
        if executors := metrics.get("executors"):
            parts.append(f"{executors:,.0f} executors")
        if metrics.get("batches"):
            parts.append(f"{metrics['batches']:,.0f} batches")
        if records := metrics.get("records_read"):
            parts.append(f"{records:,.0f} records read, {metrics.get('records_per_s', 0):,.0f} a second")
        if late := metrics.get("late_records"):
            parts.append(f"{late:,.0f} came too late")
        return f"{self.name}: {', '.join(parts)}"


class PlainView:
    """A line every few seconds, if there is something new to tell."""

    def __init__(self, name: str) -> None:
        self._state, self._told, self._last = State(name), time.monotonic(), ""
        self._tell()

    def hear(self, activity: Mapping[str, Any]) -> None:
        """Tell it, if the last line is old enough."""
        self._state.hear(activity)
        if time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._tell()

    def _tell(self) -> None:
        if (sentence := self._state.sentence()) != self._last:
            say(sentence)
            self._told, self._last = time.monotonic(), sentence


@contextmanager
def _live(pipeline: Pipeline) -> Iterator[View]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        state = State(pipeline.name)
        task = bar.add_task(state.sentence(), total=None)

        class Live:
            def hear(self, activity: Mapping[str, Any]) -> None:
                state.hear(activity)
                bar.update(task, description=state.sentence(), completed=state.done, total=state.total or None)

        yield Live()
