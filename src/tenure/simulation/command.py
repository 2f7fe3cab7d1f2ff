"""`tenure simulate`: run seeds, and say what they came to."""

import argparse
import sys
import traceback
from collections.abc import Sequence

from tenure.arguments import Parser
from tenure.simulation.mutants import DEFENCES, without
from tenure.simulation.report import Summary
from tenure.simulation.run import Outcome, run_seed
from tenure.simulation.workloads import BULK, NOT_YET, OTHERS, SAVING, SPECIAL

__all__ = ["main"]

TRACE_LINES = 60
PROGRESS_SEEDS = 100
FAILED, USAGE = 1, 2
WORKLOADS = (*BULK, *OTHERS, *SAVING, *SPECIAL, *NOT_YET)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no violation, 1: violations, or the simulator itself broke, which it says; 2: wrong usage."""
    try:
        options = _parser().parse(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else USAGE
    if options.list_defences:
        _say("\n".join(DEFENCES))
        return 0
    try:
        return _simulate(options)
    except Exception:  # noqa: BLE001 - whatever it is, it must not look like a violation
        _warn(f"the simulator broke; this says nothing about the engine\n{traceback.format_exc()}")
        return FAILED


def _parser() -> Parser:
    parser = Parser(
        prog="tenure simulate",
        description="Run simulated clusters through every hazard of a grid, and check every promise.",
    )
    parser.add_argument("--seeds", type=_positive, default=100, metavar="N", help="how many runs")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="S", help="the first seed")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--trace", action="store_true", help="print everything that happened in each run")
    parser.add_argument("--keep-going", action="store_true", help="don't stop at the first seed with a violation")
    parser.add_argument("--without", choices=DEFENCES, metavar="DEFENCE", help="switch off a defence of the engine")
    parser.add_argument(
        "--workload", action="append", choices=[type.__name__ for type in WORKLOADS], metavar="NAME", dest="workloads",
        help="only this one (may be said again); without it each seed draws its own",
    )  # fmt: skip
    parser.add_argument("--list-defences", action="store_true", help="name them, one a line")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {number}")
    return number


def _simulate(options: argparse.Namespace) -> int:
    summary = Summary()
    chosen = [type for type in WORKLOADS if type.__name__ in (options.workloads or ())]
    with without(options.without):
        for seed in range(options.first, options.first + options.seeds):
            outcome = run_seed(seed, detailed=options.trace, workloads=chosen)
            summary.add(outcome)
            if outcome.violations or options.trace:
                _show(outcome, options)
            if outcome.violations and not options.keep_going:
                break
            _show_progress(summary, options)
    if not options.json:
        _say(
            f"{summary.seeds} seeds, {summary.violations} violations; {summary.seeds_per_minute:.0f} seeds a minute; "
            f"{summary.acknowledged} operations acknowledged, {sum(summary.faults.values())} faults, "
            f"{summary.calm_success:.1%} of operations outside faults succeeded"
        )
    else:
        _say(summary.line())
    return FAILED if summary.violations else 0


def _show_progress(summary: Summary, options: argparse.Namespace) -> None:
    """Every now and then, for whoever sits in front of a terminal."""
    if summary.seeds % PROGRESS_SEEDS == 0 and summary.seeds < options.seeds and sys.stderr.isatty():
        _warn(f"{summary.seeds} of {options.seeds} seeds, {summary.violations} violations")


def _show(outcome: Outcome, options: argparse.Namespace) -> None:
    # With --json, whatever is no JSON goes where people look.
    tell = _warn if options.json else _say
    lines = None if options.trace else TRACE_LINES
    tell(f"seed {outcome.seed} ({', '.join(outcome.workloads)}):\n{outcome.trace.text(lines)}")
    for violation in outcome.violations:
        tell(f"violation in seed {outcome.seed}: {violation}")
    if outcome.violations:
        mutant = f" --without {options.without}" if options.without else ""
        mutant += "".join(f" --workload {name}" for name in options.workloads or ())
        tell(f"replay: tenure simulate --from {outcome.seed} --seeds 1 --trace{mutant}\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _warn(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
