"""`tenure spark logs`: what a run's driver has said, and says."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tenure.cli.options import Connection
from tenure.cli.spark_jobs import activity_of, folder_of, on_cluster

if TYPE_CHECKING:
    from tenure.clients.views import ActivityView
    from tenure.scheduler.client import GridClient

__all__ = ["copy_logs", "show_logs"]

LOOK_EVERY_S = 0.3
ASK_EVERY_S = 1.0


def show_logs(id: str, connection: Connection, *, follow: bool) -> None:
    """Print the logs of the newest run, and with `follow` what is added until it has ended."""
    on_cluster(connection, copy_logs, id, follow)


async def copy_logs(client: "GridClient", id: str, follow: bool) -> None:
    """Of its newest attempt; with `follow`, of each next one too."""
    import trio

    activity: ActivityView | None = await activity_of(client, id)
    tag = ""
    with closing(_Logs()) as logs:
        while activity is not None:
            if tag != activity["tag"] and (activity["place"] or activity["ended_ms"] or not follow):
                tag = activity["tag"]
                logs.turn_to(folder_of(activity, id))
            logs.copy()
            if activity["ended_ms"] or not follow:
                return
            ask_s = trio.current_time() + ASK_EVERY_S
            while trio.current_time() < ask_s:
                await trio.sleep(LOOK_EVERY_S)
                logs.copy()
            activity = await _now(client, id, activity["name"])


async def _now(client: "GridClient", id: str, name: str) -> "ActivityView | None":
    """How this run stands; None: it is known no more."""
    import trio

    from tenure.scheduler.errors import TryAgain, UnknownJob

    while True:
        try:
            activities: list[ActivityView] = (await client.directory.describe(id))["activities"]
        except UnknownJob:
            return None
        except TryAgain:
            await trio.sleep(ASK_EVERY_S)  # its job is on its way to another node; the run goes on
        else:
            return next((activity for activity in activities if activity["name"] == name), None)


class _Logs:
    """What an attempt has said, and says."""

    def __init__(self) -> None:
        self._tails: list[tuple[_Tail, IO[str]]] = []

    def turn_to(self, folder: Path) -> None:
        """To those of another attempt, once the last one's are printed."""
        self.copy()
        self.close()
        self._tails = [(_Tail(folder / "stderr.log"), sys.stderr), (_Tail(folder / "stdout.log"), sys.stdout)]

    def copy(self) -> None:
        """Print what is new."""
        for tail, to in self._tails:
            tail.copy(to)

    def close(self) -> None:
        for tail, _ in self._tails:
            tail.close()


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
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _has_turned_over(self) -> bool:
        assert self._file is not None
        try:
            return os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino
        except FileNotFoundError:
            return False
