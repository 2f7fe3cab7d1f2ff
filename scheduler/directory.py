"""What a client looks up, and what it asks of those who have it: jobs, nodes, partitions, dead letters."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import trio

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.deadline import deadline
from tenure.scheduler.errors import PartitionLost, TenureError, UnknownJob
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.keys import checked_address, partition_of
from tenure.scheduler.nodes_seen import said_nodes

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["Directory"]


class Directory:
    """What one client can look up."""

    def __init__(self, client: "GridClient") -> None:
        self.client, self.settings = client, client.settings

    async def nodes(self) -> list[NodeInfo]:
        """The nodes that have said that they are there, and have not been silent for long."""
        return sorted(await said_nodes(self.client.grid), key=lambda node: node.id)

    async def lost_partitions(self) -> set[int]:
        """Those that their nodes report as lost, as far as that can be read."""
        try:
            return {partition for node in await self.nodes() for partition in node.lost}
        except GridError:
            return set()

    async def describe(self, id: str, *, deadline_s: float | None = None) -> dict[str, Any]:
        """All that is known of one job."""
        found: dict[str, Any]
        try:
            found = await self._command(id, {"op": "describe"}, deadline_s)
        except UnknownJob:
            limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
            with deadline(limit_s, f"describing job {id!r}"):
                await self.client.defining.created(id)  # it may have been scheduled just now
            found = await self._command(id, {"op": "describe"}, deadline_s)
        return found

    async def retry(self, id: str, *, skip: bool = False, deadline_s: float | None = None) -> bool:
        """Try a failed job's event again, or (`skip`) make a dead letter of it. False: the job has not failed."""
        arguments: dict[str, Any] = {"op": "retry", "skip": skip}
        if skip:
            # What is skipped is what it fails on now, whenever this is heard.
            failure = (await self.describe(id, deadline_s=deadline_s))["failure"]
            arguments["event"] = failure["event"] if failure else ""
        return bool(await self._command(id, arguments, deadline_s, once=True))

    async def cancel(self, id: str, *, deadline_s: float | None = None) -> None:
        """Pause the job and end its running turn; what it was about stays first in its queue."""
        # Paused first: a job that runs would begin the turn again at once.
        try:
            await self.client.defining.want(id, "paused", deadline_s=deadline_s)
        except UnknownJob:
            pass  # it may be on its way out, and one that is can be helped
        await self._command(id, {"op": "cancel"}, deadline_s)

    async def purge(self, id: str, *, deadline_s: float | None = None) -> int:
        """Drop the messages that wait for a job. Returns how many there were."""
        return int(await self._command(id, {"op": "purge"}, deadline_s, once=True))

    async def _command(
        self, id: str, arguments: dict[str, Any], deadline_s: float | None, *, once: bool = False
    ) -> Any:
        partition = partition_of(checked_address(id), self.client.partition_count)
        return await self.client.command(partition, id, arguments, deadline_s=deadline_s, once=once)

    async def every_partition(
        self,
        arguments: dict[str, Any],
        *,
        deadline_s: float | None = None,
        only: Collection[int] | None = None,
        silent: dict[int, TenureError] | None = None,
    ) -> list[Any]:
        """Ask all partitions (or `only` these) the same; raises `NotDone` if one does not answer. With `silent`, those
        that don't go in there with the reason, and their answers are None. If none does, the first is raised."""
        answers: list[Any] = [None] * self.client.partition_count
        lost = set() if silent is None else await self.lost_partitions()

        async def ask(partition: int) -> None:
            try:
                if partition in lost:
                    raise PartitionLost(f"partition {partition} is lost, as all copies of its data were")
                answers[partition] = await self.client.command(partition, "", arguments, deadline_s=deadline_s)
            except TenureError as error:
                if silent is None:
                    raise
                silent[partition] = error

        try:
            async with trio.open_nursery() as nursery:
                for partition in range(self.client.partition_count) if only is None else only:
                    nursery.start_soon(ask, partition)
        except BaseExceptionGroup as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        if silent and len(silent) == (len(answers) if only is None else len(only)):
            raise silent[min(silent)]
        return answers

    async def jobs(
        self,
        *,
        deadline_s: float | None = None,
        only: Collection[int] | None = None,
        silent: dict[int, TenureError] | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Every job, by id: of `only` these partitions; those that don't answer in `silent`, with the reason; the first
        `limit` of them, if one is given."""
        found = await self._all_pages("jobs", "jobs", "id", deadline_s, only=only, silent=silent, limit=limit)
        return sorted(found, key=lambda job: str(job["id"]))[:limit]

    async def _all_pages(
        self,
        op: str,
        rows: str,
        key: str,
        deadline_s: float | None,
        *,
        only: Collection[int] | None = None,
        silent: dict[int, TenureError] | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        first_page = {"op": op} if limit is None else {"op": op, "limit": limit}
        return await self.all_pages(first_page, rows, key, deadline_s, only=only, silent=silent, limit=limit)

    async def all_pages(
        self,
        arguments: dict[str, Any],
        rows: str,
        key: str,
        deadline_s: float | None,
        *,
        only: Collection[int] | None = None,
        silent: dict[int, TenureError] | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """What all partitions list; each page goes on behind the last row's key. No more than `limit` of each."""
        found: list[dict[str, Any]] = []
        answers = await self.every_partition(arguments, deadline_s=deadline_s, only=only, silent=silent)
        for partition, first in enumerate(answers):
            page, before = first, len(found)
            if page is not None and not (isinstance(page, dict) and isinstance(page.get(rows), list)):
                found += _old_rows(page, key)
                continue
            while page is not None:
                found += page[rows]
                if not page["more"] or (limit is not None and len(found) - before >= limit):
                    break
                behind = {**arguments, "after": page[rows][-1][key]}
                page = await self.client.command(partition, "", behind, deadline_s=deadline_s)
        return found

    async def partitions(
        self, *, deadline_s: float | None = None, silent: dict[int, TenureError] | None = None
    ) -> list[dict[str, Any]]:
        """How each partition stands, from its owner; without those that don't answer, if they go into `silent`."""
        rows = await self.every_partition({"op": "status"}, deadline_s=deadline_s, silent=silent)
        return [row for row in rows if row is not None]

    async def topics(
        self, *, deadline_s: float | None = None, silent: dict[int, TenureError] | None = None
    ) -> dict[str, int]:
        """Topics and how many jobs subscribe to them; without those of partitions that don't answer, if these go into
        `silent`."""
        found = await self.all_pages({"op": "topics", "after": ""}, "topics", "topic", deadline_s, silent=silent)
        return dict(sorted((topic["topic"], topic["jobs"]) for topic in found))

    async def dead_letters(
        self, *, deadline_s: float | None = None, silent: dict[int, TenureError] | None = None
    ) -> list[dict[str, Any]]:
        """Messages that no job could take, oldest first; without those of partitions that don't answer, if these go
        into `silent`."""
        found = await self._all_pages("dead_letters", "letters", "n", deadline_s, silent=silent)
        return sorted(found, key=lambda letter: (letter["at_ms"], letter["partition"], letter["n"]))

    async def exhume(self, letters: Iterable[dict[str, Any]], *, replay: bool, deadline_s: float | None = None) -> int:
        """Deliver dead letters again, or discard them; returns how many were still there."""
        by_partition: dict[int, list[int]] = {}
        for letter in letters:
            by_partition.setdefault(letter["partition"], []).append(letter["n"])
        count = 0
        for partition, numbers in by_partition.items():
            arguments = {"op": "exhume", "letters": numbers, "replay": replay}
            count += await self.client.command(partition, "", arguments, deadline_s=deadline_s, once=True)
        return count


def _old_rows(answer: Any, key: str) -> list[dict[str, Any]]:
    """Of an older node, which knows of no pages."""
    if isinstance(answer, dict):
        return [{key: name, "jobs": count} for name, count in answer.items()]
    return list(answer)
