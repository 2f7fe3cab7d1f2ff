"""Standard output and error as they may be: closed, full, without a reader, or of few letters. Results that nobody
could be given are a failure of the command; what is said beside them, and heard by nobody, is not."""

import io
import os
import sys

__all__ = ["flushed", "let_go", "stand_in"]


def stand_in() -> None:
    """Where standard output or error are closed (`>&-`), what goes there goes nowhere: not into a connection that got
    their number, nor what is meant for one into the other. Letters that one lacks are written out."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets that number, the lowest that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # as long as the process
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def flushed() -> None:
    """All results have been taken. Raises `OSError`."""
    sys.stdout.flush()


def let_go() -> None:
    """What can't be written is left: Python would try once more at its exit, and make another exit code of that."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
