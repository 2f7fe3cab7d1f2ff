"""`tenure bench spark`: what pipelines cost, how quick a warm submission is, and whether they survive kills.

Each measurement verifies its results; the last line has runs, wrong, doubled_drivers, orphans, overhead_ratio,
command_records_per_s and warm_start_s.
"""

import json
import os
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import trio

import tenure
from tenure.arguments import Parser, chosen
from tenure.bench.apart import figures_of, times
from tenure.bench.figures import shown
from tenure.bench.spark_kills import OTHERS, TARGETS, Verdict, kills_of, run_with_kills

__all__ = ["main"]

MEASUREMENTS = ("overhead", "command", "warm", "kills")
TIMEOUT_S = 3600.0
WITHIN_S = 12.0
APPLICATION = Path(__file__).parent / "spark_application.py"


def main(arguments: Sequence[str]) -> int:
    """Measure; 0 if every result was right, 1 if not, 2 for wrong usage."""
    parser = _parser()
    try:
        options = parser.parse(arguments)
        names = chosen(parser, options.only, MEASUREMENTS)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    results: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for name in names:
        if name == "kills":
            figures = trio.run(_kills, options.kills, options.seed)
        elif name == "warm":
            from tenure.bench.spark_warm import measure_warm_start

            figures = trio.run(measure_warm_start)
        else:
            figures = figures_of(["tenure.jobs.spark.measuring", name], name, TIMEOUT_S)
        _say(f"{name}: {shown(figures)}")
        results |= figures
    print(json.dumps(results) if options.json else shown(results))  # noqa: T201
    short = "kills" in names and results["runs"] < options.kills
    return 1 if short or results.get("wrong") or results.get("doubled_drivers") or results.get("orphans") else 0


def _parser() -> Parser:
    parser = Parser(prog="tenure bench spark", description="Measure pipelines on Spark.")
    parser.add_argument("--only", metavar="NAME,…", help=f"only these of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--kills", type=times, default=6, metavar="N", help="runs in which something is killed")
    parser.add_argument("--seed", type=int, default=None, help="what is killed, and when")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    return parser


async def _kills(runs: int, seed: int | None) -> dict[str, Any]:
    """So many runs with a kill, in turn as a batch and as a stream, on three members and two nodes.

    Those that were over before anything was killed are judged too, but do not count.
    """
    from tenure.testing import Cluster

    seed = secrets.randbelow(2**32) if seed is None else seed
    random = Random(seed)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="tenure-kills-") as name:
        async with Cluster(nodes=2, members=3, grid="hazelcast", app=str(APPLICATION)) as cluster:
            while (killed := sum(bool(verdict.kills) for verdict in verdicts)) < runs and len(verdicts) < 2 * runs:
                verdicts.append(await _one(cluster, Path(name), len(verdicts), random))
                _say(f"run {killed + 1} of {runs}: {verdicts[-1]}")
    victims = Counter(victim for verdict in verdicts for victim in verdict.kills)
    return {
        "seed": seed,
        "runs": sum(bool(verdict.kills) for verdict in verdicts),
        "runs_over_before": sum(not verdict.kills for verdict in verdicts),
        "killed": dict(sorted(victims.items())),
        "wrong": sum(not verdict.right for verdict in verdicts),
        "doubled_drivers": sum(verdict.drivers_at_once > 1 for verdict in verdicts),
        "orphans": sum(len(verdict.orphans) for verdict in verdicts),
    }


async def _one(cluster: "tenure.testing.Cluster", folder: Path, number: int, random: Random) -> Verdict:
    async with cluster.client() as client:
        id = f"run-{number}"
        return await run_with_kills(
            client,
            id,
            folder / str(number),
            random,
            streaming=bool(number % 2),
            targets=[random.choice([*TARGETS, *OTHERS])],
            within_s=WITHIN_S,
            others=kills_of(cluster, client, id),
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
