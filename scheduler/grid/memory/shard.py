"""A member's copy of one partition."""

from tenure.scheduler.grid.port import Map

__all__ = ["Shard"]


class Shard:
    """One member's copy of one partition: the entries of each map, and when those with a time to live go.

    Copies hold the same bytes objects, so a backup costs its dict, not its bytes.
    """

    __slots__ = ("entries", "expiries")

    def __init__(self) -> None:
        self.entries: dict[Map, dict[bytes, bytes]] = {map: {} for map in Map}
        self.expiries: dict[tuple[Map, bytes], float] = {}

    def copy(self) -> "Shard":
        """What a migration brings to another member."""
        other = Shard()
        other.entries = {map: entries.copy() for map, entries in self.entries.items()}
        other.expiries = self.expiries.copy()
        return other

    def put(self, map: Map, key: bytes, value: bytes, due: float | None = None) -> None:
        """Write; an entry without a due time stays for good, whatever was there before."""
        self.entries[map][key] = value
        if due is not None:
            self.expiries[map, key] = due
        elif self.expiries:
            self.expiries.pop((map, key), None)

    def drop(self, map: Map, key: bytes) -> None:
        """Remove, where there is something."""
        self.entries[map].pop(key, None)
        if self.expiries:
            self.expiries.pop((map, key), None)
