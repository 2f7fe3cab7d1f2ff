"""The ledger: what was sent, against what the jobs' states say. Pure; nothing but those two goes in."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Ledger", "Sent", "make_ledger"]

Sent = Mapping[tuple[str, str], int]
"""(job, sender) -> the number of the last message that was acknowledged; they begin at 1"""


@dataclass(frozen=True)
class Ledger:
    """How it ended."""

    sent: int
    applied: int
    lost: int
    doubled: int
    disordered: int
    longest_pause_ms: int

    @property
    def is_exact(self) -> bool:
        """Each message took effect once, in order, and nothing else did."""
        return self.lost == self.doubled == self.disordered == 0 and self.applied == self.sent

    def line(self) -> dict[str, int]:
        """What `--json` prints."""
        figures = asdict(self)
        return {name: figures[name] for name in ("sent", "applied", "lost", "doubled", "longest_pause_ms")}


def make_ledger(sent: Sent, states: Mapping[str, Any]) -> Ledger:
    """`states` are the jobs' states by id, as dicts. A job that has no state has applied nothing."""
    lost = doubled = disordered = applied = pause_ms = 0
    for (job, sender), count in sent.items():
        lost += count - _arrived(states.get(job) or {}, sender, count)
    for state in states.values():
        if state:
            applied += state["applied"]
            doubled += state["doubled"]
            disordered += state["disordered"]
            pause_ms = max(pause_ms, state["waited_ms_max"])
    return Ledger(sum(sent.values()), applied, lost, doubled, disordered, pause_ms)


def _arrived(state: Mapping[str, Any], sender: str, count: int) -> int:
    """How many of the numbers 1 to `count` of this sender came."""
    last: int = min(count, state.get("last", {}).get(sender, 0))
    missing: list[int] = state.get("missing", {}).get(sender, [])
    return last - sum(n <= last for n in missing)
