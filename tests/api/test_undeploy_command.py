"""`tenure undeploy --dry-run`: all that is meant is named, however much it is."""

from itertools import islice
from typing import Any

import pytest

import tenure
from tenure.scheduler import commands
from tests.api.jobs import Counter
from tests.api.shell import Shell

PAGE, JOBS = 3, 40
IDS = sorted(f"job-{n}" for n in range(JOBS))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PAGE_MAX", PAGE)


@pytest.fixture
def many(shell: Shell) -> Shell:
    async def schedule(client: tenure.Client) -> None:
        await client.schedule_many([(Counter, id, {}) for id in IDS])

    shell.before = schedule
    return shell


def test_all_are_named_also_where_they_are_many(many: Shell) -> None:
    assert [row["id"] for row in many("undeploy", "default", "--dry-run", "--json")] == IDS
    assert many.err == f"{JOBS} jobs would be removed.\n"


def test_all_are_removed_page_by_page(many: Shell) -> None:
    assert many("undeploy", "default", "--json") == [{"application": "default", "removed": JOBS}]


def test_nodes_of_an_older_version_name_some(many: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """They know of no pages, and give the first one, however often they are asked."""
    asked = 0

    def older(tenure: Any, envelope: Any, arguments: dict[str, Any]) -> None:
        nonlocal asked
        asked += 1
        tenure.turns.draft.answer_value(envelope, [id for id, _ in islice(tenure.lives.records(), PAGE)])

    monkeypatch.setitem(commands.OPERATIONS, "jobs_of", older)
    found = [row["id"] for row in many("undeploy", "default", "--dry-run", "--json")]
    assert asked == many.partitions
    assert found == sorted(set(found))
    assert len(found) == PAGE * many.partitions
