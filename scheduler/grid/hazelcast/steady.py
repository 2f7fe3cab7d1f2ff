"""A clock for the client that is never set: the wall clock as it was at first, going on with the monotonic one.

The client keeps its timers, its calls' deadlines and when it last heard of a member by the wall clock. Where that is
set back by an hour, none of its timers comes due for an hour: no heartbeat is sent or checked, and no connection is
made again. Where it is set forward, all members look silent at once.
"""

import time
from typing import Any

import hazelcast.connection
import hazelcast.invocation
import hazelcast.reactor

__all__ = ["keep_steady", "steady_s"]

_AT_FIRST_S = time.time() - time.monotonic()
_MODULES = (hazelcast.connection, hazelcast.invocation, hazelcast.reactor)


def steady_s() -> float:
    """Seconds, as the client counts them."""
    return _AT_FIRST_S + time.monotonic()


class _SteadyTime:
    """The module `time` for the client's modules, but for its clock."""

    time = staticmethod(steady_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def keep_steady() -> None:
    """To be called before a client is made: from then on its modules go by the steady clock."""
    for module in _MODULES:
        module.time = _SteadyTime()  # type: ignore[attr-defined]
