"""Which task of a stage a key belongs to: by a hash that is named, so that it never changes under a pipeline."""

from collections.abc import Callable

from tenure.jobs.pipelines.errors import BadOption

__all__ = ["HASHES", "fnv1", "fnv1a", "task_of"]

OFFSET_BASIS, PRIME, MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def fnv1(data: bytes) -> int:
    """The FNV-1 hash, 32 bits: multiply, then mix the byte in."""
    hash = OFFSET_BASIS
    for byte in data:
        hash = (hash * PRIME & MASK) ^ byte
    return hash


def fnv1a(data: bytes) -> int:
    """The FNV-1a hash, 32 bits: mix the byte in, then multiply."""
    hash = OFFSET_BASIS
    for byte in data:
        hash = (hash ^ byte) * PRIME & MASK
    return hash


HASHES: dict[str, Callable[[bytes], int]] = {"fnv1": fnv1, "fnv1a": fnv1a}


def task_of(key: str, tasks: int, hash: str = "fnv1a") -> int:
    """The number of the task, from 0, that gets the records of this key."""
    if hash not in HASHES:
        raise BadOption(f"there is no hash {hash!r}; there are {', '.join(HASHES)}")
    return HASHES[hash](key.encode()) % tasks
