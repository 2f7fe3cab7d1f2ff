"""What members say of themselves when they are asked: their clock, and whether each partition has all its copies.

It is what Hazelcast's management center asks; members answer it to any client. The client has no codec for it.
"""

from typing import NamedTuple

import msgspec
from hazelcast.protocol.builtin import CodecUtil, StringCodec
from hazelcast.protocol.client_message import (
    REQUEST_HEADER_SIZE,
    InboundMessage,
    OutboundMessage,
    create_initial_buffer,
)

__all__ = ["MemberTold", "decode_state", "state_request"]

_GET_TIMED_MEMBER_STATE = 0x200B00


class MemberTold(NamedTuple):
    """What one member has answered."""

    address: str
    clock_ms: int
    """What its clock shows."""
    is_safe: bool
    """Has every partition that it is concerned with all its copies, in their places, and is none on its way?"""


class _PartitionState(msgspec.Struct):
    memberStateSafe: bool  # as it stands in its answer


class _MemberState(msgspec.Struct):
    memberPartitionState: _PartitionState


class _TimedMemberState(msgspec.Struct):
    time: int
    memberState: _MemberState


class _Answer(msgspec.Struct):
    timedMemberState: _TimedMemberState


_decode = msgspec.json.Decoder(_Answer).decode


def state_request() -> OutboundMessage:
    return OutboundMessage(create_initial_buffer(REQUEST_HEADER_SIZE, _GET_TIMED_MEMBER_STATE, True), True)


def decode_state(message: InboundMessage) -> tuple[int, bool] | None:
    """(its clock, is it safe); None if it does not say, or says it in other words than we know."""
    message.next_frame()
    text = CodecUtil.decode_nullable(message, StringCodec.decode)
    if text is None:
        return None
    try:
        state = _decode(text).timedMemberState
    except msgspec.DecodeError:
        return None
    return state.time, state.memberState.memberPartitionState.memberStateSafe
