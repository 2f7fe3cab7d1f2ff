"""Every page of docs/operations is run: as it stands, on real processes. Those that bring no cluster of their own are
run under load, with the books checked."""

import re

import pytest

import tenure
from tests.operations.books import steady_load
from tests.operations.conftest import DAY_ONE
from tests.operations.runbook import PAGES, Page, Shell

RUNBOOKS = [Page(path) for path in sorted(PAGES.glob("*.md")) if path.name not in ("README.md", DAY_ONE.path.name)]


@pytest.mark.cluster
def test_day_one(site: Shell) -> None:
    """The fixture has run it, or has failed: what it has set up is there."""
    client = tenure.SyncClient(site.here(site.environment["TENURE_CLUSTER"]))
    with client:
        found = client.scale()
        assert (found["members"], len(found["nodes"])) == (3, 3)
        assert client.ask("clicks", {"n": 4}) == 7


@pytest.mark.cluster
@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.name)
def test_a_runbook(page: Page, request: pytest.FixtureRequest) -> None:
    if page.is_alone:
        request.getfixturevalue("bare").run(page)
        return
    site: Shell = request.getfixturevalue("site")
    with steady_load(site.here(site.environment["TENURE_CLUSTER"]), site.folder / "app.py"):
        site.run(page)


def test_the_index_lists_every_page() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (PAGES / "README.md").read_text())
    assert listed[0] == DAY_ONE.path.name
    assert sorted(listed) == sorted(page.path.name for page in (DAY_ONE, *RUNBOOKS))


def test_every_page_has_commands_that_are_run() -> None:
    assert [page.name for page in (DAY_ONE, *RUNBOOKS) if not page.blocks] == []
