"""How large a record may become: by estimates that are not too small, and shares that leave room for one more turn."""

from typing import Any

import pytest
from msgspec import Raw, msgpack

from tenure.scheduler.activities_wire import Activity, ActivityPolicy
from tenure.scheduler.budget import Budget, envelope_bytes, job_bytes
from tenure.scheduler.keys import slot_key
from tenure.scheduler.live import Live
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import Envelope, Failure, encode

LONG = "x" * 1000
SPARE = 300


def activity(work: bytes = b"", **fields: Any) -> Activity:
    return Activity("name", "i" * 24, "process", work, "r" * 24, ActivityPolicy(), 2**40, place="host/1", **fields)


def test_an_envelope_is_not_estimated_as_less_than_it_has() -> None:
    slot = slot_key(b"\xff" * 8, 2**63, 2**63)
    plain = Envelope("a", Raw(b"\x01"), reply=2**40, slot=slot, index=2**30, attempts=2**20, origin="f" * 12)
    for text in ("to", "id", "source", "topic"):
        setattr(plain, text, LONG)
        assert len(encode(plain)) <= envelope_bytes(plain) <= len(encode(plain)) + SPARE, text
    plain.body = Raw(msgpack.encode(LONG))
    assert len(encode(plain)) <= envelope_bytes(plain) <= len(encode(plain)) + SPARE


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"state": LONG.encode()},
        {"pickled": LONG.encode()},
        {"topics": (LONG, LONG)},
        {"failure": Failure(LONG, LONG, "turn", 1, 2**40, 2**40)},
        {"activities": (activity(LONG.encode()), activity(result=LONG.encode()))},
        {"activities": (activity(details=LONG.encode()), activity(notes=LONG.encode()))},
        {"activities": (activity(error=2 * LONG),)},
    ],
)
def test_a_job_is_not_estimated_as_less_than_it_has(changed: dict[str, Any]) -> None:
    live = Live("j" * 500)
    live.type_name, live.application, live.turns, live.generation = "type", "application", 2**40, 2**40
    for name, value in changed.items():
        setattr(live, name, value)
    stored = len(live.id) + len(encode(live.record()))
    most = SPARE + 500 * len(live.activities)
    assert stored <= job_bytes(live) <= stored + most


def test_behind_a_draft_that_is_not_full_there_is_room_for_a_turn_and_for_wrong_estimates() -> None:
    settings = NodeSettings()
    budget = Budget(settings)
    most = budget.full_bytes + settings.turn_bytes_max
    assert most + settings.record_bytes_max // 16 == settings.record_bytes_max
    assert budget.taken_bytes + 2 * budget.seen_bytes <= budget.full_bytes, "turns, messages and timers all go on"
    assert min(budget.taken_bytes, 2 * budget.seen_bytes) >= budget.full_bytes // 2 - 1
