"""Requests and answers as they stand on the wire.

The client's own map proxy costs more than the network here, and can't do all that is needed. Requests
are therefore put together from templates, one per map and operation:

    header (type, correlation id, partition) | fixed parameters | map's name | key | value ...

Keys and values are byte arrays in Hazelcast's serialized form ("Data"): partition hash, type, length,
bytes. A key's partition hash is ours to choose, and members take it as it is: that is what pins a key
to a partition. 0 would mean 'not set', so partition 0 is written as the partition count.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hazelcast.protocol.builtin import DataCodec, EntryListCodec, FixSizedTypesCodec, ListIntegerCodec, StringCodec
from hazelcast.protocol.client_message import (
    EVENT_HEADER_SIZE,
    REQUEST_HEADER_SIZE,
    RESPONSE_HEADER_SIZE,
    InboundMessage,
    OutboundMessage,
    create_initial_buffer,
)

from tenure.scheduler.grid.port import Entry

__all__ = [
    "SCAN_FROM_START",
    "Decode",
    "Requests",
    "decode_entries",
    "decode_entry_event",
    "decode_nothing",
    "decode_page",
    "decode_replaced",
    "decode_value",
]

Decode = Callable[[InboundMessage], Any]

_SET, _PUT_IF_ABSENT, _GET, _REPLACE_IF_SAME, _DELETE = 0x010F00, 0x010E00, 0x010200, 0x010500, 0x010900
_GET_ALL, _FETCH_ENTRIES, _EXECUTE_ON_KEYS, _PUT_ALL = 0x012300, 0x013800, 0x013200, 0x012C00
_REMOVE_IF_SAME = 0x010800

_LONG, _INT, _BOOLEAN, _UUID, _FRAME_HEADER, _DATA_HEADER = 8, 4, 1, 17, 6, 12
_BYTE_ARRAY = -12
_FINAL, _BEGIN, _END, _NULL = 1 << 13, 1 << 12, 1 << 11, 1 << 10

_frame = struct.Struct("<iH").pack
_data = struct.Struct(">iii").pack
_pack_long = struct.Struct("<q").pack_into
_begin = _frame(_FRAME_HEADER, _BEGIN)
_end_final = _frame(_FRAME_HEADER, _END | _FINAL)

# What every member can run on an entry to remove it (its own `removeAll` does): an object without fields, known by
# the numbers of its factory and class.
_IDENTIFIED_OBJECT, _MAP_FACTORY, _ENTRY_REMOVING_PROCESSOR = -2, -4, 124
_remover = struct.pack(">iibii", 0, _IDENTIFIED_OBJECT, 1, _MAP_FACTORY, _ENTRY_REMOVING_PROCESSOR)
_remove_each = _frame(_FRAME_HEADER + len(_remover), 0) + _remover + _begin

SCAN_FROM_START = (2**31 - 1, -1)
"""Where a scan begins: pairs of a position and a table size, of which the last is the current one."""


class Requests:
    """The requests for one map of a cluster."""

    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        # Index by partition: what stands for it as a hash. See above for 0.
        self._hashes = [partition_count, *range(1, partition_count)]
        self._set = _template(name, _SET, 2 * _LONG)
        self._put_if_absent = _template(name, _PUT_IF_ABSENT, 2 * _LONG, ttl_ms=-1)
        self._get = _template(name, _GET, _LONG)
        self._replace_if_same = _template(name, _REPLACE_IF_SAME, _LONG)
        self._remove_if_same = _template(name, _REMOVE_IF_SAME, _LONG)
        self._delete = _template(name, _DELETE, _LONG)
        self._get_all = _template(name, _GET_ALL, 0)
        self._put_all = _template(name, _PUT_ALL, _BOOLEAN) + _begin
        self._delete_all = _template(name, _EXECUTE_ON_KEYS, 0) + _remove_each

    def set(self, partition: int, key: bytes, value: bytes, ttl_ms: int) -> OutboundMessage:
        buffer = bytearray().join((self._set, *_key(self._hashes[partition], key), *_value(value, _FINAL)))
        _pack_long(buffer, REQUEST_HEADER_SIZE + _LONG, ttl_ms)
        return OutboundMessage(buffer, False)

    def put_all(self, partition: int, entries: Mapping[bytes, bytes]) -> OutboundMessage:
        parts = [self._put_all]
        for key, value in entries.items():
            parts += *_key(self._hashes[partition], key), *_value(value)
        return OutboundMessage(bytearray().join((*parts, _end_final)), False)

    def put_if_absent(self, partition: int, key: bytes, value: bytes) -> OutboundMessage:
        parts = self._put_if_absent, *_key(self._hashes[partition], key), *_value(value, _FINAL)
        return OutboundMessage(bytearray().join(parts), False)

    def get(self, partition: int, key: bytes) -> OutboundMessage:
        return OutboundMessage(bytearray().join((self._get, *_key(self._hashes[partition], key, _FINAL))), True)

    def replace_if_same(self, partition: int, key: bytes, old: bytes, new: bytes) -> OutboundMessage:
        parts = self._replace_if_same, *_key(self._hashes[partition], key), *_value(old), *_value(new, _FINAL)
        return OutboundMessage(bytearray().join(parts), False)

    def remove_if_same(self, partition: int, key: bytes, old: bytes) -> OutboundMessage:
        parts = self._remove_if_same, *_key(self._hashes[partition], key), *_value(old, _FINAL)
        return OutboundMessage(bytearray().join(parts), False)

    def delete(self, partition: int, key: bytes) -> OutboundMessage:
        return OutboundMessage(bytearray().join((self._delete, *_key(self._hashes[partition], key, _FINAL))), False)

    def delete_all(self, partition: int, keys: Sequence[bytes]) -> OutboundMessage:
        """To be sent to the member that holds them: of itself it goes anywhere."""
        parts = [self._delete_all]
        for key in keys:
            parts += _key(self._hashes[partition], key)
        return OutboundMessage(bytearray().join((*parts, _end_final)), False)

    def get_all(self, partition: int, keys: Sequence[bytes]) -> OutboundMessage:
        parts = [self._get_all, _begin]
        for key in keys:
            parts += _key(self._hashes[partition], key)
        return OutboundMessage(bytearray().join((*parts, _end_final)), True)

    def page(self, pointers: Sequence[int], entries: int) -> OutboundMessage:
        """One page of a scan; the client has no codec for it."""
        buffer = create_initial_buffer(REQUEST_HEADER_SIZE + _INT, _FETCH_ENTRIES)
        FixSizedTypesCodec.encode_int(buffer, REQUEST_HEADER_SIZE, entries)
        StringCodec.encode(buffer, self.name)
        ListIntegerCodec.encode(buffer, pointers, True)
        return OutboundMessage(buffer, True)

    def key_data(self, partition: int, key: bytes) -> bytes:
        return _data(self._hashes[partition], _BYTE_ARRAY, len(key)) + key


def _template(name: str, message_type: int, parameter_bytes: int, *, ttl_ms: int = 0) -> bytes:
    """All that comes before the key. The first parameter is a lock owner's thread id: we never lock."""
    buffer = create_initial_buffer(REQUEST_HEADER_SIZE + parameter_bytes, message_type)
    if ttl_ms:
        _pack_long(buffer, REQUEST_HEADER_SIZE + _LONG, ttl_ms)
    StringCodec.encode(buffer, name)
    return bytes(buffer)


def _key(hash_: int, key: bytes, flags: int = 0) -> tuple[bytes, bytes, bytes]:
    return _frame(_FRAME_HEADER + _DATA_HEADER + len(key), flags), _data(hash_, _BYTE_ARRAY, len(key)), key


def _value(value: bytes, flags: int = 0) -> tuple[bytes, bytes, bytes]:
    # A value's hash must always be the same: the members compare values as they stand.
    return _frame(_FRAME_HEADER + _DATA_HEADER + len(value), flags), _data(0, _BYTE_ARRAY, len(value)), value


def decode_nothing(message: InboundMessage) -> None:
    return None


def decode_value(message: InboundMessage) -> bytes | None:
    frame = message.start_frame.next
    return None if frame.flags & _NULL else frame.buf[_DATA_HEADER:]


def decode_replaced(message: InboundMessage) -> bool:
    return bool(message.start_frame.buf[RESPONSE_HEADER_SIZE])


def decode_entries(message: InboundMessage) -> list[Entry]:
    message.next_frame()
    return _entries(message)


def decode_page(message: InboundMessage) -> tuple[list[int], list[Entry]]:
    message.next_frame()
    return ListIntegerCodec.decode(message), _entries(message)


def _entries(message: InboundMessage) -> list[Entry]:
    pairs = EntryListCodec.decode(message, DataCodec.decode, DataCodec.decode)
    return [Entry(bytes(key.buffer[_DATA_HEADER:]), bytes(value.buffer[_DATA_HEADER:])) for key, value in pairs]


def decode_entry_event(message: InboundMessage, partition_count: int) -> tuple[int, int, bytes, bytes | None] | None:
    """Event type, partition, key and value; None for an event that is not about one entry."""
    start = message.start_frame
    key, value = start.next, start.next.next
    if key.flags & _NULL:
        return None
    event_type = int.from_bytes(start.buf[EVENT_HEADER_SIZE : EVENT_HEADER_SIZE + _INT], "little", signed=True)
    partition = int.from_bytes(key.buf[:_INT], "big", signed=True) % partition_count
    return event_type, partition, key.buf[_DATA_HEADER:], None if value.flags & _NULL else value.buf[_DATA_HEADER:]
