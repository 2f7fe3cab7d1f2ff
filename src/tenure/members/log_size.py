"""A member's log, kept small: what outgrows its size goes beside it, and replaces what was there."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import trio

__all__ = ["before", "keep_log_small"]

LOG_BYTES_MAX = 32 * 2**20
LOOK_EVERY_S = 30.0


async def keep_log_small(path: Path, bytes_max: int = LOG_BYTES_MAX, every_s: float = LOOK_EVERY_S) -> NoReturn:
    """Its process appends to it, and goes on at the beginning when it was emptied. `PATH.1` holds what was before."""
    while True:
        await trio.sleep(every_s)
        try:
            if path.stat().st_size > bytes_max:  # noqa: ASYNC240  # a local file's entry
                await trio.to_thread.run_sync(_turn_over, path)
        except OSError:
            pass  # a full disk, perhaps: what can't be copied is kept, until the next look


def before(path: Path) -> Path:
    """Where that is kept which a log held before."""
    return path.with_name(f"{path.name}.1")


def _turn_over(path: Path) -> None:
    shutil.copyfile(path, before(path))
    os.truncate(path, 0)
