"""A seed is a run: the same, whatever has run before it, in this process or another."""

import gc
import os
import subprocess
import sys
import weakref
from hashlib import sha256
from typing import Any

import pytest

from tenure.simulation import run
from tenure.simulation.run import Outcome, run_seed

SEEDS = (1, 5)
REPORT = """
import sys
from tests.simulation.test_determinism import SEEDS, fingerprint
from tenure.simulation.run import run_seed
for seed in SEEDS:
    print(fingerprint(run_seed(seed, detailed=True)))
"""


def fingerprint(outcome: Outcome) -> str:
    """Of all that happened, and of what came of it."""
    counts = (outcome.operations.acknowledged, sorted(outcome.faults.items()), outcome.violations)
    return sha256(f"{outcome.trace.text()}{counts}".encode()).hexdigest()


def test_a_seed_runs_alike_whatever_has_run_before_it() -> None:
    first = {seed: fingerprint(run_seed(seed, detailed=True)) for seed in SEEDS}
    again = {seed: fingerprint(run_seed(seed, detailed=True)) for seed in reversed(SEEDS)}
    assert first == again
    assert len(set(first.values())) == len(SEEDS)


def test_what_is_told_of_a_run_has_no_part_in_it() -> None:
    brief, detailed = run_seed(3), run_seed(3, detailed=True)
    assert set(brief.trace.lines) <= set(detailed.trace.lines)
    assert len(brief.trace.lines) < len(detailed.trace.lines)
    assert (brief.virtual_s, brief.faults) == (detailed.virtual_s, detailed.faults)


def test_a_seed_runs_alike_in_another_process_whose_sets_have_another_order() -> None:
    here = [fingerprint(run_seed(seed, detailed=True)) for seed in SEEDS]
    there = subprocess.run(
        [sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == here


def test_a_run_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[weakref.ref[run.World]] = []

    class Remembered(run.World):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            worlds.append(weakref.ref(self))

    monkeypatch.setattr(run, "World", Remembered)
    for seed in (1, 2):
        run_seed(seed)
    gc.collect()
    assert [world() for world in worlds] == [None, None]
