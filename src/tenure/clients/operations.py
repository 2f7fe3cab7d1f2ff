"""What the public methods of clients do, on the core: the one place for `Client` and `SyncClient` alike."""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import trio

from tenure.clients.views import DeadLetter, JobDescription, JobSummary, PartitionStatus, Restored, Snapshot, Verified
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Mistake, TenureError, UnknownJob
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.nodes_seen import patiently, said_nodes
from tenure.scheduler.topic import Topic

__all__ = ["JobSpec", "JobTarget"]

JobTarget = type[Job] | Callable[..., Any] | JobType | str
"""A registered class or function, its registered name, or (where nodes allow it) any callable."""

JobSpec = tuple[JobTarget, str, Mapping[str, Any]]
"""(job type, id, parameters), as `schedule_many` takes them."""

AT_ONCE_MAX = 64


async def schedule(
    client: GridClient, job_type: JobTarget, id: str, parameters: Mapping[str, Any], timeout_s: float | None
) -> None:
    await client.defining.schedule(job_type, id, dict(parameters), deadline_s=timeout_s)


async def schedule_many(client: GridClient, jobs: Iterable[JobSpec], timeout_s: float | None) -> None:
    specs = [_checked(spec) for spec in jobs]
    failures: dict[int, TenureError] = {}
    limiter = trio.CapacityLimiter(AT_ONCE_MAX)

    async def one(n: int, job_type: JobTarget, id: str, parameters: Mapping[str, Any]) -> None:
        async with limiter:
            try:
                await schedule(client, job_type, id, parameters, timeout_s)
            except TenureError as error:
                failures[n] = error

    async with trio.open_nursery() as nursery:
        for n, spec in enumerate(specs):
            nursery.start_soon(one, n, *spec)
    if failures:
        first = failures[min(failures)]
        if len(failures) > 1:
            first.add_note(f"{len(failures)} of {len(specs)} jobs could not be scheduled; the others were")
        raise first


def _checked(spec: Any) -> JobSpec:
    if not (isinstance(spec, tuple) and len(spec) == 3 and isinstance(spec[2], Mapping)):
        raise Mistake(f"schedule_many takes tuples of a job type, an id and a dict of parameters, not {spec!r}")
    return spec


async def unschedule(
    client: GridClient, id: str, missing_ok: bool, timeout_s: float | None, now: bool = False
) -> int:
    try:
        if now:
            return await client.defining.end(id, deadline_s=timeout_s)
        await client.defining.want(id, "removed", deadline_s=timeout_s)
    except UnknownJob:
        if not missing_ok:
            raise
    return 0


async def purge(client: GridClient, id: str, timeout_s: float | None) -> int:
    return await client.directory.purge(id, deadline_s=timeout_s)


async def pause(client: GridClient, id: str, timeout_s: float | None) -> None:
    await client.defining.want(id, "paused", deadline_s=timeout_s)


async def resume(client: GridClient, id: str, timeout_s: float | None) -> None:
    await client.defining.want(id, "running", deadline_s=timeout_s)


async def cancel(client: GridClient, id: str, timeout_s: float | None) -> None:
    await client.directory.cancel(id, deadline_s=timeout_s)


async def retry(client: GridClient, id: str, skip: bool, timeout_s: float | None) -> bool:
    return await client.directory.retry(id, skip=skip, deadline_s=timeout_s)


async def publish(
    client: GridClient, to: str | Topic, message: Any, id: str, timeout_s: float | None, strict: bool
) -> None:
    await client.publish(to, message, id=id, deadline_s=timeout_s, strict=strict)


async def publish_many(
    client: GridClient,
    messages: Iterable[tuple[str | Topic, Any]],
    ids: Iterable[str] | None,
    timeout_s: float | None,
    strict: bool,
) -> None:
    await client.publish_many(messages, ids=ids, deadline_s=timeout_s, strict=strict)


async def broadcast(client: GridClient, job_type: JobTarget, message: Any, id: str, timeout_s: float | None) -> None:
    await client.broadcast(job_type, message, id=id, deadline_s=timeout_s)


async def ask(client: GridClient, to: str, message: Any, id: str, timeout_s: float | None) -> Any:
    return await client.ask(to, message, id=id, deadline_s=timeout_s)


async def state(client: GridClient, id: str, timeout_s: float | None) -> Any:
    return await client.state(id, deadline_s=timeout_s)


async def describe(client: GridClient, id: str, timeout_s: float | None) -> JobDescription:
    return cast(JobDescription, await client.directory.describe(id, deadline_s=timeout_s))


async def jobs(client: GridClient, timeout_s: float | None) -> list[JobSummary]:
    return cast(list[JobSummary], await client.directory.jobs(deadline_s=timeout_s))


async def nodes(client: GridClient) -> list[NodeInfo]:
    return sorted(await patiently(said_nodes, client.grid), key=lambda node: node.id)


async def partitions(client: GridClient, timeout_s: float | None) -> list[PartitionStatus]:
    return cast(list[PartitionStatus], await client.directory.partitions(deadline_s=timeout_s))


async def topics(client: GridClient, timeout_s: float | None) -> dict[str, int]:
    return await client.directory.topics(deadline_s=timeout_s)


async def dead_letters(client: GridClient, timeout_s: float | None) -> list[DeadLetter]:
    return cast(list[DeadLetter], await client.directory.dead_letters(deadline_s=timeout_s))


async def exhume(client: GridClient, letters: Iterable[DeadLetter], replay: bool, timeout_s: float | None) -> int:
    plain = [cast(dict[str, Any], letter) for letter in letters]
    return await client.directory.exhume(plain, replay=replay, deadline_s=timeout_s)


async def snapshot(client: GridClient, url: str, keep: int, timeout_s: float | None) -> Snapshot:
    return cast(Snapshot, await _calls().snapshot(client, url, keep=keep, deadline_s=timeout_s))


async def schedule_snapshots(
    client: GridClient, url: str, every_s: float, keep: int, within_s: float | None, timeout_s: float | None
) -> str:
    return cast(
        str,
        await _calls().schedule_snapshots(
            client, url, every_s=every_s, keep=keep, within_s=within_s, deadline_s=timeout_s
        ),
    )


async def unschedule_snapshots(client: GridClient, url: str, timeout_s: float | None) -> None:
    await _calls().unschedule_snapshots(client, url, deadline_s=timeout_s)


async def snapshots(client: GridClient, url: str) -> list[Snapshot]:
    return cast(list[Snapshot], await _calls().snapshots(url))


async def verify_snapshot(client: GridClient, url: str, name: str) -> Verified:
    return cast(Verified, await _calls().verify(url, name))


async def export_snapshot(client: GridClient, url: str, to: str | PathLike[str], name: str) -> int:
    from tenure.clients.as_json import as_json
    from tenure.clients.exports import replaced

    count = 0
    # Written line by line as it is read: no other task of this client waits for long.
    with replaced(Path(to)) as file:
        async for line in _calls().exported(url, name):
            count += 1
            print(as_json(line), file=file)
    return count


async def restore(
    client: GridClient,
    url: str,
    name: str,
    replace: bool,
    keep_dead_letters: bool,
    resume_snapshots: bool,
    timeout_s: float | None,
) -> Restored:
    return cast(
        Restored,
        await _calls().restore(
            client,
            url,
            name=name,
            replace=replace,
            keep_dead_letters=keep_dead_letters,
            resume_snapshots=resume_snapshots,
            answer_s=timeout_s,
        ),
    )


def _calls() -> ModuleType:
    from tenure.scheduler.snapshots import calls  # few clients need it, and it takes its time

    return calls
