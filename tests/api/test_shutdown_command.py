"""`tenure shutdown`, on clusters in memory."""

from collections.abc import Iterator

import pytest

import tenure
from tenure.scheduler.snapshots.stores import Memory, open_store
from tests.api.jobs import Counter
from tests.api.shell import Shell

PLACE = "memory:shutdown-commands"


async def _one_job(client: tenure.Client) -> None:
    await client.schedule(Counter, id="a", total=1)


async def _has_ended(client: tenure.Client) -> None:
    await _one_job(client)
    await client.shutdown(snapshot=PLACE)


@pytest.fixture
def store() -> Iterator[Memory]:
    store = open_store(PLACE)
    assert isinstance(store, Memory)
    yield store
    store.broken = False


def test_what_has_ended_and_the_snapshot_are_named(shell: Shell) -> None:
    shell.before, shell.nodes = _one_job, 2
    assert shell("shutdown", "--json") == [{"id": f"node-{n}", "done": True} for n in range(2)]
    first, second, snapshot = shell("shutdown", "--snapshot", PLACE, "--json")
    assert [first, second] == [{"id": f"node-{n}", "done": True} for n in range(2)]
    assert (snapshot["url"], snapshot["jobs"]) == (PLACE, 1)
    assert snapshot["snapshot"].endswith("Z")
    assert f"waiting for the snapshot to {PLACE}" in shell.err
    shell("shutdown", "--snapshot", PLACE)
    assert "node-0, node-1: stopped." in shell.err
    assert "has all of it: 1 job. Restore it where it is to go on." in shell.err


def test_without_the_snapshot_it_fails(shell: Shell, store: Memory) -> None:
    shell.before, store.broken = _one_job, True
    shell("shutdown", "--snapshot", PLACE, "--within", "60", code=1)
    assert "the place is broken" in shell.err
    assert "No node was told to leave, and inputs are let in again" in shell.err
    shell("shutdown", "--snapshot", "s4://nowhere", code=2)
    assert "waiting" not in shell.err, "nothing was begun"


def test_who_comes_later_is_told(shell: Shell) -> None:
    shell.before = _has_ended
    shell("jobs", code=3)
    assert "their cluster was shut down with snapshot" in shell.err
    assert "`tenure restore URL` there, or here with --replace." in shell.err
    (restored,) = shell("restore", PLACE, "--replace", "--json")
    assert restored["jobs"] == 1
