"""`tenure jobs`, `describe` and `wait` of whatever jobs there are."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import tenure
from tenure.cli.ends import Exit
from tenure.scheduler.jobtype import JobType, Registry
from tests.api.shell import Shell


class Sleeper(tenure.Job):
    """Means never, as many do."""

    async def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_at(datetime.max.replace(tzinfo=UTC))


@pytest.fixture
def sleepers(shell: Shell) -> Shell:
    async def before(client: tenure.Client) -> None:
        for id in ("one", "other"):
            await client.schedule("sleeper", id=id)

    shell.app, shell.before = Registry(JobType("sleeper", Sleeper)), before
    return shell


@pytest.mark.parametrize("command", [("jobs",), ("describe", "one"), ("wait", "default")])
def test_a_job_that_is_to_sleep_for_ever_hides_no_others(sleepers: Shell, command: tuple[str, ...]) -> None:
    sleepers(*command)
    assert "9999-12-31" in sleepers.out + sleepers.err or "10000-01-01" in sleepers.out + sleepers.err


def test_a_limit_may_be_as_large_as_anybody_likes(sleepers: Shell) -> None:
    sleepers("jobs", "--limit", "99999999999999999999")
    assert len(sleepers.out.splitlines()) == 4


def test_snapshots_are_not_taken_every_so_many_ages(shell: Shell) -> None:
    """Their job would take one after the other: the time to wait would be refused after each."""
    shell("snapshot", "/nowhere", "--every", "99999999999d", code=Exit.USAGE)
    assert "up to a hundred years" in shell.err


def test_a_variable_that_is_not_set_means_neither_one_snapshot_nor_all_nodes(shell: Shell, tmp_path: Path) -> None:
    """As in `tenure snapshot URL --every "$EVERY"`: one was taken, none was scheduled, and all seemed well."""
    shell("snapshot", str(tmp_path), "--every", "", code=Exit.USAGE)
    assert "write a time like 90s, 30m, 6h or 1d" in shell.err
    assert not list(tmp_path.iterdir())
    shell("upgrade", "", "--spawn", "tenure node newer.py", code=Exit.USAGE)
    assert "The selector of nodes is empty: name them, or leave it out for all" in shell.err


def test_snapshots_have_a_place(shell: Shell) -> None:
    """An unset variable is not meant to be this directory."""
    for words in (("snapshot", ""), ("snapshots", "list", " "), ("restore", "")):
        shell(*words, code=Exit.USAGE)
        assert "The place of snapshots is empty" in shell.err
