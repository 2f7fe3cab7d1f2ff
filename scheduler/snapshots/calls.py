"""What clients and commands do with snapshots, as plain dicts."""

import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.scheduler.errors import Mistake, TenureError, UnknownJob
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.errors import SnapshotDamaged, StoreFailed, UnknownSnapshot
from tenure.scheduler.snapshots.export import lines
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.schedule import JOB_TYPE, job_of
from tenure.scheduler.snapshots.stores import open_store
from tenure.scheduler.wire import SECONDS_MAX

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = [
    "exported",
    "restore",
    "schedule_snapshots",
    "shown",
    "snapshot",
    "snapshots",
    "unschedule_snapshots",
    "verify",
]


async def snapshot(
    client: "GridClient", url: str, *, keep: int = 0, deadline_s: float | None = None
) -> dict[str, Any]:
    """See `Client.snapshot`."""
    options = SnapshotOptions(keep=_checked(keep), deadline_s=_limit_s(deadline_s) or SnapshotOptions.deadline_s)
    manifest, not_deleted = await take_snapshot(client.grid, url, open_store(url), client.now_ms, options)
    return shown(manifest) | ({"not_deleted": not_deleted} if not_deleted else {})


async def schedule_snapshots(
    client: "GridClient",
    url: str,
    *,
    every_s: float,
    keep: int = 0,
    within_s: float | None = None,
    deadline_s: float | None = None,
) -> str:
    """See `Client.schedule_snapshots`."""
    if not 0 < every_s <= SECONDS_MAX:
        raise Mistake(f"snapshots are taken every so many seconds, up to a hundred years of them, not {every_s!r}")
    open_store(url)
    id = job_of(url)
    wish = {"every_s": every_s, "keep": _checked(keep)}
    if limit_s := _limit_s(within_s):
        wish["within_s"] = limit_s
    try:
        await client.defining.schedule(JOB_TYPE, id, {"url": url}, deadline_s=deadline_s)
        await client.ask(id, wish, deadline_s=deadline_s)
    except UnknownJob as error:  # it was being removed
        raise TenureError(f"{error}; schedule it again") from error
    return id


async def unschedule_snapshots(client: "GridClient", url: str, *, deadline_s: float | None = None) -> None:
    """See `Client.unschedule_snapshots`."""
    await client.defining.want(job_of(url), "removed", deadline_s=deadline_s)


async def snapshots(url: str) -> list[dict[str, Any]]:
    """See `Client.snapshots`."""
    catalog, found = Catalog(open_store(url)), list[dict[str, Any]]()
    for name in await catalog.names():
        try:
            found.append(shown(await catalog.read(name)))
        except UnknownSnapshot:
            pass  # deleted since, as it was not to be kept
        except (SnapshotDamaged, StoreFailed) as error:
            found.append({"name": name, "problem": str(error)})
    return found


async def verify(url: str, name: str = "") -> dict[str, Any]:
    """See `Client.verify_snapshot`."""
    verdict = await Catalog(open_store(url)).verify(name)
    return {**verdict._asdict(), "whole": not verdict.problems}


def exported(url: str, name: str = "") -> AsyncIterator[dict[str, Any]]:
    """See `Client.export_snapshot`."""
    return lines(Catalog(open_store(url)), name)


async def restore(
    client: "GridClient",
    url: str,
    *,
    name: str = "",
    replace: bool = False,
    keep_dead_letters: bool = True,
    resume_snapshots: bool = False,
    answer_s: float | None = None,
) -> dict[str, Any]:
    """See `Client.restore`."""
    options = RestoreOptions(
        name=name,
        replace=replace,
        answer_s=math.inf if answer_s is None else answer_s,
        keep_dead_letters=keep_dead_letters,
        resume_snapshots=resume_snapshots,
    )
    return msgspec.structs.asdict(await restore_snapshot(client.grid, open_store(url), client.now_ms, options))


def shown(manifest: Manifest) -> dict[str, Any]:
    """A manifest without its parts."""
    left_out = ("parts", "packs", "format", "grid_format", "checksum", "formation")
    return {name: value for name, value in msgspec.structs.asdict(manifest).items() if name not in left_out}


def _limit_s(within_s: float | None) -> float:
    """0: none is given."""
    if within_s is not None and not within_s > 0:
        raise Mistake(f"a snapshot may take more than 0 seconds, not {within_s!r}")
    return within_s or 0.0


def _checked(keep: int) -> int:
    if keep < 0:
        raise Mistake(f"keep so many snapshots, or 0 for all of them, not {keep}")
    return keep
