"""The memory grid's members: who is there, what they hold, and what happens to them."""

import random
from collections.abc import Iterable, Sequence
from functools import partial

from tenure.scheduler.grid.memory.agenda import Agenda
from tenure.scheduler.grid.memory.grid import MemoryGrid
from tenure.scheduler.grid.memory.member import MemoryMember
from tenure.scheduler.grid.memory.placement import Row, rebalanced
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.memory.subscriptions import Ears
from tenure.scheduler.grid.port import Map, OwnershipEvent

__all__ = ["MemoryCluster"]

FIRST_PORT = 5701


class MemoryCluster:
    """Virtual members in this process that keep partitions with backups.

    All happens in trio's time and by one seed: the same calls give the same results. Nothing survives the
    process. Members are named m0, m1, … and names are never used again.
    """

    def __init__(
        self,
        *,
        partitions: int = 271,
        members: int = 1,
        backups: int = 1,
        seed: int = 0,
        hosts: Sequence[str] = ("127.0.0.1",),
        split_protection: bool = False,
        default_timeout_s: float = 2.0,
    ) -> None:
        """`hosts` are given to members in turn. `split_protection` refuses calls where no majority of `members` is."""
        self.partition_count = partitions
        self.backups = backups
        self.random = random.Random(seed)
        self.default_timeout_s = default_timeout_s
        self.retry_pause_s = 0.05
        self.agenda = Agenda()
        self.ears = Ears()
        self.connections: list[MemoryGrid] = []
        self._hosts = tuple(hosts)
        self._members_ever = 0
        self._quorum = members // 2 + 1 if split_protection else 0
        whole = Side((self._new_member() for _ in range(members)), partitions, self._quorum)
        self.sides = [whole]
        for partition, row in enumerate(self.target_rows(whole)):
            whole.place(partition, row)

    # What users of the grid call ------------------------------------------------------------------

    def connect(self, host: str = "", *, member: str | None = None) -> MemoryGrid:
        """A connection, paired with `member`; else with the least paired one, on `host` first."""
        side = self.side_of(member) if member is not None else self.largest()
        grid = self._new_grid(side, host)
        self.connections.append(grid)
        grid.pair(side, member or self.nearest(side, host))
        return grid

    @property
    def members(self) -> list[str]:
        """The ids of all members that live, on whatever side."""
        return [id for side in self.sides for id in side.members]

    def primary(self, partition: int) -> str | None:
        """The member that is primary on the largest side."""
        row = self.largest().rows[partition]
        return row[0] if row else None

    def is_safe(self) -> bool:
        """Whether one side holds all, every partition with all its backups: the loss of a member loses nothing."""
        whole = self.sides[0]
        copies = min(self.backups + 1, len(whole.members))
        return len(self.sides) == 1 and not whole.hindered and all(len(row) == copies for row in whole.rows)

    # What happens to members ----------------------------------------------------------------------

    def add_member(self, host: str | None = None) -> str:
        """A member joins the largest side and takes its share. Returns its id."""
        member = self._new_member(host)
        side = self.largest()
        is_first = not side.members
        side.admit(member)
        self.changed(side, OwnershipEvent.MEMBERS)
        if is_first:
            self._start_again(side, range(self.partition_count))
        self.rebalance(side)
        return member.id

    def kill_member(self, id: str) -> None:
        """A member is gone at once; backups become primaries. Partitions with no copy left are lost."""
        self.expel(id)

    def leave_member(self, id: str) -> None:
        """A member leaves in good order: what it holds is migrated first."""
        side = self.side_of(id)
        others = [other for other in side.members if other != id]
        if others:
            for partition, row in enumerate(rebalanced(side.rows, others, self.backups + 1)):
                # The leaver is still the source of what only it holds.
                side.place(partition, row)
        self.expel(id)

    def pause_member(self, id: str) -> None:
        """As SIGSTOP: calls that need this member wait."""
        self.side_of(id).members[id].paused = True
        self._regard(self.side_of(id))

    def unpause_member(self, id: str) -> None:
        """As SIGCONT."""
        self.side_of(id).members[id].paused = False
        self._regard(self.side_of(id))

    def migrate(self, partition: int, to: str) -> None:
        """Move a partition's primary to a member, at this very moment."""
        side = self.side_of(to)
        row = side.rows[partition]
        if row and row[0] == to:
            return
        rest = [id for id in row if id != to]
        side.place(partition, (to, *rest[: max(len(row) - 1, 0)]))
        self.changed(side, OwnershipEvent.PARTITIONS)

    def split(self, groups: Sequence[Sequence[str]]) -> None:
        """The cluster falls apart: each group of members goes on alone, with backups for what it misses."""
        whole = self.sides[0]
        if len(self.sides) != 1 or sorted(id for group in groups for id in group) != sorted(whole.members):
            raise ValueError("split: every member of a whole cluster must be in one group")
        sides = [self._torn_off(whole, group) for group in sorted(groups, key=len, reverse=True)]
        self.sides = [side for side, _ in sides]
        for side, lost in sides:
            for connection in self.connections:
                if connection.paired in side.members:
                    connection.pair(side, connection.paired)
            self.changed(side, OwnershipEvent.MEMBERS)
            self._start_again(side, lost)
            self.rebalance(side)

    def heal(self) -> None:
        """The sides meet again: the largest stays as it is, the members of others come to it empty-handed."""
        whole = self.largest()
        others = [side for side in self.sides if side is not whole]
        self.sides = [whole]
        for side in others:
            for member in side.members.values():
                whole.admit(member)
        for connection in self.connections:
            if connection.side is not whole:
                connection.pair(whole, connection.paired or self.nearest(whole, connection.host))
                connection.notice(OwnershipEvent.MERGED)
        if others:
            self.changed(whole, OwnershipEvent.MEMBERS)
            self.rebalance(whole)

    # For the parts of this package ----------------------------------------------------------------

    def side_of(self, member: str) -> Side:
        """The side that a living member is on."""
        for side in self.sides:
            if member in side.members:
                return side
        raise ValueError(f"no member {member!r} lives; there are {', '.join(self.members) or 'none'}")

    def largest(self) -> Side:
        """The side with most members."""
        return max(self.sides, key=lambda side: len(side.members))

    def expel(self, id: str) -> None:
        """A member is gone, and everybody sees it."""
        side = self.side_of(id)
        lost = side.expel(id)
        self.changed(side, OwnershipEvent.MEMBERS)
        self._start_again(side, lost)
        self.rebalance(side)

    def nearest(self, side: Side, host: str) -> str | None:
        """The member to pair a connection from `host` with: same host first, then whoever has fewest."""
        paired = [connection.paired for connection in self.connections]

        def preference(member: MemoryMember) -> tuple[bool, bool, int]:
            return member.paused, member.public.host != host, paired.count(member.id)

        return min(side.members.values(), key=preference).id if side.members else None

    def target_rows(self, side: Side) -> list[Row]:
        """Where the partitions of a side should be."""
        return rebalanced(side.rows, list(side.members), self.backups + 1)

    def rebalance(self, side: Side) -> None:
        """Migrate partitions until they are spread evenly and have their backups: here, at once."""
        target = enumerate(self.target_rows(side))
        moved = [(partition, row) for partition, row in target if row != side.rows[partition]]
        for partition, row in moved:
            side.place(partition, row)
        if moved:
            self.changed(side, OwnershipEvent.PARTITIONS)

    def changed(self, side: Side, event: OwnershipEvent) -> None:
        """Let the connections of a side see how things stand, and pair those anew whose member is gone."""
        for connection in self.connections:
            if connection.side is side:
                if connection.paired not in side.members:
                    connection.pair(side, self.nearest(side, connection.host))
                connection.notice(event)
        self._regard(side)

    def expire_later(self, map: Map, partition: int, key: bytes, due: float) -> None:
        """See to it that an entry with a time to live goes when it is due, unless it is written again."""
        self.agenda.at(due, partial(self._expire, map, partition, key, due))

    def _expire(self, map: Map, partition: int, key: bytes, due: float) -> None:
        for side in self.sides:
            gone = False
            for shard in side.copies[partition]:
                if shard.expiries.get((map, key)) == due:
                    shard.drop(map, key)
                    gone = True
            if gone and map in self.ears.maps:
                self.ears.tell(map, partition, side.rows[partition][0], key, None)

    def _new_member(self, host: str | None = None) -> MemoryMember:
        number = self._members_ever
        self._members_ever += 1
        return MemoryMember(f"m{number}", host or self._hosts[number % len(self._hosts)], FIRST_PORT + number)

    def _new_grid(self, side: Side, host: str) -> MemoryGrid:
        return MemoryGrid(self, side, host)

    def _torn_off(self, whole: Side, group: Iterable[str]) -> tuple[Side, list[int]]:
        side = Side((whole.members[id] for id in group), self.partition_count, self._quorum)
        lost = []
        for partition, row in enumerate(whole.rows):
            side.rows[partition] = left = tuple(id for id in row if id in side.members)
            side.copies[partition] = [side.members[id].shards[partition] for id in left]
            if not left:
                lost.append(partition)
        return side, lost

    def _start_again(self, side: Side, lost: Sequence[int]) -> None:
        """Partitions without a copy begin empty elsewhere, and everybody is told."""
        if not lost or not side.members:
            return
        members = [member for member in side.members.values() if not member.paused] or list(side.members.values())
        for number, partition in enumerate(lost):
            member = members[number % len(members)]
            member.shards[partition] = Shard()
            side.rows[partition] = (member.id,)
            side.copies[partition] = [member.shards[partition]]
        side.refresh()
        self.changed(side, OwnershipEvent.PARTITION_LOST)

    def _regard(self, side: Side) -> None:
        side.refresh()
        for connection in self.connections:
            if connection.side is side:
                connection.regard()
