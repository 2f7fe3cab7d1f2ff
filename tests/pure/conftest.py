"""For tests without a grid of processes."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def logs_as_they_were() -> Iterator[None]:
    """A node sets logs up for its whole process, and the one that a test starts here ends before the others."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()
