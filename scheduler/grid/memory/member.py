"""A virtual member of a memory grid."""

from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.port import Member

__all__ = ["MemoryMember"]


class MemoryMember:
    """Holds its copies of partitions, and nothing that another member could not lose with it."""

    def __init__(self, id: str, host: str, port: int) -> None:
        self.id = id
        self.public = Member(id, host, port)
        self.shards: dict[int, Shard] = {}
        self.paused = False
        """As after SIGSTOP: it answers nobody, and nobody has noticed."""
