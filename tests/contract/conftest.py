"""Runs every test of this folder on every adapter: in virtual time where the adapter lives in it."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.contract.adapters import ADAPTERS, Adapter, Can, load


@cache
def _adapter(name: str) -> Adapter:
    return load(name)


def _run_in_virtual_time(fn: Callable[[], Awaitable[Any]], *, clock: object, instruments: Any) -> Any:
    return trio.run(fn, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "adapter" in metafunc.fixturenames:
        params = [pytest.param(name, marks=marks) for name, (_, marks) in ADAPTERS.items()]
        metafunc.parametrize("adapter", params, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("adapter")  # type: ignore[attr-defined]
        if name in ADAPTERS and ADAPTERS[name][1] == () and _adapter(name).virtual_time:
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


@pytest.fixture
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return _adapter(request.param)


@pytest.fixture
def splitting_adapter(adapter: Adapter) -> Adapter:
    if Can.SPLIT not in adapter.can:
        pytest.skip(f"{adapter.name} can't {Can.SPLIT.value}")
    return adapter
