"""The adapter's reader of the client's protocol: the same messages, however the bytes come in."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduler.grid.hazelcast.reactor import Reader

FINAL, UNFRAGMENTED = 1 << 13, 0b11 << 14


class Collector:
    """Stands for the client's builder of messages."""

    def __init__(self) -> None:
        self.messages: list[list[bytes]] = []

    def on_message(self, message: Any) -> None:
        frames = []
        while (frame := message.next_frame()) is not None:
            frames.append(bytes(frame.buf))
        self.messages.append(frames)


def encoded(messages: list[list[bytes]]) -> bytes:
    """As a member would write them."""
    parts = []
    for frames in messages:
        for n, frame in enumerate(frames):
            flags = (UNFRAGMENTED if n == 0 else 0) | (FINAL if n == len(frames) - 1 else 0)
            parts.append(struct.pack("<iH", len(frame) + 6, flags) + frame)
    return b"".join(parts)


MESSAGES = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=6)


@given(MESSAGES, st.lists(st.integers(1, 30), max_size=40), st.randoms())
def test_messages_come_out_as_they_went_in_wherever_the_bytes_are_cut(messages, cuts, random):
    builder = Collector()
    reader = Reader(builder)
    data = encoded(messages)
    for cut in cuts:
        piece, data = data[:cut], data[cut:]
        if piece:
            reader.read(piece)
        if random.random() < 0.7 and reader.length:  # the client reads on while more is there, and processes then
            reader.process()
    if data:
        reader.read(data)
    if reader.length:
        reader.process()
    assert builder.messages == messages
    assert reader.length == 0


def test_a_receiver_that_raises_loses_only_its_own_message():
    class Raising(Collector):
        def on_message(self, message: Any) -> None:
            super().on_message(message)
            if len(self.messages) == 1:
                raise ValueError("the first")

    builder = Raising()
    reader = Reader(builder)
    reader.read(encoded([[b"a"], [b"b", b"c"]]))
    try:
        reader.process()
    except ValueError:
        pass
    reader.process()
    assert builder.messages == [[b"a"], [b"b", b"c"]]
    assert reader.length == 0


def test_a_large_frame_in_many_pieces_is_put_together_once():
    builder = Collector()
    reader = Reader(builder)
    large = bytes(range(256)) * 40_000
    data = encoded([[large]])
    for at in range(0, len(data), 128_000):
        reader.read(data[at : at + 128_000])
        reader.process()
    assert builder.messages == [[large]]


@pytest.mark.parametrize("size", [5, 0, -1])
def test_what_no_member_would_send_is_no_endless_work(size):
    reader = Reader(Collector())
    reader.read(struct.pack("<iH", size, 0) * 3)
    with pytest.raises(ValueError, match=f"a frame of {size} bytes: whatever listens there, it is no member"):
        reader.process()
