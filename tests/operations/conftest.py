"""A cluster that is set up as the first runbook says, and operated as the others do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.runbook import PAGES, Page, Shell

DAY_ONE = Page(PAGES / "day-one.md")


def open_shell(folder: Path) -> Shell:
    """A shell in a folder that has the application."""
    (folder / "app.py").write_text(DAY_ONE.first("python"))
    return Shell(folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Three members and three nodes, after `day-one.md`."""
    shell = open_shell(tmp_path_factory.mktemp("site"))
    try:
        shell.run(DAY_ONE)
        shell.environment["TENURE_CLUSTER"] = "tenure@127.0.0.1:5701,127.0.0.1:5702,127.0.0.1:5703"
        yield shell
    finally:
        shell.close()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Shell]:
    """For pages that bring a cluster of their own."""
    shell = open_shell(tmp_path)
    try:
        yield shell
    finally:
        shell.close()
