"""The same seed, the same run: trio's own dice, secret names and the garbage collector are part of it."""

import gc
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from trio._core import _run

__all__ = ["deterministic"]


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """While open, trio shuffles tasks by `seed`, and garbage is collected at fixed moments only.

    What a run is made of must be made inside: what was there before is never looked at again as garbage.
    trio has this switch for Hypothesis; it has no public name.
    """
    shuffler = _run._r
    # What was left by the run before, and what is there for good, would make each collection slower than the last.
    gc.collect()
    gc.freeze()
    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, shuffler.getstate(), gc.isenabled()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    shuffler.seed(seed)
    # A collection in mid-run could finalize an abandoned generator, and that is a task of trio's.
    gc.disable()
    dice = Random(f"{seed} secrets")
    try:
        with (
            patch.object(secrets, "token_hex", lambda size: dice.randbytes(size).hex()),
            patch.object(secrets, "token_bytes", dice.randbytes),
            patch.object(secrets, "randbelow", dice.randrange),
        ):
            yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = before[0]  # type: ignore[misc]
        shuffler.setstate(before[1])
        if before[2]:
            gc.enable()
