"""The types of jobs, as a client has looked them up: with them it refuses messages that do not fit, here and now."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.keys import checked_address, partition_of
from tenure.scheduler.wire import Definition, decode

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["KnownTypes"]

KNOWN_MAX = 100_000


class KnownTypes:
    """Those that one client knows."""

    def __init__(self, client: "GridClient") -> None:
        self.client, self.grid = client, client.grid
        self.by_job: dict[str, JobType | None] = {}
        """None: it is not registered here"""

    def check_anything(self) -> bool:
        """Is any job type known here that would refuse some message?"""
        return self.client.registry.is_choosy

    async def learn(self, ids: Iterable[str]) -> None:
        """Look up the types of jobs that messages are for, so that wrong ones are refused here and now."""
        unknown = [id for id in ids if id not in self.by_job]
        if not unknown:
            return
        if len(self.by_job) + len(unknown) > KNOWN_MAX:
            self.by_job.clear()
        by_partition: dict[int, list[str]] = {}
        for id in unknown:
            by_partition.setdefault(partition_of(checked_address(id), self.client.partition_count), []).append(id)
        async with trio.open_nursery() as nursery:
            for partition, some in by_partition.items():
                nursery.start_soon(self._learn_some, partition, some)

    async def _learn_some(self, partition: int, ids: list[str]) -> None:
        try:
            found = await self.grid.get_all(Map.JOBS, partition, [id.encode() for id in ids])
            for id in ids:
                # Who is not there (yet) is looked up again next time.
                if (stored := found.get(id.encode())) is not None:
                    definition = decode(stored, Definition)
                    if definition.wanted != "removed":
                        self.by_job[id] = self.client.registry.get(definition.type)
        except (GridError, TenureError):
            pass  # checked by the owner again, who makes a dead letter of what does not fit

    def forget(self, id: str) -> None:
        """The job's definition has changed."""
        self.by_job.pop(id, None)
