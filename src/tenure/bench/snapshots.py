"""A snapshot of many jobs under load, and its restoration into another size and partition count.

    jobs, made in bulk ──► 2 members, 2 nodes, load ──► snapshot ──► the whole grid ends ──► 3 members, 1 node: restore

The jobs come from a snapshot that is made here, without a cluster: scheduling a million of them one by one would
measure something else. The longest pause is that of `pauses`, over the time that the snapshot takes. The ledger: each
job that gets messages has its total, in order; and in what was restored, a total that is no less than what was
acknowledged before the snapshot, and no more than what was sent before its end.
"""

import gc
import os
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, cast

import trio
from msgspec import Raw

from tenure.bench.application import Account, now_ms
from tenure.bench.clusters import APPLICATION, states
from tenure.bench.pauses import AFTER_S, CALM_S, Load, Probes
from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.coordinator import take_snapshot
from tenure.scheduler.snapshots.form import (
    Bucket,
    BucketRef,
    Manifest,
    Part,
    PartRef,
    bucket_count,
    bucket_of,
    compressed,
    digest_of,
    pack_path,
    part_path,
)
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.stores import Directory
from tenure.scheduler.wire import Definition, JobRecord, Status, encode
from tenure.testing.backend import Plan
from tenure.testing.hazelcast_cluster import HazelcastBackend, open_hazelcast

__all__ = ["measure"]

JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "1000000"))
HOT = 4_000
"""So many of them get messages, each in its turn."""
MESSAGES_PER_S = 2_000
MADE_OF = 64
"""Partitions of the snapshot that is made here."""
FROM_PARTITIONS, INTO_PARTITIONS = 271, 113
SETTLE_S = 10.0
HEAP_MIB = 3072
"""Of each member: all jobs are there twice, and their images too."""


