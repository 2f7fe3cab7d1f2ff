"""What is seen of the demo: a live picture on a terminal, else a line for each thing that happens."""

import sys
import time
from types import TracebackType
from typing import Any, Protocol

import trio

from tenure.demo.picture import Picture, Scene
from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.wire import decode

__all__ = ["Lines", "Live", "Stage"]

LOOK_EVERY_S = 0.2
GONE_AFTER_S = 1.5


class Stage(Protocol):
    """Where the play is shown."""

    def say(self, text: str) -> None:
        """Something happened."""

    def stored(self, count: int) -> None:
        """So many more messages are acknowledged."""

    def watch(self, grid: Grid, messages: int) -> None:
        """What to look at from now on."""

    async def keep_looking(self) -> None:
        """Until cancelled."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lines:
    """For logs and pipes: what happens, on standard error."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", file=sys.stderr, flush=True)  # noqa: T201

    def stored(self, count: int) -> None: ...

    def watch(self, grid: Grid, messages: int) -> None: ...

    async def keep_looking(self) -> None:
        await trio.sleep_forever()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *exception: object) -> None: ...


class Live:
    """For a terminal: partitions in the colours of their owners, members, nodes, and what happens."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._scene = Scene()
        self._picture = Picture()
        self._grid: Grid | None = None
        self._beats: dict[str, tuple[int, float]] = {}
        self._open = False

    def say(self, text: str) -> None:
        self._scene.events.append((time.monotonic() - self._began_s, text))
        if self._open:
            self._picture.show(self._scene)
        else:
            self._picture.print(f"{time.monotonic() - self._began_s:6.1f} s  {text}")

    def stored(self, count: int) -> None:
        self._scene.stored += count

    def watch(self, grid: Grid, messages: int) -> None:
        self._grid, self._scene.messages = grid, messages

    async def keep_looking(self) -> None:
        while True:
            await self._look()
            self._picture.show(self._scene)
            await trio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        assert self._grid is not None
        scene, now_s = self._scene, trio.current_time()
        try:
            async for page in self._grid.scan(Map.NODES, 0, timeout_s=1.0):
                for entry in page:
                    if entry.key.startswith(NODE_PREFIX):
                        self._saw(decode(entry.value, NodeInfo), now_s)
        except (GridError, TenureError):
            pass  # the picture stands still for a moment, as the cluster does
        scene.alive = {id for id, (_, since_s) in self._beats.items() if now_s - since_s < GONE_AFTER_S}
        scene.ownership = self._grid.ownership()
        scene.members |= {member.id: member for member in scene.ownership.members}

    def _saw(self, node: NodeInfo, now_s: float) -> None:
        self._scene.nodes[node.id] = node
        if self._beats.get(node.id, (-1, 0.0))[0] != node.beat:
            self._beats[node.id] = node.beat, now_s

    def __enter__(self) -> "Live":
        self._open = True
        self._picture.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self._picture.show(self._scene)
        self._open = False
        self._picture.close()
