"""What the doctor says of clusters that lack something: each thing by itself, and beside what else was found."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.cli.examination import examine_grid
from tenure.members import Standard, Verdict
from tenure.scheduler.directory import Directory
from tenure.scheduler.formats import stamp
from tenure.scheduler.grid.memory import MemoryGrid
from tenure.scheduler.grid.port import Map, Unknown
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.scheduler.keys import HEAD, journal_key, partition_of
from tenure.scheduler.snapshots import schedule
from tenure.scheduler.snapshots.claim import Claim
from tenure.scheduler.snapshots.form import Manifest
from tenure.testing import Cluster
from tests.api.jobs import Counter
from tests.api.test_formats import backend_of

PARTITIONS = 4
GOOD, WARNING, BAD = Standard.GOOD, Standard.WARNING, Standard.BAD


class Broken(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        raise RuntimeError("no luck")


OTHERS = Registry(*registry)
TYPES = Registry(
    *OTHERS,
    JobType("examined-broken", Broken, retry=tenure.Retry(attempts_max=1)),
    JobType("examined-clumsy", Broken),
)
pytestmark = pytest.mark.tenure(nodes=2, members=2, partitions=PARTITIONS, app=TYPES)


@pytest.fixture
async def grid(cluster: Cluster) -> AsyncIterator[MemoryGrid]:
    grid = backend_of(cluster).grid_cluster.connect()
    yield grid
    grid.close()


Examine = Callable[[], Awaitable[dict[str, Verdict]]]


@pytest.fixture
def examine(grid: MemoryGrid, cluster: Cluster) -> Examine:
    """The verdicts, by what they are about."""

    async def look() -> dict[str, Verdict]:
        verdicts = await examine_grid(grid, timeout_s=3, now_ms=backend_of(cluster).now_ms)
        found = {verdict.about: verdict for verdict in verdicts}
        assert len(found) == len(verdicts)
        assert all(bool(verdict.next_step) == (verdict.standard is not GOOD) for verdict in verdicts)
        return found

    return look


ALL = {"writes", "data", "nodes", "job types", "clocks", "owners", "jobs", "snapshots", "dead letters"}


async def test_nothing_is_wrong(examine: Examine, client: tenure.Client) -> None:
    await client.schedule(Counter, id="a")
    found = await examine()
    assert {about: verdict.standard for about, verdict in found.items()} == dict.fromkeys(ALL, GOOD)
    assert found["owners"].finding == "all 4 partitions are open"
    assert found["jobs"].finding == "1, none has failed"


async def test_heads_that_are_gone(examine: Examine, grid: MemoryGrid) -> None:
    await grid.delete(Map.HEADS, 2, HEAD)
    found = await examine()
    assert found["data"] == Verdict("data", BAD, "partitions 2 have lost their data", found["data"].next_step)
    assert "Restore a snapshot" in found["data"].next_step


async def test_heads_that_can_not_be_read_are_not_called_lost(
    examine: Examine, grid: MemoryGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = grid.get

    async def failing(map: Map, partition: int, key: bytes) -> bytes | None:
        if map is Map.HEADS and partition == 2:
            raise Unknown("no answer")
        return await get(map, partition, key)

    monkeypatch.setattr(grid, "get", failing)
    found = await examine()
    assert (found["data"].standard, found["data"].finding) == (BAD, "could not be looked at: no answer")
    assert found.keys() == ALL, "nothing else is lost by that"
    assert found["jobs"].standard is GOOD


@pytest.mark.tenure(backups=0)
async def test_lost_partitions(examine: Examine, cluster: Cluster) -> None:
    await cluster.kill_member(1)  # 0 has the marker, and what nodes say of themselves
    await trio.sleep(10)
    found = await examine()
    assert found["owners"].standard is BAD
    assert "are lost" in found["owners"].finding
    assert "Restore a snapshot" in found["owners"].next_step


async def test_a_parked_partition(examine: Examine, cluster: Cluster, client: tenure.Client, grid: MemoryGrid) -> None:
    await client.schedule(Counter, id="a")
    await client.ask("a", {"n": 1})
    partition, backend = partition_of("a", PARTITIONS), backend_of(cluster)
    (slot,) = [
        running.node.tenures[partition].journal.slot
        for running in backend._nodes.values()
        if partition in running.node.tenures
    ]
    for node in await cluster.nodes():
        await cluster.kill(node)
    await grid.set(Map.JOURNAL, partition, journal_key(slot), stamp(99) + b"of a newer version")
    node = (await backend._start(backend._start_number(), backend.registry)).node
    while partition not in node.host.unfit:  # noqa: ASYNC110  # in virtual time
        await trio.sleep(0.1)
    await trio.sleep(3)
    found = await examine()
    assert found["owners"].standard is BAD
    assert found["owners"].finding.startswith(f"partitions {partition} are parked")
    assert found["data"].standard is GOOD
    assert found["nodes"].standard is WARNING, "there is one"


async def test_partitions_that_do_not_answer(
    examine: Examine, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for running in backend_of(cluster)._nodes.values():
        if 1 in running.node.tenures:
            monkeypatch.setattr(running.node.tenures[1], "commit", trio.sleep_forever)
    found = await examine()
    assert (found["owners"].standard, found["owners"].finding) == (BAD, "partitions 1 do not answer")


@pytest.mark.tenure(settings=tenure.NodeSettings(mailbox_messages_max=20))
async def test_what_is_near_its_bound(examine: Examine, client: tenure.Client) -> None:
    await client.schedule(Counter, id="a")
    await client.ask("a", {"n": 1})
    await client.pause("a")
    await client.publish_many([("a", {"n": 1})] * 12)
    assert "bounds" not in await examine()
    await client.publish_many([("a", {"n": 1})] * 6)
    found = (await examine())["bounds"]
    assert found.standard is WARNING
    where = f"1 are near: partition {partition_of('a', PARTITIONS)}: messages for 'a': "
    assert re.fullmatch(rf"{where}1[89] of 20 \(mailbox_messages_max\)", found.finding), found.finding


async def test_failed_and_stuck_jobs(examine: Examine, cluster: Cluster, client: tenure.Client) -> None:
    stranger = Registry(JobType("examined-stranger", Counter))
    await client.schedule("examined-broken", id="broken")
    await client.publish("broken", 1)
    async with cluster.client(registry=stranger) as other:
        await other.schedule("examined-stranger", id="stranger")
    await trio.sleep(5)
    jobs = (await examine())["jobs"]
    assert jobs.standard is WARNING
    assert "1 has failed: broken" in jobs.finding
    assert "1 is stuck: stranger" in jobs.finding


async def test_jobs_that_are_tried_again(examine: Examine, client: tenure.Client) -> None:
    for id in ("a", "b"):
        await client.schedule("examined-clumsy", id=id)
        await client.publish(id, 1)
    await trio.sleep(60)
    jobs = (await examine())["jobs"]
    assert (jobs.standard, jobs.finding) == (WARNING, "2 are tried again after failures: a, b")
    assert "`tenure jobs state=retrying`" in jobs.next_step


@pytest.mark.tenure(backups=0)
async def test_a_lost_partition_hides_nothing_of_the_others(
    examine: Examine, cluster: Cluster, client: tenure.Client
) -> None:
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(20)])
    await client.publish_many([(f"c{n}", {"n": 1}) for n in range(20)])
    await trio.sleep(1)
    await cluster.kill_member(1)
    await trio.sleep(10)
    found = await examine()
    assert "are lost" in found["owners"].finding
    assert 0 < int(found["jobs"].finding.partition(",")[0]) < 20
    core: Any = client._home._value
    silent: dict[int, tenure.TenureError] = {}
    began_s = trio.current_time()
    rows = await core.directory.jobs(silent=silent)
    assert trio.current_time() - began_s < 5
    assert {type(error) for error in silent.values()} == {tenure.PartitionLost}
    assert {partition_of(job["id"], PARTITIONS) for job in rows}.isdisjoint(silent)
    healthy = rows[0]["id"]
    assert [job["id"] for job in await client.jobs(healthy)] == [healthy]


async def test_clocks_that_differ(examine: Examine, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    host = backend_of(cluster)._nodes[1].node.host
    right = host.now_ms
    for ahead_s, finding, standard in (
        (7200, "node node-1 is 2 h ahead", BAD),
        (-7200, "node node-1 is 2 h behind", BAD),
        (5, "node node-1 is 5 s ahead", WARNING),
        (1, "", GOOD),
    ):
        monkeypatch.setattr(host, "now_ms", lambda by_s=ahead_s: right() + 1000 * by_s)
        await trio.sleep(1)
        clocks = (await examine())["clocks"]
        assert clocks.standard is standard
        assert finding in clocks.finding


async def test_a_node_that_has_fallen_silent_is_listed_for_a_minute(examine: Examine, cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.kill(2)
    await trio.sleep(45)
    found = await examine()
    assert found["silent nodes"].standard is WARNING
    assert "nothing is heard of node-2" in found["silent nodes"].finding
    assert found["nodes"].finding.startswith("2: ")
    await trio.sleep(30)
    assert "silent nodes" not in await examine()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "place")


async def test_scheduled_snapshots_that_come(examine: Examine, client: tenure.Client, place: str) -> None:
    await client.schedule_snapshots(place, every_s=60)
    for _ in range(5):
        await trio.sleep(60)
        snapshots = (await examine())["snapshots"]
        assert (snapshots.standard, snapshots.finding) == (GOOD, "1 scheduled, and they come")


async def test_scheduled_snapshots_that_fail(
    examine: Examine, client: tenure.Client, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule_snapshots(place, every_s=300, within_s=60)
    await trio.sleep(100)

    async def fails(*_: Any, **__: Any) -> Any:
        raise tenure.SnapshotFailed("no room")

    monkeypatch.setattr(schedule, "take_snapshot", fails)
    await trio.sleep(300)
    snapshots = (await examine())["snapshots"]
    assert snapshots.standard is WARNING
    assert snapshots.finding == f"the last try to {place} failed: SnapshotFailed: no room"
    await trio.sleep(500)
    snapshots = (await examine())["snapshots"]
    assert snapshots.standard is BAD
    assert f"those to {place} are overdue: the last was taken " in snapshots.finding
    assert "min ago (SnapshotFailed: no room)" in snapshots.finding


async def test_scheduled_snapshots_that_nobody_takes(examine: Examine, client: tenure.Client, place: str) -> None:
    job = await client.schedule_snapshots(place, every_s=60)
    await trio.sleep(60)
    await client.pause(job)
    snapshots = (await examine())["snapshots"]
    assert (snapshots.standard, snapshots.finding) == (BAD, f"those to {place} do not run: the job is paused")


async def test_scheduled_snapshots_after_a_restore(
    examine: Examine, client: tenure.Client, place: str, in_virtual_time: None
) -> None:
    """Of another cluster's snapshot they stop, as that one may still write there; of its own they go on."""
    async with Cluster(nodes=1, seed=9) as other, other.client() as its_client:
        await its_client.schedule_snapshots(place, every_s=60)
        await trio.sleep(30)
        await its_client.snapshot(place)
    await client.restore(place, replace=True)
    await trio.sleep(120)
    snapshots = (await examine())["snapshots"]
    assert snapshots.standard is BAD
    assert "have stopped: this cluster was restored" in snapshots.finding
    await client.schedule_snapshots(place, every_s=60)
    await trio.sleep(30)
    await client.restore(place, replace=True)
    await trio.sleep(120)
    assert (await examine())["snapshots"].standard is GOOD