async def measure() -> dict[str, Any]:
    """The part of `tenure bench operations`."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        made, taken = Directory(Path(folder) / "made"), Directory(Path(folder) / "taken")
        await _make(made)
        _say(f"{JOBS:,} jobs are made")
        figures = await _snapshot(made, taken)
        return figures | await _restore(taken, figures.pop("_floor"), figures.pop("_ceiling"), figures["exact"])


# -- a million jobs -------------------------------------------------------------------------------


async def _make(store: Directory) -> None:
    """A snapshot of jobs that have had no message yet."""
    places: dict[int, list[str]] = defaultdict(list)
    for n in range(JOBS):
        places[zlib.crc32(_id(n).encode()) % MADE_OF].append(_id(n))
    random, parts, packs, size_bytes = Random(JOBS), [], [], 0
    type = JobType("bench-account", Account)
    for partition in range(MADE_OF):
        ids = places[partition]
        buckets = [Bucket({}, {}, {}, []) for _ in range(bucket_count(len(ids)))]
        for id in ids:
            # Half of it compresses, as states do.
            state = type.initial({"ballast": random.randbytes(38).hex() + 76 * "x"})
            bucket = buckets[bucket_of(id, MADE_OF, len(buckets))]
            bucket.jobs[id] = JobRecord("bench-account", 1, 1, 1, Status.RUNNING, state, 1)
            bucket.definitions[id] = encode(Definition("bench-account", Raw(b"\x80"), 1, 1, "running"))
        pack, refs = bytearray(), []
        for bucket in buckets:
            content = encode(bucket)
            small = compressed(content)
            refs.append(BucketRef(0, len(pack), len(small), digest_of(content), len(bucket.jobs)))
            pack += small
        path = pack_path("made", partition, 0)
        packs.append(path)
        await store.write(path, bytes(pack))
        content = encode(Part(partition, refs, [(path, len(pack))], len(ids), [], {}, [], {}, {}))
        await store.write(part_path("made", partition), compressed(content))
        parts.append(PartRef(part_path("made", partition), digest_of(content).hex()))
        size_bytes += len(pack)
    name = "20260101T000000.000Z"
    await Catalog(store).add(Manifest(name, 0, "made", 1, MADE_OF, parts, JOBS, size_bytes, size_bytes, 0.0, packs))


def _id(n: int) -> str:
    return f"account-{n}"


def _plan(members: int, partitions: int) -> Plan:
    return Plan(
        nodes=0,
        members=members,
        grid="hazelcast",
        app=str(APPLICATION),
        partitions=partitions,
        backups=1,
        settings=NodeSettings(),
        seed=0,
        start=None,
        faults=None,
        heap_mib=HEAP_MIB,
    )


async def _restored(cluster: HazelcastBackend, client: GridClient, store: Directory, nodes: int) -> tuple[float, float]:
    """Restore, start nodes, wait until all partitions are open: seconds for the first, and for the whole."""
    began_s = time.perf_counter()
    await restore_snapshot(client.grid, store, now_ms, RestoreOptions())
    restore_s = time.perf_counter() - began_s
    await cluster.add_nodes(nodes)
    while sum(len(node.owned) for node in await client.directory.nodes()) < client.partition_count:  # noqa: ASYNC110  # no event says so
        await trio.sleep(0.05)
    await client.ask(_id(0), {}, deadline_s=120)
    return restore_s, time.perf_counter() - began_s


# -- the snapshot ---------------------------------------------------------------------------------


async def _snapshot(made: Directory, taken: Directory) -> dict[str, Any]:
    plan = _plan(2, FROM_PARTITIONS)
    async with open_hazelcast(plan) as cluster, cluster.open_client(None, None) as client:
        first_restore_s, _ = await _restored(cluster, client, made, 2)
        _say(f"and restored, in {first_restore_s:.1f} s")
        ids = [_id(n) for n in range(HOT)]
        await trio.sleep(SETTLE_S)
        gc.collect()
        gc.freeze()  # this process, which only measures, would stop for its own full collections
        load, probes = Load(client, ids, per_second=MESSAGES_PER_S), Probes(client, ids)
        async with trio.open_nursery() as nursery:
            ended = trio.Event()
            nursery.start_soon(load.run, ended)
            nursery.start_soon(probes.run, nursery)
            await trio.sleep(CALM_S)
            calm = _worst(await _accounts(client, ids)), probes.longest_ms
            load.forget = True
            await trio.sleep(HOT / MESSAGES_PER_S + 1.0)  # all have forgotten what was before
            probes.longest_ms, floor, began_ms = 0.0, load.stored, now_ms()
            began_s = time.perf_counter()
            manifest, _ = await take_snapshot(client.grid, f"file://{taken.root}", taken, now_ms)
            snapshot_s = time.perf_counter() - began_s
            ceiling = load.sent
            _say(f"a snapshot of {manifest.size_bytes / 2**20:.1f} MiB took {snapshot_s:.1f} s")
            await trio.sleep(AFTER_S)
            load.stop = True
            await ended.wait()
            accounts = await _accounts(client, ids)
            answer_ms = probes.longest_ms
            # The next one, of which little has changed.
            again, _ = await take_snapshot(client.grid, f"file://{taken.root}", taken, now_ms)
            await Catalog(taken).retain(2)
            nursery.cancel_scope.cancel()
        jobs = sum(status["jobs"] for status in await client.directory.partitions(deadline_s=120))
    await taken.delete(f"snapshots/{again.name}.json")  # the first is the one that was taken under load
    turn_ms = _worst([account for account in accounts if account.waited_at_ms >= began_ms])
    totals = Counter({_id(n): account.total for n, account in enumerate(accounts)})
    return {
        "snapshot_pause_ms": float(max(turn_ms, answer_ms)),
        "snapshot_turn_pause_ms": float(turn_ms),
        "snapshot_answer_pause_ms": answer_ms,
        "snapshot_calm_pause_ms": float(max(calm)),
        "snapshot_s": snapshot_s,
        "snapshot_jobs": manifest.jobs,
        "snapshot_mib": manifest.size_bytes / 2**20,
        "snapshot_again_s": again.duration_s,
        "snapshot_again_written_mib": again.written_bytes / 2**20,
        "snapshot_messages_per_s": load.sent / load.took_s,
        "bulk_restore_s": first_restore_s,
        "_floor": floor,
        "_ceiling": ceiling,
        "exact": totals.total() == load.sent
        and not any(account.disordered for account in accounts)
        and jobs == manifest.jobs == JOBS
        and not probes.failed,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # it takes minutes


async def _accounts(client: GridClient, ids: list[str]) -> list[Account]:
    return [cast(Account, account) for account in (await states(client, ids)).values()]


def _worst(accounts: list[Account]) -> int:
    return max((account.waited_ms_max for account in accounts), default=0)


# -- and back -------------------------------------------------------------------------------------


async def _restore(store: Directory, floor: int, ceiling: int, exact: bool) -> dict[str, Any]:
    plan = _plan(3, INTO_PARTITIONS)
    async with open_hazelcast(plan) as cluster, cluster.open_client(None, None) as client:
        restore_s, open_s = await _restored(cluster, client, store, 1)
        accounts = await _accounts(client, [_id(n) for n in range(HOT)])
        jobs = sum(status["jobs"] for status in await client.directory.partitions(deadline_s=120))
    total = sum(account.total for account in accounts)
    whole = all(account.total == account.last and not account.disordered for account in accounts)
    return {
        "restore_s": restore_s,
        "restore_until_open_s": open_s,
        "restore_jobs": jobs,
        "exact": exact and whole and floor <= total <= ceiling and jobs == JOBS,
    }
