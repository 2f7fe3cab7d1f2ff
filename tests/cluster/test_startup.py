"""The one measurement that takes a real member, as its first process is what is measured."""

import pytest

from tenure.bench.startup import measure_startup

pytestmark = pytest.mark.cluster


async def test_the_start_up_is_measured() -> None:
    figures = await measure_startup()
    assert figures["exact"] is True
    assert 0 < figures["startup_ready_s"] < figures["startup_s"]
