"""Forgetting removed jobs, so that their definitions don't stay for ever.

    removed ──► gone from the journal ──► its retention passes ──► its generation is journaled as given ──► forgotten

A tombstone is taken away only by a conditional write, by an owner whose journal has no job of that id. What carries
the promise that a generation is never used again is then the journal: it knows the highest that was ever forgotten,
and a job that is made later gets one above it (see `Definitions._numbered`). Nothing rests on clocks: a definition is
only ever put in the place of a tombstone, whose bytes never come again, so a write that arrives years late finds
nothing to replace. The rules are those of `tests/models/definitions_model.py`.
"""

from typing import TYPE_CHECKING, NamedTuple

import trio

from tenure.scheduler.grid.port import GridError, Map

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure
    from tenure.scheduler.wire import Definition

__all__ = ["Tombstones"]

AT_ONCE_MAX = 16
MET_MAX = 1000
"""So many at most are forgotten before a sweep goes on."""


class _Met(NamedTuple):
    id: str
    value: bytes
    generation: int


class Tombstones:
    """Those of one partition."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.partition = tenure, tenure.host, tenure.partition
        self._begun_ms = tenure.host.now_ms()
        self._met: list[_Met] = []

    def meet(self, id: str, value: bytes, definition: "Definition") -> None:
        """One was read, of a job that the journal does not have."""
        if len(self._met) < MET_MAX and self._is_over(definition.at_ms):
            self._met.append(_Met(id, value, definition.generation))

    def _is_over(self, at_ms: int) -> bool:
        # Older versions did not say when, and some clock may be ahead: then it counts from when this tenure began.
        now_ms = self.host.now_ms()
        since_ms = at_ms if 0 < at_ms <= now_ms else self._begun_ms
        return now_ms - since_ms >= self.tenure.settings.tombstone_s * 1000

    async def forget(self) -> None:
        """Forget those that were met. What can't be forgotten now is met again by the next sweep."""
        met, self._met = self._met, []
        met = [each for each in met if self._is_unused(each.id)]
        # A node of an older version that takes over forgets which generations were given: it keeps their tombstones.
        if not met or not all(node.names for node in self.host.live_nodes()):
            return
        await self._journal(max(each.generation for each in met))
        limiter = trio.Semaphore(AT_ONCE_MAX)
        async with trio.open_nursery() as nursery:
            for each in met:
                await limiter.acquire()
                nursery.start_soon(self._forget, each, limiter)

    def _is_unused(self, id: str) -> bool:
        return not (id in self.tenure.state.jobs or id in self.tenure.state.mail or id in self.tenure.lives.by_id)

    async def _journal(self, generation: int) -> None:
        """Whoever has this partition later must know that these generations were given."""
        if generation > self.tenure.state.generations:
            draft = self.tenure.turns.draft
            draft.generations = max(draft.generations, generation)
            self.tenure.want_commit()
            await draft.committed.wait()

    async def _forget(self, tombstone: _Met, limiter: trio.Semaphore) -> None:
        try:
            await self.host.grid.remove_if_same(Map.JOBS, self.partition, tombstone.id.encode(), tombstone.value)
        except GridError:
            pass
        finally:
            limiter.release()
