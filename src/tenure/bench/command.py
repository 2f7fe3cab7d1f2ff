"""The command: which measurements to make, each in a process of its own, and what is printed.

Figures are of the machine as it is: `load` and, where it makes sense, figures per second of CPU time stand beside them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

import tenure
from tenure.bench.figures import combine, median_of, shown
from tenure.scheduler.errors import TryAgain

__all__ = ["main"]

Figures = dict[str, Any]
TIMEOUT_S = 600.0


class NotMeasured(TryAgain):
    """A measurement did not come to its end."""


def main(arguments: list[str]) -> int:
    """Measure; 0 if every sum was right, 1 if not, 2 for wrong usage."""
    if arguments[:1] == ["spark"]:
        from tenure.bench import spark

        return spark.main(arguments[1:])
    if arguments[:1] == ["operations"]:
        from tenure.bench import operations

        return operations.main(arguments[1:])
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    measurements = _measurements(options.grid)
    names = options.only.split(",") if options.only else list(measurements)
    if unknown := [name for name in names if name not in measurements]:
        print(f"tenure bench: no measurement {unknown[0]!r}; there are {', '.join(measurements)}.", file=sys.stderr)  # noqa: T201
        return 2
    if options.here:  # the one measurement of this process
        print(json.dumps(trio.run(measurements[names[0]])))  # noqa: T201
        return 0
    results: Figures = {
        "grid": options.grid,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "exact": True,
    }
    for name in names:
        tries = [_in_own_process(options.grid, name) for _ in range(options.repeat)]
        for figures in tries:
            _say(f"{name}: {shown(figures)}")
        combine(results, median_of(tries))
    print(json.dumps(results) if options.json else shown(results))  # noqa: T201
    return 0 if results["exact"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tenure bench", description="Measure Tenure on this machine. Every run verifies its sums."
    )
    parser.add_argument(
        "--grid", choices=["hazelcast", "memory"], default="hazelcast", help="what to run on (default: hazelcast)"
    )
    parser.add_argument("--only", metavar="NAME,…", help="only these measurements")
    parser.add_argument("--repeat", type=_count, default=1, metavar="N", help="each so many times; the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return count


def _measurements(grid: str) -> dict[str, Callable[[], Awaitable[Figures]]]:
    if grid == "memory":
        from tenure.bench.memory import MEASUREMENTS

        return MEASUREMENTS
    from tenure.bench.hazelcast import MEASUREMENTS

    return MEASUREMENTS


def _in_own_process(grid: str, name: str) -> Figures:
    """One measurement, not disturbed by what others left in memory."""
    folder = str(Path(tenure.__file__).parents[1])
    path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
    command = [sys.executable, "-m", "tenure.bench", "--grid", grid, "--only", name, "--here"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise NotMeasured(f"{name} could not be measured: its process ended with {done.returncode}, and said why above")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
