"""What a mutant is: one thing that the engine does wrong, as a small change of its text.

They stand in the `.mutants` files beside this one:

    name: what is no longer so
    @ a file of the engine (of scheduler/; or one that begins with tenure/)
    -text that stands there once
    +what stands there instead
"""

from pathlib import Path
from typing import NamedTuple

__all__ = ["Mutant", "read"]


class Mutant(NamedTuple):
    """`before` stands exactly once in `file`. Where the engine has changed, so must the mutant."""

    name: str
    file: str
    before: str
    after: str
    breaks: str
    """What is no longer so, in a line."""

    @property
    def path(self) -> str:
        """Its file, in the package."""
        return self.file.removeprefix("tenure/") if self.file.startswith("tenure/") else f"scheduler/{self.file}"


def read(file: Path) -> list[Mutant]:
    """All mutants of a file."""
    found = []
    for block in file.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            (name, _, breaks), where = lines[0].partition(": "), lines[1].removeprefix("@ ")
            before = "\n".join(line[1:] for line in lines[2:] if line.startswith("-"))
            after = "\n".join(line[1:] for line in lines[2:] if line.startswith("+"))
            found.append(Mutant(name, where, before, after, breaks))
    return found
