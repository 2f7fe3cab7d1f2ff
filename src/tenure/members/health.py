"""A file that is as young as its process is well: what probes of containers look at, for the price of a `stat`.

    healthy FILE SECONDS          (in the images: is the file there, and not older than that?)
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import trio

from tenure.members.settings import Address

__all__ = ["answers", "keep_health_file"]

TOUCH_EVERY_S = 2.0
ANSWER_WITHIN_S = 5.0
HELLO = b"HZC"
"""What members greet each other with; one that is well says the same."""


async def keep_health_file(
    path: Path, is_well: Callable[[], Awaitable[bool]], every_s: float = TOUCH_EVERY_S
) -> NoReturn:
    """Touch the file as long as all is well; it is gone when this ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        while True:
            if await is_well():
                path.touch()  # noqa: ASYNC240  # in a folder in memory, or nearly so
            await trio.sleep(every_s)
    finally:
        path.unlink(missing_ok=True)  # noqa: ASYNC240  # the same


async def answers(address: Address) -> bool:
    """Does the member at this address answer? One that is frozen still takes connections."""
    with trio.move_on_after(ANSWER_WITHIN_S):
        try:
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(HELLO)
                return bytes(await stream.receive_some(len(HELLO))) == HELLO
        except (OSError, trio.BrokenResourceError):
            pass
    return False
