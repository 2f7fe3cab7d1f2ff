"""For all tests: Tenure's own pytest plugin, also where the project is on the path but not installed."""

import pytest

from tenure.testing import plugin


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin("tenure"):
        config.pluginmanager.register(plugin, "tenure")
