"""What a turn may ask for when it starts an activity: what its record, and a run's file, can hold and be read from.

A record is decoded as a whole. A value in it that no decoder takes (a number beyond 64 bits, 1 where True is meant)
would take the partition with it; so it is refused in the turn, which is that job's own.
"""

import json
import math
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from tenure.scheduler.activities_wire import Activity, ActivityPolicy
from tenure.scheduler.bodies import check
from tenure.scheduler.errors import Mistake, WrongType
from tenure.scheduler.wire import SECONDS_MAX, UNSTORABLE

__all__ = ["as_json", "checked_policy", "stored"]

DEADLINES = ("heartbeat_s", "cancel_deadline_s", "orphan_after_s", "timeout_s", "stall_after_s", "healthy_after_s")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Activity).decode


def checked_policy(policy: ActivityPolicy) -> ActivityPolicy:
    """The same, of plain numbers. More than a hundred years, or infinity, is a hundred years."""
    plain: dict[str, float] = {}
    for name in DEADLINES:
        value = getattr(policy, name)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
            raise Mistake(f"{name} of an activity is a number of seconds, not {value!r:.200}")
        plain[name] = float(min(value, SECONDS_MAX))
    if not policy.cancel_deadline_s <= SECONDS_MAX:
        raise Mistake(f"cancel_deadline_s is at most a hundred years, not {policy.cancel_deadline_s}")
    if not isinstance(policy.tells_progress, bool):
        raise Mistake(f"tells_progress of an activity is True or False, not {policy.tells_progress!r:.200}")
    longest_s = float(min(policy.delay_max_s, SECONDS_MAX))
    return replace(policy, **plain, delay_max_s=longest_s)


def stored(activity: Activity) -> Activity:
    """The activity as its record will give it back. Raises `WrongType` where it would not."""
    try:
        return _decode(_encode(activity))
    except UNSTORABLE as error:
        asked = {"name": activity.name, "kind": activity.kind, **asdict(activity.policy)}
        raise WrongType(f"an activity can't be stored so: {error}: {asked!r:.1000}") from error


def as_json(work: Any) -> bytes:
    """The work of an activity, as JSON."""
    try:
        encoded = json.dumps(work, allow_nan=False, separators=(",", ":"))
        packed = _encode(json.loads(encoded))  # what a run's file can hold
    except UNSTORABLE as error:
        raise WrongType(f"the work of an activity is made of what JSON can hold: {error}") from error
    check(packed, "the work of an activity")
    if (key := _odd_key(work)) is not None:
        raise WrongType(f"the work of an activity is made of what JSON can hold: the key {key!r} is no text")
    return encoded.encode()


def _odd_key(value: Any) -> Any:
    """A key that JSON would silently make a text of."""
    if isinstance(value, dict):
        odd = (key for key in value if not isinstance(key, str))
        return next(odd, next(filter(_is_there, map(_odd_key, value.values())), None))
    if isinstance(value, list | tuple):
        return next(filter(_is_there, map(_odd_key, value)), None)
    return None


def _is_there(key: Any) -> bool:
    return key is not None
