"""Measurements apart from each other: each in a process of its own, not disturbed by what others left in memory."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tenure
from tenure.bench.figures import combine, median_of, shown
from tenure.scheduler.errors import TryAgain

__all__ = ["Figures", "NotMeasured", "figures_of", "in_own_process", "measure_each", "times"]

Figures = dict[str, Any]


class NotMeasured(TryAgain):
    """A measurement did not come to its end."""


def times(text: str) -> int:
    """How often to measure, as an argument."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return count


def measure_each(
    results: Figures, names: Iterable[str], measure: Callable[[str], Figures], repeat: int, *, as_json: bool
) -> int:
    """Measure each so many times, add the medians to `results`, and print them. 0 if all was exact, else 1."""
    for name in names:
        tries = [measure(name) for _ in range(repeat)]
        for figures in tries:
            print(f"{name}: {shown(figures)}", file=sys.stderr, flush=True)  # noqa: T201
        combine(results, median_of(tries))
    print(json.dumps(results) if as_json else shown(results))  # noqa: T201
    return 0 if results["exact"] else 1


def in_own_process(arguments: Sequence[str], name: str, timeout_s: float) -> Figures:
    """One of `python -m tenure.bench ARGUMENTS`."""
    return figures_of(["tenure.bench", *arguments, "--only", name, "--here"], name, timeout_s)


def figures_of(module: Sequence[str], name: str, timeout_s: float) -> Figures:
    """What `python -m MODULE` prints as its last line."""
    folder = str(Path(tenure.__file__).parents[1])
    path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(
            f"{name} could not be measured: it was not done after {timeout_s:g} s, and was ended. Measure it alone "
            f"(--only {name}), and when the machine has less to do"
        ) from error
    if done.returncode:
        raise NotMeasured(f"{name} could not be measured: its process ended with {done.returncode}, and said why above")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures
