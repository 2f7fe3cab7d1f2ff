"""What a node takes from the environment that it is started in."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tenure.application import load_application
from tenure.nodes.application import Application
from tenure.nodes.process import NodeOptions, _join, _node
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.grid.memory import MemoryCluster


async def test_it_says_who_started_it_and_what_it_runs_does_not_inherit_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SPAWNED_BY", "me")
    grid = MemoryCluster(partitions=3, members=1).connect()
    application = Application("nowhere", load_application())
    node = _node(grid, Cluster("f", 1, 3, True), NodeOptions(), application, {})
    assert node.presence.info().spawned_by == "me"
    assert "TENURE_SPAWNED_BY" not in os.environ
    again = _node(grid, Cluster("f", 1, 3, True), NodeOptions(), application, {})
    assert again.presence.info().spawned_by == ""
    grid.close()


@pytest.mark.parametrize(("known", "level"), [(False, "info"), (True, "warning")])
async def test_a_first_start_is_nothing_to_be_warned_of(tmp_path: Path, known: bool, level: str) -> None:
    options = NodeOptions(cluster="first@127.0.0.1:5701", state=tmp_path, begin_anew=True)
    for last in [False, True] if known else [True]:
        grid = MemoryCluster(partitions=3, members=1).connect()
        with capture_logs() as lines:
            await _join(grid, options)
        grid.close()
        if last:
            assert [line["log_level"] for line in lines if line["event"].startswith("formed ")] == [level]