async def test_dead_letters(examine: Examine, client: tenure.Client) -> None:
    await client.publish("nobody", {"n": 1})
    await trio.sleep(60)
    assert len(await client.dead_letters()) == 1
    found = await examine()
    assert (found["dead letters"].standard, found["dead letters"].finding) == (WARNING, "1")
    assert found["jobs"].standard is GOOD


async def test_nodes_that_differ_in_their_types(examine: Examine, cluster: Cluster) -> None:
    await cluster.add_node(app=OTHERS)
    types = (await examine())["job types"]
    assert (types.standard, types.finding) == (WARNING, "nodes differ in examined-broken, examined-clumsy")


async def test_slow_writes(examine: Examine, grid: MemoryGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    write = grid.set

    async def slow(*arguments: Any, **options: Any) -> None:
        await trio.sleep(0.2)
        await write(*arguments, **options)

    monkeypatch.setattr(grid, "set", slow)
    writes = (await examine())["writes"]
    assert writes.standard is WARNING
    assert int(writes.finding.partition(".")[0]) >= 100


async def test_jobs_that_can_not_be_listed(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def jobs(self: Directory, **_: Any) -> Any:
        raise tenure.NotDone("no answer from partition 1.")

    monkeypatch.setattr(Directory, "jobs", jobs)
    found = await examine()
    assert found.keys() == ALL - {"snapshots"}
    assert (found["jobs"].standard, found["jobs"].finding) == (
        BAD,
        "could not be looked at: no answer from partition 1",
    )
    assert found["dead letters"].standard is GOOD


async def test_no_node_is_left(examine: Examine, cluster: Cluster) -> None:
    for node in await cluster.nodes():
        await cluster.kill(node)
    found = await examine()
    assert found["nodes"].finding.startswith("none is running")
    assert found["data"].standard is GOOD
    assert "jobs" not in found


async def test_a_restore_that_was_interrupted(examine: Examine, grid: MemoryGrid) -> None:
    claim = Claim(grid, "after", replaces_jobs=True)
    await claim.look()
    await claim.take(Manifest("the-snapshot", 1, "f", 1, PARTITIONS, [], 0, 0, 0, 0.0), 2)
    found = await examine()
    assert found["cluster"].standard is BAD
    assert "snapshot the-snapshot was being restored here, and nobody has gone on" in found["cluster"].finding
    assert "Run `tenure restore` again" in found["cluster"].next_step
    assert found.keys() == {"writes", "cluster", "nodes", "job types"}
    assert found["nodes"].finding.startswith("2: "), "they keep out, and are there"


async def test_members_that_stop_answering(examine: Examine, grid: MemoryGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*arguments: Any, **options: Any) -> Any:
        raise Unknown("no answer")

    for call in ("get", "set"):
        monkeypatch.setattr(grid, call, failing)
    found = await examine()
    assert {about: verdict.standard for about, verdict in found.items()} == {"writes": BAD, "grid": BAD}
