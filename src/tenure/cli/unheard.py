"""What is said of partitions that don't answer: one of them never hides the others."""

from collections.abc import Mapping

from tenure.cli.ends import Exit
from tenure.cli.show import say

__all__ = ["say_silent"]


def say_silent(what: str, silent: Mapping[int, Exception]) -> Exit:
    """Whose are missing among the results, and why. Returns the exit code."""
    if not silent:
        return Exit.DONE
    first = min(silent)
    others = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
    say(f"The {what} of partition {first}{others} are not among these: {str(silent[first]).rstrip('.')}.")
    return Exit.FAILED
