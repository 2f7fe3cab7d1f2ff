"""The right to restore: may it be done here, and who else must know?

The cluster's marker says that a snapshot is being restored, and moves while somebody does. Nodes keep out of such a
cluster, and clients wait. When all who were here have noticed, it is looked at again: where something has come
meanwhile that nobody wants removed, all is as it was before.
"""

from collections.abc import Callable

import trio
from msgspec.structs import replace

from tenure.scheduler.cluster import ALIVE_S, MARKER, Cluster, marker_of, told_by_heads
from tenure.scheduler.errors import NotDone
from tenure.scheduler.formats import FIRST
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.settings import CLUSTER_KNOWN_S
from tenure.scheduler.snapshots.errors import NotRestorable
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.snapshots.moving import move
from tenure.scheduler.snapshots.rehash import is_wanted
from tenure.scheduler.wire import Batch, Kind, decode, encode

__all__ = ["Claim"]

BEAT_S = 1.0
RETRY_PAUSE_S = 0.1
GIVE_BACK_S = 30.0
HELD_S = ALIVE_S / 2
"""Nobody takes over within so long of a beat, also where a call takes its time."""


class Claim:
    """One restorer's hold on a grid."""

    def __init__(
        self, grid: Grid, formation: str, *, replaces_jobs: bool, now_s: Callable[[], float] = trio.current_time
    ) -> None:
        """`now_s`: a clock that does not stand still while a machine sleeps (see `Elapsed`)."""
        self.grid, self.formation, self._replaces_jobs, self._now_s = grid, formation, replaces_jobs, now_s
        self.there: Cluster | None = None
        """What was here before."""
        self.highest = 0
        """An incarnation that heads here are of; looked at where the marker does not tell."""
        self._stored: bytes | None = None
        self._marker: Cluster | None = None
        self._moving: list[Cluster] = []
        """What it may be already: while it moves, and where that was interrupted."""
        self._confirmed_s = 0.0
        """When the last move that is known to have succeeded was begun."""
        self._turn = trio.Lock()

    async def look(self) -> None:
        """What is here? Raises `NotRestorable` where there are jobs, unless they are to be replaced."""
        try:
            self._stored = await self.grid.get(Map.NODES, 0, MARKER)
            if self._stored is not None:
                self.there = marker_of(self._stored)
            if self.there is None or self.there.restoring:
                # A marker that is damaged or gone says nothing, the heads do; so they do where it may have been gone
                # when somebody began to restore.
                heads = await told_by_heads(self.grid)
                self.there = self.there or heads
                self.highest = heads.incarnation if heads is not None else 0
            if self.there is not None and self.there.restoring:
                await self._outwait(self.there)
            if self._may_not_remove():
                try:
                    await self._check_empty()
                except NotRestorable:
                    await self._reopen()
                    raise
        except GridError as error:
            raise NotDone(f"the members do not answer: {error}; nothing was changed") from error

    async def take(self, manifest: Manifest, incarnation: int) -> None:
        """From now on nobody else opens a partition, or believes that this is the cluster it was. If it can't be known
        that it came to that, all is as it was before."""
        there, count, name = self.there, self.grid.partition_count, manifest.name
        before = there.formation if there is not None else ""
        format = max(manifest.grid_format, there.format if there is not None else FIRST)
        settled = there is not None and _is_half_written(there)
        new = Cluster(
            self.formation,
            incarnation,
            count,
            False,
            format,
            name,
            replaces=before,
            restored=name,
            settled=settled,
            former=self._former(),
        )
        self._moving, began_s = [new], self._now_s()
        try:
            if self._stored is None:
                done = await self.grid.put_if_absent(Map.NODES, 0, MARKER, encode(new)) is None
            else:
                done = await self.grid.replace_if_same(Map.NODES, 0, MARKER, self._stored, encode(new))
        except GridError as error:
            await self._give_back()
            raise NotDone(f"the members do not answer: {error}; nothing was changed. Run it again") from error
        except BaseException:
            await self._give_back()
            raise
        self._moving = []
        if not done:
            raise NotRestorable("something else has happened to this cluster at the same moment; run it again")
        self._marker, self._confirmed_s = new, began_s

    async def settle(self) -> None:
        """Until all who were here have noticed, and the marker says so: only then may whoever follows us, if we are
        interrupted, remove unasked what is here. If it comes to nothing, all is as it was before `take`."""
        try:
            await trio.sleep(1.5 * CLUSTER_KNOWN_S)
            if self._may_not_remove():
                await self._check_empty()
            await self._change(settled=True)
        except GridError as error:
            await self._give_back()
            raise NotDone(f"the members do not answer: {error}; nothing was changed. Run it again") from error
        except BaseException:
            await self._give_back()
            raise

    async def keep(self) -> None:
        """Say all the time that somebody is at it."""
        while True:
            await trio.sleep(BEAT_S)
            await self._change()

    async def hold(self) -> None:
        """Wait until it is known that nobody has taken over: one who was frozen, or cut off, learns that from its next
        beat, and must not write before."""
        while self._now_s() - self._confirmed_s > HELD_S:  # noqa: ASYNC110  # time passes also without an event
            await trio.sleep(RETRY_PAUSE_S)

    async def end(self) -> None:
        """It is done: this is a cluster."""
        await self._change(formed=True, restoring="", settled=False, former=b"")

    # -- steps ------------------------------------------------------------------------------------

    async def _outwait(self, there: Cluster) -> None:
        """One who restores is alive, or was interrupted: then we begin anew."""
        with trio.move_on_after(ALIVE_S):
            while True:
                await trio.sleep(BEAT_S / 2)
                now = await self.grid.get(Map.NODES, 0, MARKER)
                if now is not None and marker_of(now) not in (there, None):
                    raise NotRestorable(f"snapshot {there.restoring} is being restored here; wait for its end")

    async def _check_empty(self) -> None:
        for partition in range(self.grid.partition_count):
            async for page in self.grid.scan(Map.JOBS, partition):
                for entry in page:
                    if is_wanted(entry.value):
                        raise NotRestorable(
                            f"this cluster has jobs, {entry.key.decode(errors='replace')!r} for one; restoring would "
                            "remove them all. Say so (--replace), or restore into another cluster. Nothing was changed"
                            + self._interrupted()
                        )
            async for page in self.grid.scan(Map.INBOX, partition):
                if any(_has_messages(entry.value) for entry in page):
                    raise NotRestorable(
                        "this cluster has messages that no job has taken yet; restoring would remove them. Say so "
                        "(--replace), or restore into another cluster. Nothing was changed" + self._interrupted()
                    )

    def _former(self) -> bytes:
        """What is to be put back, should it come to nothing also after us."""
        if self.there is None or _is_half_written(self.there):
            return b""
        return self.there.former if self.there.restoring else self._stored or b""

    async def _reopen(self) -> None:
        """One who was interrupted before it had written anything has left a cluster whole, and closed. Should it only
        have slept, it finds another marker when it wakes."""
        there = self.there
        if there is not None and there.restoring and there.former and self._stored is not None:
            await move(self.grid, MARKER, [self._stored], there.former, RETRY_PAUSE_S)

    def _may_not_remove(self) -> bool:
        return not self._replaces_jobs and (self.there is None or not _is_half_written(self.there))

    def _interrupted(self) -> str:
        """Of one that was begun before, for people."""
        if self.there is None or not self.there.restoring:
            return ""
        before = f". The restore of snapshot {self.there.restoring} was interrupted here before it removed anything"
        if self.there.former:
            return f"{before}: nodes and clients are let in again"
        return (
            f"{before}, and nodes keep out until one is done; or it was of an older version, and what is here is what "
            "it had written: add --replace then, too"
        )

    async def _give_back(self) -> None:
        """Let others in again: also when we are interrupted, and when members answer late."""
        with trio.move_on_after(GIVE_BACK_S, shield=True):
            async with self._turn:
                ours = [encode(marker) for marker in (self._marker, *self._moving) if marker is not None]
                is_known, self._marker = self._marker is not None, None
                await (self._put_back(ours) if is_known else self._fence_off(ours))
            return
        raise NotDone(
            "the members do not answer; nothing was changed but the cluster's marker, which keeps nodes out: run "
            "`tenure restore` again when they do"
        )

    async def _put_back(self, ours: list[bytes]) -> None:
        while True:
            try:
                if self._stored is not None:
                    for marker in ours:
                        await self.grid.replace_if_same(Map.NODES, 0, MARKER, marker, self._stored)
                else:
                    for marker in ours:
                        await self.grid.remove_if_same(Map.NODES, 0, MARKER, marker)
                return
            except GridError:
                await trio.sleep(RETRY_PAUSE_S)

    async def _fence_off(self, ours: list[bytes]) -> None:
        """As `_put_back`, where even our first step is unknown and may yet be taken: not from another marker."""
        if self.there is None or self._stored is None:
            await self._put_back(ours)
            return
        back = encode(replace(self.there, beat=self.there.beat + 1))
        await move(self.grid, MARKER, [self._stored, *ours], back, RETRY_PAUSE_S)

    async def _change(self, **changes: object) -> None:
        async with self._turn:
            if self._marker is None:
                return  # it was given back
            olds = [self._marker, *self._moving]
            new = replace(self._marker, beat=olds[-1].beat + 1, **changes)
            self._moving.append(new)
            began_s = self._now_s()
            if not await move(self.grid, MARKER, [encode(old) for old in olds], encode(new), RETRY_PAUSE_S):
                raise NotRestorable("another has taken over to restore here, as this one was silent for long")
            self._marker, self._moving, self._confirmed_s = new, [], began_s


def _is_half_written(there: Cluster) -> bool:
    """What is here may be half of what one who was interrupted wrote."""
    return bool(there.restoring) and there.settled


def _has_messages(slot: bytes) -> bool:
    """More than questions, which nobody counts on."""
    try:
        envelopes = decode(slot, Batch).envelopes
    except Exception:  # noqa: BLE001  # whatever it is, it is not ours to remove unasked
        return True
    return any(envelope.kind in (Kind.MESSAGE, Kind.TOPIC, Kind.TYPE) for envelope in envelopes)
