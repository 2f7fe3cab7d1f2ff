"""A memory grid whose members die, leave, join and split as they do in life: not at once, and not cleanly."""

from collections.abc import Sequence
from functools import partial
from math import ceil

import trio

from tenure.scheduler.grid.memory.cluster import MemoryCluster
from tenure.scheduler.grid.memory.faults import Fault, Faults
from tenure.scheduler.grid.memory.faulty_grid import FaultyGrid
from tenure.scheduler.grid.memory.placement import Row, rebalanced
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import Map, OwnershipEvent

__all__ = ["FaultyCluster"]

Address = tuple[Map, int, bytes]

MOVE_AGAIN_S = 0.5
NEVER = -1.0
REMEMBERED_MAX = 1000


class FaultyCluster(MemoryCluster):
    """A cluster with a fault schedule: `faults` may be changed at any time, and counts what really happened."""

    def __init__(
        self,
        *,
        faults: Faults,
        partitions: int = 271,
        members: int = 1,
        backups: int = 1,
        seed: int = 0,
        hosts: Sequence[str] = ("127.0.0.1",),
        split_protection: bool = False,
        default_timeout_s: float = 2.0,
        tick_s: float = 0.001,
    ) -> None:
        """Calls end at multiples of `tick_s`, so that virtual time has few moments to stop at."""
        self.faults = faults
        self._tick_s = tick_s
        self._dying: set[str] = set()
        self._leaving: list[str] = []
        self._plans: dict[Side, dict[int, Row]] = {}
        self._trouble_until = [NEVER] * partitions
        self._busy_until = [NEVER] * partitions
        self._past: dict[Address, tuple[float, bytes | None]] = {}
        self._weak: dict[Address, None] = {}
        super().__init__(
            partitions=partitions,
            members=members,
            backups=backups,
            seed=seed,
            hosts=hosts,
            split_protection=split_protection,
            default_timeout_s=default_timeout_s,
        )

    def connect(self, host: str = "", *, member: str | None = None) -> FaultyGrid:
        grid = super().connect(host, member=member)
        assert isinstance(grid, FaultyGrid)
        return grid

    @property
    def living(self) -> list[str]:
        """The members that are neither dead (noticed or not) nor paused."""
        return [id for side in self.sides for id, member in side.members.items() if not member.paused]

    def is_safe(self) -> bool:
        return super().is_safe() and not self._dying and not self._leaving and not any(self._plans.values())

    def calm(self) -> None:
        """End all faults: members go on, sides meet, connections thaw. What is under way still comes."""
        self.faults.end()
        for id in self.members:
            if id not in self._dying:
                self.unpause_member(id)
        self.heal()
        for connection in list(self.connections):
            connection.thaw()
            if isinstance(connection, FaultyGrid):
                connection.mend()

    # What happens to members ----------------------------------------------------------------------

    def add_member(self, host: str | None = None) -> str:
        self.faults.happened(Fault.MEMBER_JOINED)
        return super().add_member(host)

    def kill_member(self, id: str) -> None:
        """The member is dead at once; after `detection_s` the others know, and backups become primaries."""
        if id in self._dying:
            return
        self.faults.happened(Fault.MEMBER_KILLED, id)
        detected_s = self.random.uniform(*self.faults.detection_s)
        self._trouble(self._held_by(id), detected_s)
        if detected_s:
            self._dying.add(id)
            super().pause_member(id)
            self.agenda.after(detected_s, lambda: self._bury(id))
        else:
            self._bury(id)

    def leave_member(self, id: str) -> None:
        """The member gives away what it holds, over `migration_s`, and is gone then."""
        if id in self._leaving or id not in self.living:
            return
        self.faults.happened(Fault.MEMBER_LEFT, id)
        side = self.side_of(id)
        if len(side.members) == 1 or not self.faults.migration_s[1]:
            self._trouble(self._held_by(id), 0.0)
            super().leave_member(id)
            return
        self._leaving.append(id)
        self.rebalance(side)
        self.agenda.after(self.faults.migration_s[1], lambda: self._part(id))

    def pause_member(self, id: str) -> None:
        self.faults.happened(Fault.MEMBER_PAUSED, id)
        self._trouble(self._held_by(id), 0.0)
        super().pause_member(id)

    def unpause_member(self, id: str) -> None:
        """What its primaries sent it meanwhile is still in its sockets, and arrives now."""
        if id in self._dying:
            return
        if self.side_of(id).members[id].paused:
            self._trouble(self._held_by(id), 0.0)
        super().unpause_member(id)
        for address in [address for address in self._weak if id in self.side_of(id).rows[address[1]]]:
            self._strengthen(address)

    def migrate(self, partition: int, to: str) -> None:
        """Nothing happens while a member that it takes is paused or dead."""
        row = self.side_of(to).rows[partition]
        if row[:1] != (to,) and not self._is_any_paused(self.side_of(to), {*row, to}):
            self._moved(partition)
            super().migrate(partition, to)

    def split(self, groups: Sequence[Sequence[str]]) -> None:
        self._plans.clear()
        super().split(groups)
        self.faults.happened(Fault.SPLIT, " | ".join(" ".join(side.members) for side in self.sides))
        self._trouble(range(self.partition_count), 0.0)

    def heal(self) -> None:
        if len(self.sides) > 1:
            self._plans.clear()
            self.faults.happened(Fault.HEALED)
            for side in self.sides:
                if side is not self.largest() and not side.refuses:
                    self.faults.happened(Fault.SIDE_DISCARDED, " ".join(side.members))
            self._trouble(range(self.partition_count), 0.0)
        super().heal()

    def rebalance(self, side: Side) -> None:
        """Migrate partitions one by one, each at its moment within `migration_s`."""
        stayers = [id for id in side.members if id not in self._leaving]
        target = rebalanced(side.rows, stayers or list(side.members), self.backups + 1)
        plan = {partition: row for partition, row in enumerate(target) if row != side.rows[partition]}
        self._plans[side] = plan
        for partition in list(plan):
            delay_s = self.random.uniform(*self.faults.migration_s)
            if delay_s:
                self.agenda.after(delay_s, partial(self._move, side, plan, partition))
            else:
                self._move(side, plan, partition)

    # For connections ------------------------------------------------------------------------------

    def tick(self, time: float) -> float:
        """The end of the tick that `time` is in."""
        return ceil(time / self._tick_s) * self._tick_s

    def in_trouble(self, partition: int) -> bool:
        """Whether a member of this partition came, went or moved a moment ago."""
        until = self._trouble_until[partition]
        if until >= 0 and trio.current_time() >= until:
            self._trouble_until[partition] = until = NEVER
        return until >= 0

    def tells_nothing(self, side: Side, partition: int) -> bool:
        """Whether its primary is on its way out: such a member takes writes, and sends no events."""
        row = side.rows[partition]
        return bool(row) and row[0] in self._leaving

    def is_blocked(self, side: Side, partition: int) -> bool:
        """Whether the primary answers nobody."""
        until = self._busy_until[partition]
        if until >= 0 and trio.current_time() >= until:
            self._busy_until[partition] = until = NEVER
        return until >= 0 or side.is_stuck(partition, write=False)

    def reachable_copies(self, side: Side, partition: int) -> list[Shard]:
        """The copies whose members would answer a write."""
        copies = side.copies[partition]
        if not side.hindered:
            return copies
        return [copy for id, copy in zip(side.rows[partition], copies, strict=True) if not side.members[id].paused]

    def remember(self, map: Map, partition: int, key: bytes, value: bytes | None) -> None:
        """An entry is about to change: stale reads may still see what it was."""
        address = (map, partition, key)
        self._past.pop(address, None)
        self._past[address] = (trio.current_time(), value)
        if len(self._past) > REMEMBERED_MAX:
            del self._past[next(iter(self._past))]

    def before(self, map: Map, partition: int, key: bytes) -> tuple[bool, bytes | None]:
        """Whether the entry changed a moment ago, and what it was before."""
        changed, value = self._past.get((map, partition, key), (NEVER, None))
        recent = changed >= 0 and trio.current_time() - changed <= self.faults.stale_s
        return recent, value if recent else None

    def weaken(self, map: Map, partition: int, key: bytes) -> None:
        """Only the primary holds what was just written; its backups get it later, or never."""
        address = (map, partition, key)
        self._weak[address] = None
        if self.faults.weak_s is not None:
            self.agenda.after(self.random.uniform(*self.faults.weak_s), lambda: self._strengthen(address))

    # Parts ----------------------------------------------------------------------------------------

    def _strengthen(self, address: Address) -> None:
        """Let the backups that can be reached hold what the primary holds."""
        map, partition, key = address
        is_strong = True
        for side in self.sides:
            if self.is_blocked(side, partition):
                is_strong = False
                continue
            primary, *backups = self.reachable_copies(side, partition)
            is_strong = is_strong and len(backups) + 1 == len(side.rows[partition])
            value = primary.entries[map].get(key)
            for backup in backups:
                if value is None:
                    backup.drop(map, key)
                else:
                    backup.put(map, key, value, primary.expiries.get((map, key)))
        if is_strong:
            self._weak.pop(address, None)

    def _bury(self, id: str) -> None:
        side = self.side_of(id)
        gone = side.members[id]
        self._dying.discard(id)
        if id in self._leaving:
            self._leaving.remove(id)
        self._trouble(self._held_by(id), 0.0)
        weak = [address for address in self._weak if side.rows[address[1]][:1] == (id,)]
        self.expel(id)
        for map, partition, key in weak:
            copies = side.copies[partition]
            held = gone.shards[partition].entries[map].get(key)
            if copies and copies[0].entries[map].get(key) != held:
                self.faults.happened(Fault.WEAK_LOST, f"{map.value} {partition} {key!r}")

    def _part(self, id: str) -> None:
        if id not in self._leaving:
            return
        if self.side_of(id).members[id].paused:
            self.agenda.after(MOVE_AGAIN_S, lambda: self._part(id))
            return
        self._leaving.remove(id)
        super().leave_member(id)

    def _move(self, side: Side, plan: dict[int, Row], partition: int) -> None:
        if self._plans.get(side) is not plan:
            return  # members have come or gone since, and there is another plan
        if self._is_any_paused(side, {*side.rows[partition], *plan[partition]}):
            self.agenda.after(MOVE_AGAIN_S, partial(self._move, side, plan, partition))
            return
        row = plan.pop(partition)
        if side.rows[partition] != row:
            self._moved(partition)
            side.place(partition, row)
            self.changed(side, OwnershipEvent.PARTITIONS)

    def _is_any_paused(self, side: Side, ids: set[str]) -> bool:
        return any(id in side.members and side.members[id].paused for id in ids)

    def _moved(self, partition: int) -> None:
        self.faults.happened(Fault.MIGRATED, f"partition {partition}")
        pause_s = self.random.uniform(*self.faults.migration_pause_s)
        if pause_s:
            self._busy_until[partition] = trio.current_time() + pause_s
        self._trouble([partition], pause_s)

    def _trouble(self, partitions: Sequence[int], for_s: float) -> None:
        until = trio.current_time() + for_s + self.faults.trouble_s
        for partition in partitions:
            self._trouble_until[partition] = max(until, self._trouble_until[partition])

    def _held_by(self, id: str) -> list[int]:
        return [partition for partition, row in enumerate(self.side_of(id).rows) if id in row]

    def _start_again(self, side: Side, lost: Sequence[int]) -> None:
        for partition in lost if side.members else ():
            self.faults.happened(Fault.PARTITION_LOST, f"partition {partition}")
        super()._start_again(side, lost)

    def _new_grid(self, side: Side, host: str) -> FaultyGrid:
        return FaultyGrid(self, side, host)
