"""The command: which measurements to make, each in a process of its own, and what is printed.

Figures are of the machine as it is: `load` and, where it makes sense, figures per second of CPU time stand beside them.
"""

import argparse
import json
import os
from collections.abc import Awaitable, Callable

import trio

from tenure.arguments import Parser, chosen
from tenure.bench.apart import Figures, in_own_process, measure_each, times

__all__ = ["main"]

TIMEOUT_S = 600.0


def main(arguments: list[str]) -> int:
    """Measure; 0 if every sum was right, 1 if not, 2 for wrong usage."""
    if arguments[:1] == ["spark"]:
        from tenure.bench import spark

        return spark.main(arguments[1:])
    if arguments[:1] == ["operations"]:
        from tenure.bench import operations

        return operations.main(arguments[1:])
    parser = _parser()
    try:
        options = parser.parse(arguments)
        measurements = _measurements(options.grid)
        names = chosen(parser, options.only, measurements)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    if options.here:  # the one measurement of this process
        print(json.dumps(trio.run(measurements[names[0]])))  # noqa: T201
        return 0
    results: Figures = {
        "grid": options.grid,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "exact": True,
    }
    return measure_each(
        results, names, lambda name: _in_own_process(options.grid, name), options.repeat, as_json=options.json
    )


def _parser() -> Parser:
    parser = Parser(prog="tenure bench", description="Measure Tenure on this machine. Every run verifies its sums.")
    parser.add_argument(
        "--grid", choices=["hazelcast", "memory"], default="hazelcast", help="what to run on (default: hazelcast)"
    )
    parser.add_argument("--only", metavar="NAME,…", help="only these measurements")
    parser.add_argument("--repeat", type=times, default=1, metavar="N", help="each so many times; the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


def _measurements(grid: str) -> dict[str, Callable[[], Awaitable[Figures]]]:
    if grid == "memory":
        from tenure.bench.memory import MEASUREMENTS

        return MEASUREMENTS
    from tenure.bench.hazelcast import MEASUREMENTS

    return MEASUREMENTS


def _in_own_process(grid: str, name: str) -> Figures:
    return in_own_process(["--grid", grid], name, TIMEOUT_S)
