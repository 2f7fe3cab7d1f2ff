"""Settings that nothing could run with are refused at once."""

import math

import pytest

from tenure.scheduler.errors import Mistake
from tenure.scheduler.settings import NEVER_ZERO, ClientSettings, NodeSettings


@pytest.mark.parametrize("value", [-1, -0.1, math.nan])
@pytest.mark.parametrize(("type", "name"), [(NodeSettings, "sweep_s"), (ClientSettings, "window_slots")])
def test_what_is_no_number_from_0_on_is_refused(type: type, name: str, value: float) -> None:
    with pytest.raises(Mistake, match=f"{name} can't be negative"):
        type(**{name: value})


@pytest.mark.parametrize("name", sorted(NEVER_ZERO))
def test_0_is_refused_where_nothing_would_go_on(name: str) -> None:
    for type in (NodeSettings, ClientSettings):
        if name in type.__struct_fields__:
            with pytest.raises(Mistake, match=f"{name} can't be 0"):
                type(**{name: 0})


def test_0_is_a_value_elsewhere() -> None:
    assert NodeSettings(hung_after_s=0, still_s=0.0, drain_deadline_s=0).hung_after_s == 0
    assert ClientSettings(retry_pause_s=0).retry_pause_s == 0
    assert {*NodeSettings.__struct_fields__, *ClientSettings.__struct_fields__} >= NEVER_ZERO
