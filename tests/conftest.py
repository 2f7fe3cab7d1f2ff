"""For all tests: Tenure's own pytest plugin, also where the project is on the path but not installed; and nothing
that a machine happens to set."""

import os
import re
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tenure.scheduler.grid.port import Map
from tenure.scheduler.journal import Journal
from tenure.testing import plugin

# How much else a machine has to do decides no test.
settings.register_profile("tenure", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenure")

FOREIGN = re.compile(
    r"PYTHON(?!PATH$)|TENURE_(?!DOCKER_INSTALL$)|TERM$|COLORTERM$|COLUMNS$|LINES$|NO_COLOR$|.*FORCE_COLOR$|CLICOLOR|PAGER$"
)
"""What would change how commands print, how modules are loaded, or which cluster is found."""


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin("tenure"):
        config.pluginmanager.register(plugin, "tenure")
    for name in [name for name in os.environ if FOREIGN.match(name)]:
        del os.environ[name]
    # Which clusters there were before is nothing that tests may learn from each other, or leave behind.
    os.environ["TENURE_NODE_STATE"] = tempfile.mkdtemp(prefix="tenure-tests-")


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those of all records that are written from now on."""
    found: list[int] = []
    write = Journal.write_once

    async def watch(self: Journal, map: Map, key: bytes, value: bytes) -> bool:
        if map is Map.JOURNAL:
            found.append(len(value))
        return await write(self, map, key, value)

    monkeypatch.setattr(Journal, "write_once", watch)
    return found
