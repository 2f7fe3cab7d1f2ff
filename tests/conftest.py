"""For all tests: Tenure's own pytest plugin, also where the project is on the path but not installed; and nothing
that a machine happens to set."""

import os
import re
import tempfile

import pytest
from hypothesis import HealthCheck, settings

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
