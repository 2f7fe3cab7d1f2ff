"""Topics as addresses."""

from msgspec import Struct

__all__ = ["Topic"]


class Topic(Struct, frozen=True):
    """A named address that jobs subscribe to: `publish(Topic("news"), …)` reaches every subscriber."""

    name: str
