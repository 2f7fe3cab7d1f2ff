"""The table of what finds each mutant: `found.json`, written by `python -m tests.mutants --write`."""

import json
from pathlib import Path

__all__ = ["note", "read"]

FILE = Path(__file__).with_name("found.json")


def read() -> dict[str, str]:
    """name -> a test, or a seed of the simulation."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def note(name: str, finder: str | None) -> None:
    """What finds it; None: nothing does."""
    table = read()
    table.pop(name, None)
    if finder is not None:
        table[name] = finder
    FILE.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")
