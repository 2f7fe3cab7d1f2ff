"""What many seeds came to, in one line."""

import json
from collections import Counter

from tenure.simulation.run import Outcome

__all__ = ["Summary"]


class Summary:
    """Adds up outcomes."""

    def __init__(self) -> None:
        self.seeds = self.violations = self.acknowledged = self.calm_attempted = self.calm_acknowledged = 0
        self.core_s = 0.0
        self.faults: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One more seed."""
        operations = outcome.operations
        self.seeds += 1
        self.violations += bool(outcome.violations)
        self.acknowledged += operations.acknowledged
        self.calm_attempted += operations.calm_attempted
        self.calm_acknowledged += operations.calm_acknowledged
        self.core_s += outcome.core_s
        self.faults += outcome.faults

    @property
    def calm_success(self) -> float:
        """The share of operations outside faults that were acknowledged."""
        return round(self.calm_acknowledged / self.calm_attempted, 4) if self.calm_attempted else 0.0

    @property
    def seeds_per_minute(self) -> float:
        """On one core, whatever else this machine is doing."""
        return round(60 * self.seeds / self.core_s, 1) if self.core_s else 0.0

    def line(self) -> str:
        """As JSON."""
        return json.dumps(
            {
                "seeds": self.seeds,
                "violations": self.violations,
                "seeds_per_minute": self.seeds_per_minute,
                "operations": self.acknowledged,
                "faults": dict(sorted(self.faults.items())),
                "calm_success": self.calm_success,
            }
        )
