"""`tenure simulate` and `tenure bench`: the arguments go through to where they are understood."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

__all__ = ["bench", "run", "simulate"]

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]


def simulate(*arguments: Arguments) -> int:
    """Run seeded simulations with faults, and check the promises. See `tenure simulate --help`."""
    return run("simulate", arguments)


def bench(*arguments: Arguments) -> int:
    """Measure throughput, latency and pauses; every run verifies its sums. See `tenure bench --help`."""
    return run("bench", arguments)


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a proof with its own arguments; its exit code."""
    import importlib

    module = importlib.import_module("tenure.simulation" if name == "simulate" else "tenure.bench")
    code: int = module.main(list(arguments))
    return code
