"""`tenure bench operations`: what an operator does to a running cluster, under steady load, the ledger exact in each.

Each part is a module of its own with an async function that returns its figures, imported when it is measured.
"""

import argparse
import importlib
import json
import os
import sys
from typing import Any

import trio

from tenure.arguments import Parser, chosen
from tenure.bench.apart import NotMeasured, in_own_process, measure_each, times

__all__ = ["PARTS", "main"]

TIMEOUT_S = 1200.0
PARTS = {
    "member-change": "scaling:measure_member_change",
    "autoscale": "scaling:measure_autoscale",
    "rolling": "rolling:measure",
    "snapshot": "snapshots:measure",
}
"""name -> module of this package, and its function"""


def main(arguments: list[str]) -> int:
    """Measure; 0 if every ledger was exact, 1 if not, 2 for wrong usage."""
    parser = _parser()
    try:
        options = parser.parse(arguments)
        names = chosen(parser, options.only, PARTS)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    if options.here:  # the one part of this process
        module, _, function = PARTS[names[0]].partition(":")
        try:
            figures = trio.run(getattr(importlib.import_module(f"tenure.bench.{module}"), function))
        except NotMeasured as error:
            print(f"tenure bench: {error}", file=sys.stderr)  # noqa: T201
            return 1
        print(json.dumps(figures))  # noqa: T201
        return 0
    results: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "exact": True}

    def measure(name: str) -> dict[str, Any]:
        return in_own_process(["operations"], name, TIMEOUT_S)

    return measure_each(results, names, measure, options.repeat, as_json=options.json)


def _parser() -> Parser:
    parser = Parser(prog="tenure bench operations", description="Measure operations on a running cluster, under load.")
    parser.add_argument("--only", metavar="NAME,…", help=f"only these parts ({', '.join(PARTS)})")
    parser.add_argument("--repeat", type=times, default=1, metavar="N", help="each so many times; the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser
