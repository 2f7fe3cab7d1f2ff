"""Where things are stored: keys that sort and come apart as they were put together, and that never change."""

import pytest

from tenure.scheduler.errors import Mistake
from tenure.scheduler.keys import (
    ADDRESS_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    checked_address,
    checked_id,
    chunk_key,
    client_partition,
    is_partition_sender,
    journal_key,
    partition_of,
    partition_of_sender,
    partition_sender,
    reply_key,
    sending_partition,
    slot_key,
    split_chunk_key,
    split_slot_key,
)

CLIENT = b"\x01client1"


def test_where_a_job_is_never_changes() -> None:
    assert [partition_of(id, 271) for id in ("a", "order-17", "ü", "a" * 500)] == [100, 47, 56, 112]
    assert [client_partition(sender, 271) for sender in (CLIENT, b"\xff" * 8)] == [77, 65]


def test_what_keys_look_like_never_changes() -> None:
    assert slot_key(CLIENT, 258, 3) == CLIENT + b"\0\0\0\0\0\0\1\2" + b"\0\0\0\0\0\0\0\3"
    assert partition_sender(258) == b"\0par\0\0\1\2"
    assert journal_key(258) == b"\0\0\0\0\0\0\1\2"
    assert chunk_key(1, 2, 3) == b"\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3"
    assert reply_key(CLIENT, 258) == CLIENT + b"\0\0\0\0\0\0\1\2"


def test_keys_come_apart_as_they_were_put_together() -> None:
    assert split_slot_key(slot_key(CLIENT, 2**50, 7)) == (CLIENT, 2**50, 7)
    assert split_chunk_key(chunk_key(2**50, 7, 9)) == (2**50, 7, 9)
    for other in (b"", CLIENT, slot_key(CLIENT, 1, 1) + b"\0", chunk_key(1, 1, 1)):
        assert split_slot_key(other) is None
    for other in (b"", CLIENT, slot_key(CLIENT, 1, 1)):
        assert split_chunk_key(other) is None
    for partition in (0, 7, 2**31):
        sender = partition_sender(partition)
        assert len(sender) == 8
        assert (sending_partition(sender), partition_of_sender(sender)) == (partition, partition)
        assert is_partition_sender(sender)
    assert not is_partition_sender(CLIENT)


def test_slots_of_a_lane_sort_by_their_numbers() -> None:
    keys = [slot_key(CLIENT, lane, n) for lane in (1, 255, 256) for n in (0, 255, 256)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("letter", ["a", "ü"])
def test_ids_and_addresses_are_bounded_in_bytes(letter: str) -> None:
    for check, most in ((checked_address, ADDRESS_BYTES_MAX), (checked_id, MESSAGE_ID_BYTES_MAX)):
        longest = letter * (most // len(letter.encode()))
        assert check(longest) == longest
        with pytest.raises(Mistake, match=r"at most 500 bytes of UTF-8|of 1 to 500 bytes of UTF-8"):
            check(longest + letter)
        for wrong in (7, None, b"a", "\ud800"):
            with pytest.raises(Mistake):
                check(wrong)
    assert checked_id("") == ""
    with pytest.raises(Mistake):
        checked_address("")
