"""The promises, held against clusters under every hazard: a few seeds at each change, many in the full suite."""

import pytest

from tenure.simulation.report import Summary
from tenure.simulation.run import run_seed

FEW, MANY = range(12), range(1000, 1400)


def run(seeds: range) -> Summary:
    summary = Summary()
    for seed in seeds:
        outcome = run_seed(seed)
        assert not outcome.violations, f"replay: tenure simulate --from {seed} --seeds 1 --trace\n{outcome.violations}"
        summary.add(outcome)
    return summary


def test_a_few_seeds() -> None:
    summary = run(FEW)
    assert summary.acknowledged > 200 * len(FEW)
    assert sum(summary.faults.values()) > 5 * len(FEW)


@pytest.mark.long
def test_many_seeds() -> None:
    """It can't pass by doing nothing: work is done, much of it amid faults of all kinds, and what is calm succeeds."""
    summary = run(MANY)
    assert summary.acknowledged >= 300 * len(MANY)
    assert sum(summary.faults.values()) >= 5 * len(MANY)
    assert summary.calm_attempted >= 30 * len(MANY)
    assert summary.calm_success >= 0.8
    assert len(summary.faults) >= 30, "kinds of faults"
