"""What a seed draws before it begins: the sizes of the cluster, and settings that are coarse in virtual time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import msgspec

from tenure.scheduler.settings import ClientSettings, NodeSettings

__all__ = ["Calls", "Plan", "draw", "fitted", "small"]


class Calls(NamedTuple):
    """How long calls take."""

    instant_share: float
    """So many take no time, but a checkpoint or two."""
    latency_s: tuple[float, float]
    """The others."""
    tick_s: float
    """Virtual time goes on in such steps: finer ones cost more."""


QUICK = Calls(0.9, (0.0005, 0.002), 0.05)
AS_UNDER_LOAD = Calls(0.3, (0.005, 0.02), 0.005)
"""Commits are in flight as other things happen."""
AS_UNDER_LOAD_SHARE = 0.12


@dataclass(frozen=True)
class Plan:
    """One cluster and how long it is worked on."""

    nodes: int
    members: int
    partitions: int
    work_s: float
    settings: NodeSettings
    client_settings: ClientSettings
    calls: Calls = QUICK
    quiet_s_max: float = 90.0
    """After the last fault has healed, everything must be done within this time."""


def draw(random: Random) -> Plan:
    """Small clusters, short journals, narrow windows: whatever is rare in life is common here."""
    lane_lifetime_s = random.choice((3600.0, 12.0, 4.0))
    return Plan(
        nodes=random.randint(2, 4),
        members=random.randint(2, 5),
        partitions=random.randint(4, 8),
        work_s=random.uniform(9.0, 14.0),
        settings=NodeSettings(
            heartbeat_s=1.0,
            gone_after_s=2.5,
            handoff_deadline_s=random.choice((0.5, 4.0)),
            handoff_poll_s=0.1,
            still_s=0.0,  # handoffs amid migrations are what may go wrong
            drain_deadline_s=random.choice((0.0, 2.0)),
            sweep_s=4.0,
            definitions_sweep_s=8.0,
            group_messages_max=random.choice((8, 64, 4096)),
            image_journal_bytes_min=random.choice((1024, 65536)),
            image_journal_slots_max=random.choice((4, 12, 30, 512)),
            chunk_bytes_max=random.choice((500, 65536, 65536)),
            mailbox_messages_max=random.choice((6, 10_000)),
            crash_attempts_max=1000,
            lane_lifetime_s=lane_lifetime_s,
            tombstone_s=lane_lifetime_s,
            lost_after_s=30.0,
        ),
        client_settings=ClientSettings(
            publish_deadline_s=5.0,
            ask_deadline_s=6.0,
            window_slots=random.choice((1, 2, 8, 64)),
            batch_messages_max=random.choice((3, 20, 2048)),
            lane_lifetime_s=lane_lifetime_s,
            tombstone_s=lane_lifetime_s,
            reply_poll_s=0.5,
        ),
    )


SMALL: Mapping[str, tuple[Any, ...]] = {
    "outbox_bytes_max": (300, 3000),
    "group_bytes_max": (400,),
    "turns_at_once_max": (1, 2),
    "blocking_threads_max": (1,),
    "instances_max": (0, 1),
    "handoffs_at_once": (1,),
    "mailbox_bytes_max": (100, 1000),
    "dead_letters_max": (2, 10),
    "dead_letters_bytes_max": (100, 1000),
    "batch_bytes_max": (300,),
    "buffer_bytes_max": (400, 4000),
}
"""Limits of nodes and clients that are hardly ever met in life."""
SMALL_SHARE = 0.15


def small(dice: Random) -> dict[str, Any]:
    """In some seeds, a few limits that everything runs into. What waits for them must go on in the end."""
    if dice.random() >= SMALL_SHARE:
        return {}
    return {name: dice.choice(SMALL[name]) for name in dice.sample(sorted(SMALL), dice.randint(1, 4))}


def fitted(plan: Plan, wishes: Mapping[str, Any], calls: Calls | None, dice: Random) -> Plan:
    """The plan, with what workloads can't do without."""
    if calls is None:
        calls = AS_UNDER_LOAD if dice.random() < AS_UNDER_LOAD_SHARE else QUICK
    return replace(
        plan,
        settings=_changed(plan.settings, wishes),
        client_settings=_changed(plan.client_settings, wishes),
        calls=calls,
    )


def _changed(settings: Any, wishes: Mapping[str, Any]) -> Any:
    known = {name: value for name, value in wishes.items() if name in settings.__struct_fields__}
    return msgspec.structs.replace(settings, **known)
