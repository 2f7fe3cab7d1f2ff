"""All of this runs in virtual time."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock


def _run_in_virtual_time(fn: Callable[[], Awaitable[Any]], *, clock: object, instruments: Any) -> Any:
    return trio.run(fn, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_async = iscoroutinefunction(getattr(item, "function", None))
        if is_async and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)
