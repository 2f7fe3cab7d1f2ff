"""What can go wrong in a memory grid, how often, and how often it did."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenure.scheduler.grid.port import Map

__all__ = ["MEASURED_TROUBLE", "Fault", "Faults"]


class Fault(StrEnum):
    """The hazards of a grid. Those of one call have rates; the others are done to members and connections."""

    # of one write
    APPLIED_UNKNOWN = "applied-unknown"
    """Applied, on backups too; the caller hears `Unknown`."""
    DROPPED_UNKNOWN = "dropped-unknown"
    """Never applied; the caller hears `Unknown`."""
    LATE_UNKNOWN = "late-unknown"
    """The caller hears `Unknown`; applied up to `Faults.late_s_max` afterwards."""
    WEAK = "weak"
    """Applied by the primary alone. The caller hears `Unknown`, or success if `fail_on_indeterminate` is off."""
    REFUSED = "refused"
    """The grid says no."""
    STALE_TAKEN = "stale-taken"
    """`put_if_absent` is answered with what was there a moment ago, and writes nothing."""
    DISCARD_LOST = "discard-lost"
    """A discard is forgotten."""

    # of one read
    READ_FAILED = "read-failed"
    """`Unknown`. For scans, in any page."""
    ABSENT = "absent"
    """An entry that is there reads absent in `get` and `get_all`."""
    STALE = "stale"
    """`get` and `get_all` see what was there a moment ago."""
    SHORT_SCAN = "short-scan"
    """A scan leaves out entries and says nothing. Never seen on a real grid, and the port forbids it."""

    # of one read or write
    SLOW = "slow"
    BLOCKED = "blocked"
    """Nothing is heard until the deadline; a write may have been applied, be applied later, or never."""

    # of one event
    EVENT_LOST = "event-lost"
    EVENT_DELAYED = "event-delayed"
    EVENT_DOUBLED = "event-doubled"
    EVENT_REORDERED = "event-reordered"
    OWNERSHIP_HINT_LOST = "ownership-hint-lost"

    # done to members
    MEMBER_KILLED = "member-killed"
    MEMBER_LEFT = "member-left"
    MEMBER_JOINED = "member-joined"
    MEMBER_PAUSED = "member-paused"
    MIGRATED = "migrated"
    SPLIT = "split"
    HEALED = "healed"

    # done to connections
    CONNECTION_FROZEN = "connection-frozen"
    CONNECTION_KILLED = "connection-killed"
    CONNECTION_CUT = "connection-cut"

    # what came of it
    LANDED_LATE = "landed-late"
    """A write took effect after its caller had heard `Unknown` or had given up."""
    WEAK_LOST = "weak-lost"
    """A write that only the primary held went with it."""
    PARTITION_LOST = "partition-lost"
    SIDE_DISCARDED = "side-discarded"
    """A merge threw away the partitions of a side that had gone on alone."""


WRITES = (
    Fault.APPLIED_UNKNOWN,
    Fault.DROPPED_UNKNOWN,
    Fault.LATE_UNKNOWN,
    Fault.WEAK,
    Fault.REFUSED,
    Fault.STALE_TAKEN,
    Fault.SLOW,
    Fault.BLOCKED,
)
READS = (Fault.READ_FAILED, Fault.ABSENT, Fault.STALE, Fault.SLOW, Fault.BLOCKED)
SCANS = (Fault.READ_FAILED, Fault.SHORT_SCAN, Fault.SLOW, Fault.BLOCKED)
DISCARDS = (Fault.DISCARD_LOST,)
EVENTS = (Fault.EVENT_LOST, Fault.EVENT_DELAYED, Fault.EVENT_DOUBLED, Fault.EVENT_REORDERED)
OWNERSHIP = (Fault.OWNERSHIP_HINT_LOST,)
GROUPS = (WRITES, READS, SCANS, DISCARDS, EVENTS, OWNERSHIP)

MEASURED_TROUBLE: Mapping[Fault, float] = {
    Fault.APPLIED_UNKNOWN: 0.10,
    Fault.DROPPED_UNKNOWN: 0.03,
    Fault.LATE_UNKNOWN: 0.03,
    Fault.WEAK: 0.10,
    Fault.READ_FAILED: 0.15,
    Fault.ABSENT: 0.10,
    Fault.STALE: 0.05,
    Fault.STALE_TAKEN: 0.05,
    Fault.EVENT_LOST: 0.10,
}
"""Rates for partitions whose members are coming, going or moving; the kinds that real members showed then."""


@dataclass
class _Order:
    """One-shot faults that a test or a simulator asked for."""

    fault: Fault
    map: Map | None
    partition: int | None
    connection: object
    times: int


class Faults:
    """The fault schedule of one cluster. Everything may be changed while it runs; nothing is on unless asked for.

    `counts` holds *effective* faults only: an absent read of what was absent anyway is none.
    """

    def __init__(
        self,
        rates: Mapping[Fault, float] | None = None,
        trouble_rates: Mapping[Fault, float] | None = None,
    ) -> None:
        """`trouble_rates` hold instead of `rates` for partitions whose members are coming, going or moving."""
        self.counts: Counter[Fault] = Counter()
        self.on_fault: Callable[[Fault, str], None] | None = None
        """Called with each effective fault, and what it hit where that is known: a trace."""
        self.fail_on_indeterminate = True
        """Off is the stock setting of Hazelcast: a write that no backup holds is acknowledged as done."""
        self.drop_all_events = False
        self.latency_s = (0.0005, 0.002)
        self.instant_share = 0.8
        """How many calls take no time, but a checkpoint or two: virtual time is what simulating costs most."""
        self.slow_s = (0.1, 3.0)
        self.late_s_max = 20.0
        self.backup_wait_s = 1.0
        """How long a primary waits for its backups before it gives up on them."""
        self.weak_s: tuple[float, float] | None = (0.5, 10.0)
        """When backups get a weak write after all, if the primary lives that long. None: never."""
        self.event_delay_s = (0.05, 5.0)
        self.detection_s = (0.0, 0.0)
        """From a member's death to its backups' promotion; its partitions answer nothing meanwhile."""
        self.migration_s = (0.0, 0.0)
        """When each partition moves after members came or went."""
        self.migration_pause_s = (0.0, 0.0)
        """How long a partition answers nothing as it moves."""
        self.trouble_s = 1.0
        """How long after a change of its members a partition is in trouble."""
        self.ownership_lag_s = (0.0, 0.0)
        self.relisten_s = (0.0, 0.0)
        """How long a connection hears no events after it had to pair anew."""
        self.stale_s = 1.0
        """How far back stale reads go."""
        self._calm = _Table(rates or {})
        self._trouble = _Table(rates or {} if trouble_rates is None else trouble_rates)
        self._orders: list[_Order] = []

    def happened(self, fault: Fault, what: str = "") -> None:
        """Count a fault that had an effect."""
        self.counts[fault] += 1
        if self.on_fault is not None:
            self.on_fault(fault, what)

    def set_rates(self, rates: Mapping[Fault, float], *, trouble: bool | None = None) -> None:
        """Replace the rates: of calm and trouble, or of one of them."""
        if trouble is not True:
            self._calm = _Table(rates)
        if trouble is not False:
            self._trouble = _Table(rates)

    def once(
        self,
        fault: Fault,
        *,
        map: Map | None = None,
        partition: int | None = None,
        connection: object = None,
        times: int = 1,
    ) -> None:
        """Let the next `times` calls (or events) that fit be struck, whatever the rates."""
        if not any(fault in group for group in GROUPS):
            raise ValueError(f"{fault} is done to members or connections, it can't strike a call")
        self._orders.append(_Order(fault, map, partition, connection, times))

    def end(self) -> None:
        """From now on every call and every event is well. What is under way still comes."""
        self.set_rates({})
        self._orders.clear()
        self.drop_all_events = False
        self.fail_on_indeterminate = True

    def strike(
        self,
        group: tuple[Fault, ...],
        rng: random.Random,
        *,
        trouble: bool = False,
        map: Map | None = None,
        partition: int | None = None,
        connection: object = None,
    ) -> Fault | None:
        """Which fault of a group strikes now, if any."""
        if self._orders:
            for order in self._orders:
                if (
                    order.fault in group
                    and order.map in (None, map)
                    and order.partition in (None, partition)
                    and order.connection in (None, connection)
                ):
                    order.times -= 1
                    if order.times <= 0:
                        self._orders.remove(order)
                    return order.fault
        table = self._trouble if trouble else self._calm
        return table.draw(group, rng) if table.rates else None


class _Table:
    """Rates, with one draw for a group of faults that exclude each other."""

    def __init__(self, rates: Mapping[Fault, float]) -> None:
        self.rates = {fault: rate for fault, rate in rates.items() if rate > 0}
        known = {fault for group in GROUPS for fault in group}
        for fault in self.rates:
            if fault not in known:
                raise ValueError(f"{fault} is done to members or connections, it has no rate")
        self._groups: dict[tuple[Fault, ...], list[tuple[Fault, float]]] = {
            group: [(fault, self.rates[fault]) for fault in group if fault in self.rates] for group in GROUPS
        }
        for group, rates_of_group in self._groups.items():
            if sum(rate for _, rate in rates_of_group) > 1:
                raise ValueError(f"the rates of {', '.join(group)} come to more than 1")

    def draw(self, group: tuple[Fault, ...], rng: random.Random) -> Fault | None:
        rates = self._groups[group]
        if rates:
            left = rng.random()
            for fault, rate in rates:
                left -= rate
                if left < 0:
                    return fault
        return None
