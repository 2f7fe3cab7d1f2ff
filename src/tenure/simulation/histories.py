"""Judging histories: what senders said and were told, against what jobs saw. Pure, and knows no engine.

What is *wrong* can never become right; what is *waiting* must become right until the cluster is quiet.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Findings", "Sent", "judge_all", "judge_increasing", "judge_sender"]


@dataclass
class Findings:
    """What a look at the cluster found."""

    wrong: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """All findings of another look."""
        self.wrong += other.wrong
        self.waiting += other.waiting


class Sent:
    """What one sender has sent to one place: the numbers in their order, and those that were acknowledged."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.acknowledged: set[int] = set()

    def next(self) -> int:
        """Take a new number."""
        self.numbers.append(len(self.numbers))
        return self.numbers[-1]


def judge_sender(where: str, seen: Sequence[int], sent: Sent, *, ordered: bool = True) -> Findings:
    """Each message at most once, none that was not sent, in order if so promised, all that were acknowledged."""
    found = Findings()
    if len(set(seen)) < len(seen):
        found.wrong.append(f"{where}: applied twice: {_doubles(seen)}")
    if unsent := sorted(set(seen) - set(sent.numbers)):
        found.wrong.append(f"{where}: applied, and never sent: {unsent}")
    if ordered and any(a > b for a, b in pairwise(seen)):
        found.wrong.append(f"{where}: out of the sender's order: {list(seen)}")
    missing = sorted(sent.acknowledged - set(seen))
    overtaken = [n for n in missing if ordered and seen and n < max(seen)]
    if overtaken:
        found.wrong.append(f"{where}: acknowledged, and passed over: {overtaken} in {list(seen)}")
    elif missing:
        found.waiting.append(f"{where}: acknowledged, not applied: {missing}")
    return found


def judge_all(
    where: str, seen: Mapping[str, Sequence[int]], sent: Mapping[str, Sent], *, ordered: bool = True
) -> Findings:
    """As `judge_sender`, for all senders to one place."""
    found = Findings()
    for sender in seen.keys() - sent.keys():
        found.wrong.append(f"{where}: saw a sender that never sent: {sender}")
    for sender, mine in sent.items():
        found.add(judge_sender(f"{where} from {sender}", seen.get(sender, ()), mine, ordered=ordered))
    return found


def judge_increasing(where: str, what: str, values: Iterable[int]) -> Findings:
    """Strictly growing."""
    found, last = Findings(), None
    for value in values:
        if last is not None and value <= last:
            found.wrong.append(f"{where}: {what} did not grow: {value} after {last}")
        last = value
    return found


def _doubles(seen: Collection[int]) -> list[int]:
    known: set[int] = set()
    return sorted({n for n in seen if n in known or known.add(n)})  # type: ignore[func-returns-value]
