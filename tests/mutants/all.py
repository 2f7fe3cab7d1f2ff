"""All mutants, by name; those that change nothing that anybody promises; and those that are still to be found."""

from pathlib import Path

from tests.mutants.mutant import Mutant, read

__all__ = ["EQUIVALENT", "MUTANTS", "OPEN"]

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for file in sorted(Path(__file__).parent.glob("*.mutants")) for mutant in read(file)
}
EQUIVALENT: dict[str, str] = {
    "held_senders_stay_held": "the next sweep of the inbox offers what they sent again: only later",
    "forsaken_lanes_are_links": "`begun` sees that the cluster is another one, too",
}
"""name -> why nobody could find it"""
OPEN: frozenset[str] = frozenset()
"""Nothing has found them yet where it was looked for. `python -m tests.mutants --write NAME` looks everywhere."""
