"""Older versions of this repository, for tests."""

from pathlib import Path

import pytest

from tenure.bench import older

__all__ = ["older_interpreter"]


def older_interpreter(folder: Path) -> Path:
    """A Python whose Tenure is the one that upgrades begin with. Skips, with the reason, where the history isn't."""
    try:
        return older.interpreter_of(older.oldest(), folder)
    except older.NoHistory as error:
        pytest.skip(str(error))
