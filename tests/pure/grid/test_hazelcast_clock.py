"""The client's clock is never set: its timers come due also while the machine's clock goes back or forth."""

import time
from collections.abc import Callable

import hazelcast.connection
import hazelcast.invocation
import hazelcast.reactor
import pytest
from hazelcast.reactor import AsyncoreReactor

from tenure.scheduler.grid.hazelcast.reactor import quicken
from tenure.scheduler.grid.hazelcast.steady import keep_steady, steady_s


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    real = time.time
    return lambda by_s: monkeypatch.setattr(time, "time", lambda: real() + by_s)


def test_it_begins_as_the_wall_clock_and_goes_on_by_itself(set_clock: Callable[[float], None]) -> None:
    assert abs(steady_s() - time.time()) < 1.0
    before_s = steady_s()
    set_clock(-3600.0)
    assert 0 <= steady_s() - before_s < 1.0


def test_the_clients_modules_go_by_it_and_keep_the_rest(set_clock: Callable[[float], None]) -> None:
    keep_steady()
    set_clock(-3600.0)
    for module in (hazelcast.reactor, hazelcast.connection, hazelcast.invocation):
        assert abs(module.time.time() - steady_s()) < 1.0
        assert module.time.sleep is time.sleep


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_timer_comes_due_in_its_time(set_clock: Callable[[float], None], by_s: float) -> None:
    keep_steady()
    reactor = AsyncoreReactor()
    quicken(reactor)
    rung: list[float] = []
    try:
        reactor.start()
        began_s = time.monotonic()
        for after_s in (0.2, 0.4):  # connecting to all members, heartbeats
            reactor.add_timer(after_s, lambda: rung.append(time.monotonic() - began_s))
        set_clock(by_s)
        while len(rung) < 2 and time.monotonic() - began_s < 5:
            time.sleep(0.01)
    finally:
        reactor.shutdown()
    assert [round(at_s, 1) for at_s in rung] == pytest.approx([0.2, 0.4], abs=0.15)
