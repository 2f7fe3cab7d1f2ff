"""A file that is as young as its process is well: what probes of containers look at, for the price of a `stat`.

healthy FILE SECONDS          (in the images: is the file there, and not older than that?)
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import trio

from tenure.members.settings import Address

__all__ = ["answers", "keep_health_file"]

_log = logging.getLogger(__name__)
TOUCH_EVERY_S = 2.0
ANSWER_WITHIN_S = 5.0
HELLO = b"HZC"
"""What members greet each other with; one that is well says the same."""


async def keep_health_file(
    path: Path, is_well: Callable[[], Awaitable[bool]], every_s: float = TOUCH_EVERY_S
) -> NoReturn:
    """Touch the file as long as all is well; it is gone when this ends. A file that can't be touched ends nothing: it
    grows old, and who looks at it sees that. It is said once."""
    could = True
    try:
        while True:
            if await is_well():
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)  # in memory, or nearly so
                    path.touch()  # noqa: ASYNC240  # the same
                    could = True
                except OSError as error:
                    if could:
                        _log.warning("the health file %s can't be touched, and grows old: %s", path, error.strerror)
                    could = False
            await trio.sleep(every_s)
    finally:
        with suppress(OSError):
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
