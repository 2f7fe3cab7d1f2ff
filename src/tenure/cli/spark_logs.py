"""`tenure spark logs`: what a run's driver has said, and says."""

import os
import sys
import time
from pathlib import Path
from typing import IO

from tenure.cli.options import Connection
from tenure.cli.spark_jobs import activity_of, folder_of, on_cluster

__all__ = ["show_logs"]

LOOK_EVERY_S = 0.3
ENDED = ("succeeded", "failed", "cancelled")


def show_logs(id: str, connection: Connection, *, follow: bool) -> None:
    """Print the logs of the newest run, and with `follow` what is added until it has ended."""
    activity = on_cluster(connection, activity_of, id)
    folder = folder_of(activity, id)
    files = [(_Tail(folder / "stderr.log"), sys.stderr), (_Tail(folder / "stdout.log"), sys.stdout)]
    while True:
        over = (folder / "outcome.json").exists() or activity["status"] in ENDED
        for tail, to in files:
            tail.copy(to)
        if over or not follow:
            return
        time.sleep(LOOK_EVERY_S)


class _Tail:
    """A log file that grows, and now and then begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def copy(self, to: IO[str]) -> None:
        """Print what is new."""
        while True:
            if self._file is None:
                if not self._path.exists():
                    return
                self._file = self._path.open("rb")
            while data := self._file.read(2**20):
                to.buffer.write(data)  # type: ignore[attr-defined]
            to.flush()
            if not self._has_turned_over():
                return
            self._file.close()
            self._file = None

    def _has_turned_over(self) -> bool:
        assert self._file is not None
        try:
            return os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino
        except FileNotFoundError:
            return False
