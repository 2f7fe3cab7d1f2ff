"""How a node whose loop stands still leaves word: by a connection of its own, in a thread of its own."""

import threading
import time
from typing import TYPE_CHECKING

import structlog
import trio

from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.hangs import WORD_KEPT_S, Hang, hang_key
from tenure.scheduler.wire import encode

if TYPE_CHECKING:
    from tenure.scheduler.grid.hazelcast import HazelcastSettings

__all__ = ["Word"]

POLL_S = 0.02
RETRY_S = 0.1
AGAIN_S = 1.0
KEPT_OPEN_S = 10.0
"""The connection is closed when there was nothing to say for so long."""


class Word:
    """Calling it says what is to stand in the grid from now on: only the newest counts."""

    def __init__(self, settings: "HazelcastSettings", node: str) -> None:
        self._settings, self._key = settings, hang_key(node)
        self._lock = threading.Lock()
        self._wanted: tuple[Hang | None, threading.Event] | None = None
        self._is_running = False

    def __call__(self, hang: Hang | None) -> threading.Event:
        """Any thread may; never blocks, never raises. The event is set when it stands there."""
        done = threading.Event()
        with self._lock:
            self._wanted = hang, done
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="tenure-word", daemon=True).start()
        return done

    def _run(self) -> None:
        """Until there is nothing to say: a word that is not taken back is held against its turn."""
        is_told = False
        while True:
            try:
                trio.run(self._speak)
                return
            except BaseException as error:  # noqa: BLE001  # a hint; the thread has nobody to tell
                if not is_told:
                    text = f"what this node stands in can't be left word of now, and is tried again: {error!r}"
                    structlog.get_logger("tenure").warning(text)
                is_told = True
            time.sleep(AGAIN_S)

    async def _speak(self) -> None:
        from tenure.scheduler.grid.hazelcast import HazelcastGrid

        async with HazelcastGrid.connect(self._settings) as grid:
            quiet_s = 0.0
            while True:
                with self._lock:
                    wanted, self._wanted = self._wanted, None
                    if wanted is None and quiet_s >= KEPT_OPEN_S:
                        self._is_running = False
                        return
                if wanted is None:
                    await trio.sleep(POLL_S)
                    quiet_s += POLL_S
                    continue
                quiet_s = 0.0
                try:
                    await self._say(grid, *wanted)
                except BaseException:
                    with self._lock:
                        self._wanted = self._wanted or wanted
                    raise

    async def _say(self, grid: Grid, hang: Hang | None, done: threading.Event) -> None:
        while self._wanted is None:  # what is newer counts
            try:
                if hang is None:
                    await grid.delete(Map.NODES, 0, self._key)
                else:
                    await grid.set(Map.NODES, 0, self._key, encode(hang), ttl_s=WORD_KEPT_S)
                done.set()
                return
            except GridError:
                await trio.sleep(RETRY_S)
