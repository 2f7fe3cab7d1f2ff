"""The members that see each other, and their partition table. A whole cluster is one side; a split one has several."""

from collections.abc import Iterable

from tenure.scheduler.grid.memory.member import MemoryMember
from tenure.scheduler.grid.memory.placement import Row
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.port import Member

__all__ = ["Side"]


class Side:
    """One partition table and the copies it points at. The primary's copy comes first."""

    def __init__(self, members: Iterable[MemoryMember], partition_count: int, quorum: int) -> None:
        self.members: dict[str, MemoryMember] = {member.id: member for member in members}
        self.quorum = quorum
        self.rows: list[Row] = [() for _ in range(partition_count)]
        self.copies: list[list[Shard]] = [[] for _ in range(partition_count)]
        self.hindered = False
        """Whether some call may not go straight through."""
        self._public: tuple[tuple[Member, ...], tuple[str | None, ...]] | None = None
        self.refresh()

    @property
    def refuses(self) -> bool:
        """Whether split-brain protection lets nobody read or write here."""
        return len(self.members) < self.quorum

    def is_stuck(self, partition: int, *, write: bool) -> bool:
        """Whether a member that this call needs is paused."""
        row = self.rows[partition]
        if not write:
            return not row or self.members[row[0]].paused
        return not row or any(self.members[id].paused for id in row)

    def public(self) -> tuple[tuple[Member, ...], tuple[str | None, ...]]:
        """The members and the primaries, as `Ownership` shows them."""
        if self._public is None:
            members = tuple(member.public for member in self.members.values())
            self._public = members, tuple(row[0] if row else None for row in self.rows)
        return self._public

    def place(self, partition: int, row: Row) -> None:
        """Let the members of `row` hold the partition, copied from its primary (empty, if no copy was left of it)."""
        held = [id for id in self.rows[partition] if id in self.members]
        source = self.members[held[0]].shards[partition] if held else None
        for id in row:
            if id not in held or (id == row[0] != held[0]):
                # A backup that takes over from a living primary gets all that the primary has.
                self.members[id].shards[partition] = source.copy() if source is not None else Shard()
        for id in held:
            if id not in row:
                del self.members[id].shards[partition]
        self.rows[partition] = row
        self.copies[partition] = [self.members[id].shards[partition] for id in row]
        self.refresh()

    def refresh(self) -> None:
        """Take note that members or the table have changed."""
        self._public = None
        self.hindered = not self.members or self.refuses or any(member.paused for member in self.members.values())

    def admit(self, member: MemoryMember) -> None:
        """A member joins, holding nothing yet."""
        member.shards.clear()
        self.members[member.id] = member
        self.refresh()

    def expel(self, id: str) -> list[int]:
        """A member is gone with what it held; backups step in. Returns the partitions of which no copy is left."""
        del self.members[id]
        lost = []
        for partition, row in enumerate(self.rows):
            if id in row:
                left = tuple(other for other in row if other != id)
                self.rows[partition] = left
                self.copies[partition] = [self.members[other].shards[partition] for other in left]
                if not left:
                    lost.append(partition)
        self.refresh()
        return lost
