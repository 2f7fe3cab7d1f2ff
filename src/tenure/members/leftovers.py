"""Files that processes have left which were killed: found by the process's number in their names, and removed."""

import os
import re
import time
from pathlib import Path

__all__ = ["marked", "remove_leftovers"]

AGE_S_MIN = 60.0
"""What is younger may be of a process that can't be seen from here, and is just starting."""


def marked(prefix: str) -> str:
    """The beginning of a file's name, which says that it is this process's."""
    return f"{prefix}{os.getpid()}-"


def remove_leftovers(folder: Path, prefix: str, suffix: str, *, age_s_min: float = AGE_S_MIN) -> None:
    """Remove files of ours whose names are `marked` by processes that are gone. What can't be removed stays."""
    name = re.compile(rf"{re.escape(prefix)}(\d+)-.+{re.escape(suffix)}(\.1)?")
    for path in folder.glob(f"{prefix}*"):
        found = name.fullmatch(path.name)
        if found is None or _is_there(int(found[1])):
            continue
        try:
            about = path.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > age_s_min:
                path.unlink()
        except OSError:
            pass  # gone meanwhile, or not ours to remove


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
