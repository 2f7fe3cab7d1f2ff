"""How a coordinator and the partitions' owners talk: by values in the grid, so that both may change meanwhile."""

from msgspec import UNSET, Struct, UnsetType

__all__ = ["CHANNEL", "CUT", "REQUEST", "Channel", "Cut", "Phase", "Request"]

REQUEST = b"snapshot"
"""Beside the nodes' heartbeats, which all nodes read with every beat."""
CUT = b"cut"
CHANNEL = b"channel"
"""Beside each partition's head."""


class Phase:
    """Where a snapshot stands."""

    CUTTING = "cutting"
    COLLECTING = "collecting"
    """All partitions have cut, so it is known what was on its way."""
    ENDED = "ended"


class Request(Struct, frozen=True):
    """The one snapshot that may be under way. Changed by compare-and-set."""

    number: int
    """Grows with each attempt, also of another coordinator."""
    attempt: str
    """Names this attempt in the store, and no other one."""
    url: str
    base: str = ""
    """The manifest of the snapshot before: what has not changed since is not written again."""
    phase: str = Phase.CUTTING
    beat: int = 0
    """Moves while the coordinator lives."""
    channels: tuple[int, ...] = ()
    """Partitions to which something was on its way: see their `Channel`."""


class Cut(Struct, frozen=True):
    """What a partition's owner says of its part."""

    number: int
    numbered: dict[int, int] = {}
    """partition -> the number of the next slot of our lane to it, at the cut"""
    cursors: dict[int, int] = {}
    """partition -> the next slot of its lane to us, at the cut"""
    part: str = ""
    """Where it is stored; empty: not yet."""
    digest: str = ""
    jobs: int = 0
    size_bytes: int = 0
    written_bytes: int = 0
    """Of these: what was not in the store before."""
    packs: tuple[str, ...] | UnsetType = UNSET
    """What it needs besides. Versions that name none leave this out."""
    failure: str = ""
    """Why it will not be."""
    final: bool = False
    """The failure would be the same again."""


class Channel(Struct, frozen=True):
    """partition -> up to where its lane belongs to the snapshot of this number."""

    number: int
    ends: dict[int, int]
