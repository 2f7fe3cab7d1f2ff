"""All of this runs in virtual time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from trio.testing import MockClock

from tests.pure.core.bench import Bench

settings.register_profile(
    "core", deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("core")


def _run_in_virtual_time(fn: Callable[[], Awaitable[Any]], *, clock: object, instruments: Any) -> Any:
    return trio.run(fn, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_async = iscoroutinefunction(getattr(item, "function", None))
        if is_async and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """One partition, to be opened as often as a test likes."""
    async with trio.open_nursery() as nursery:
        yield Bench(nursery)
        nursery.cancel_scope.cancel()
