"""The same seed gives the same run, event by event, with all faults on; another seed gives another."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from tenure.scheduler.grid.memory import MEASURED_TROUBLE, Fault, Faults, FaultyCluster, MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import EntryEvent, GridError, Map

Trace = list[object]

ALL_FAULTS = {
    **{fault: rate / 3 for fault, rate in MEASURED_TROUBLE.items()},
    Fault.STALE: 0.1,
    Fault.STALE_TAKEN: 0.2,
    Fault.SLOW: 0.02,
    Fault.BLOCKED: 0.01,
    Fault.EVENT_DELAYED: 0.05,
    Fault.EVENT_DOUBLED: 0.05,
    Fault.EVENT_REORDERED: 0.05,
    Fault.OWNERSHIP_HINT_LOST: 0.2,
    Fault.DISCARD_LOST: 0.1,
}


@contextmanager
def deterministic_scheduling(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trio shuffles the tasks that are ready, unless it is told otherwise; this is the switch Hypothesis uses too."""
    from trio._core import _run

    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr(_run, "_r", random.Random(seed))
    yield
    monkeypatch.undo()


def faulty(seed: int) -> FaultyCluster:
    faults = Faults(ALL_FAULTS, trouble_rates=MEASURED_TROUBLE)
    faults.detection_s = (0.2, 1.0)
    faults.migration_s = (0.0, 1.0)
    faults.migration_pause_s = (0.0, 0.2)
    faults.ownership_lag_s = (0.0, 0.5)
    return FaultyCluster(faults=faults, partitions=8, members=3, seed=seed)


async def work(cluster: MemoryCluster, seed: int, trace: Trace) -> None:
    """Some clients, whose own choices come from the seed too, while members come and go."""
    rng = random.Random(seed)

    async def client(name: str, grid: MemoryGrid) -> None:
        for number in range(60):
            partition, key = rng.randrange(8), b"%d" % rng.randrange(4)
            calls = (
                lambda p=partition, k=key: grid.get(Map.JOBS, p, k),
                lambda p=partition, k=key, n=number: grid.put_if_absent(Map.JOBS, p, k, b"%s %d" % (name.encode(), n)),
                lambda p=partition, k=key, n=number: grid.replace_if_same(Map.JOBS, p, k, b"x", b"%d" % n),
                lambda p=partition, k=key: grid.delete(Map.JOBS, p, k),
                lambda p=partition, k=key: grid.set(Map.JOBS, p, k, b"x", ttl_s=rng.choice((None, 1.0))),
            )
            try:
                outcome: object = await rng.choice(calls)()  # type: ignore[operator]
            except GridError as error:
                outcome = repr(error)
            trace.append((trio.current_time(), name, number, outcome))
            if number % 5 == 0:
                grid.discard(Map.JOBS, partition, [key])
            await trio.sleep(rng.choice((0.0, 0.01, 0.1)))

    def hear(events: list[EntryEvent]) -> None:
        trace.append((trio.current_time(), [*events]))

    async with trio.open_nursery() as nursery:
        listening = cluster.connect()
        await nursery.start(listen, listening, hear, trace)
        async with trio.open_nursery() as clients:
            for name in "abcd":
                clients.start_soon(client, name, cluster.connect())
            await trio.sleep(0.5)
            cluster.kill_member("m1")
            await trio.sleep(0.5)
            cluster.add_member()
            await trio.sleep(0.5)
            cluster.migrate(0, "m2")
            cluster.leave_member("m0")
        await trio.sleep(25)
        nursery.cancel_scope.cancel()
    rows = [
        [(map.value, dict(entries)) for map, entries in copies[0].entries.items()]
        for copies in cluster.largest().copies
    ]
    trace += [rows, cluster.largest().rows]


async def listen(grid: MemoryGrid, hear: object, trace: Trace, *, task_status: trio.TaskStatus[None]) -> None:
    async with grid.listen(Map.JOBS, hear), grid.watch_ownership(trace.append):  # type: ignore[arg-type]
        task_status.started()
        await trio.sleep_forever()


def run(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Trace, MemoryCluster]:
    trace: Trace = []
    cluster = faulty(seed) if kind == "faulty" else MemoryCluster(partitions=8, members=3, seed=seed)
    with deterministic_scheduling(seed, monkeypatch):
        trio.run(work, cluster, seed, trace, clock=MockClock(autojump_threshold=0))
    return trace, cluster


@pytest.mark.parametrize("kind", ["memory", "faulty"])
def test_the_same_seed_gives_the_same_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 2, 3):
        first, _ = run(kind, seed, monkeypatch)
        again, _ = run(kind, seed, monkeypatch)
        assert len(first) > 240
        assert first == again


@pytest.mark.parametrize("kind", ["memory", "faulty"])
def test_another_seed_gives_another_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(kind, 1, monkeypatch)[0] != run(kind, 2, monkeypatch)[0]


def test_such_a_run_shows_most_hazards(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[Fault] = Counter()
    for seed in range(6):
        _, cluster = run("faulty", seed, monkeypatch)
        assert isinstance(cluster, FaultyCluster)
        counts += cluster.faults.counts
    for fault in (
        *ALL_FAULTS,
        Fault.MEMBER_KILLED,
        Fault.MEMBER_JOINED,
        Fault.MEMBER_LEFT,
        Fault.MIGRATED,
        Fault.LANDED_LATE,
    ):
        assert counts[fault] > 0, f"{fault} never had an effect"
