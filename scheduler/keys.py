"""Where things are: the partition of an id, and the keys of slots."""

import struct
import zlib
from typing import Any

from tenure.scheduler.errors import Mistake

__all__ = [
    "checked_address",
    "checked_id",
    "chunk_key",
    "client_partition",
    "is_partition_sender",
    "journal_key",
    "partition_of",
    "partition_of_sender",
    "partition_sender",
    "reply_key",
    "sending_partition",
    "slot_key",
    "split_chunk_key",
    "split_slot_key",
]

ADDRESS_BYTES_MAX = MESSAGE_ID_BYTES_MAX = 500
HEAD = b"head"
WATERMARK = b"watermark"
_SLOT = struct.Struct(">8sQQ")
_NUMBER = struct.Struct(">Q")
_CHUNK = struct.Struct(">QII")
_SENDER = struct.Struct(">4sI")
PARTITION_MARK = b"\x00part"[:4]


def partition_of(id: str, partition_count: int) -> int:
    """The partition that a job (or topic) of this id belongs to. Part of the stored format: never changes."""
    return zlib.crc32(id.encode()) % partition_count


def checked_address(address: Any) -> str:
    """A job's id or a topic's name, if it can be one; raises `Mistake`."""
    if isinstance(address, str) and address and _fits(address, ADDRESS_BYTES_MAX):
        return address
    raise Mistake(f"an id or address is a string of 1 to {ADDRESS_BYTES_MAX} bytes of UTF-8, not {address!r:.100}")


def checked_id(id: Any) -> str:
    """A message's id, if it can be one; empty: it has none. Raises `Mistake`."""
    if isinstance(id, str) and _fits(id, MESSAGE_ID_BYTES_MAX):
        return id
    raise Mistake(f"a message's id is a string of at most {MESSAGE_ID_BYTES_MAX} bytes of UTF-8, not {id!r:.100}")


def _fits(text: str, bytes_max: int) -> bool:
    if text.isascii():
        return len(text) <= bytes_max
    try:
        return len(text.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False  # lone surrogates


def slot_key(sender: bytes, lane: int, n: int) -> bytes:
    """The key of slot `n` of a sender's lane, in the receiving partition of the inbox."""
    return _SLOT.pack(sender, lane, n)


def split_slot_key(key: bytes) -> tuple[bytes, int, int] | None:
    """(sender, lane, n), or None if this is no slot's key."""
    if len(key) != _SLOT.size:
        return None
    return _SLOT.unpack(key)


def partition_sender(partition: int) -> bytes:
    """A partition as a sender. Clients' sender ids are random and never begin with this mark."""
    return _SENDER.pack(PARTITION_MARK, partition)


def sending_partition(sender: bytes) -> int:
    """Back from a partition as a sender."""
    partition: int = _SENDER.unpack(sender)[1]
    return partition


def is_partition_sender(sender: bytes) -> bool:
    """Is this sender a partition (never held back, never forgotten), not a client?"""
    return sender[:4] == PARTITION_MARK


def partition_of_sender(sender: bytes) -> int:
    """Which partition this sender is."""
    return int(_SENDER.unpack(sender)[1])


def journal_key(n: int) -> bytes:
    """The key of journal slot `n`."""
    return _NUMBER.pack(n)


def chunk_key(epoch: int, serial: int, chunk: int) -> bytes:
    """The key of one chunk of an image."""
    return _CHUNK.pack(epoch, serial, chunk)


def split_chunk_key(key: bytes) -> tuple[int, int, int] | None:
    """(epoch, serial, chunk), or None if this is no chunk's key."""
    return _CHUNK.unpack(key) if len(key) == _CHUNK.size else None


def reply_key(client: bytes, n: int) -> bytes:
    """The key of the answer to a client's question `n`, in the client's own partition of `replies`."""
    return client + _NUMBER.pack(n)


def client_partition(client: bytes, partition_count: int) -> int:
    """Where a client's answers are put."""
    return zlib.crc32(client) % partition_count
