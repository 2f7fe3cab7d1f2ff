"""Snapshots and restoring, as users see them: what is in them, what survives, and what is refused."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio

import tenure
from tenure.scheduler.fences import INCARNATION_MAX
from tenure.scheduler.held_back import HeldBack
from tenure.scheduler.holding import BEYOND, HARD
from tenure.scheduler.snapshots import restoring
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.errors import StoreFailed
from tenure.scheduler.snapshots.export import lines
from tenure.scheduler.snapshots.schedule import JOB_TYPE
from tenure.scheduler.snapshots.stores import Memory, open_store
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step

SERIAL = itertools.count()


@tenure.job("api-purse")
class Purse(tenure.Job):
    """Passes money on, in small amounts."""

    money: int = 100
    order: list[int] = []

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> int:
        self.money += message.get("get", 0)
        if (n := message.get("n")) is not None:
            self.order.append(n)
        if (to := message.get("pass_to")) and self.money:
            self.money -= 1
            hops = message["hops"] - 1
            onward = {"get": 1} | ({"pass_to": message["back"], "back": ctx.id, "hops": hops} if hops else {})
            ctx.send(to, onward)
        return self.money


@pytest.fixture
def place() -> str:
    return f"memory:{next(SERIAL)}"


@asynccontextmanager
async def another(**options: Any) -> AsyncIterator[tuple[Cluster, tenure.Client]]:
    async with Cluster(**options) as cluster, cluster.client() as client:
        yield cluster, client


PURSES = [f"purse{n}" for n in range(40)]


async def busy_purses(client: tenure.Client, rounds: int) -> None:
    for n in range(rounds):
        a, b = PURSES[n % len(PURSES)], PURSES[(7 * n + 3) % len(PURSES)]
        await client.publish(a, {"pass_to": b, "back": a, "hops": 30})
        await trio.sleep(0.001)


async def total(client: tenure.Client) -> int:
    await trio.sleep(5)
    return sum([(await client.state(id)).money for id in PURSES])


@pytest.mark.parametrize("partitions", [16, 5])
async def test_a_snapshot_under_load_is_a_consistent_cut(in_virtual_time: None, place: str, partitions: int) -> None:
    async with another(nodes=2) as (_, client):
        await client.schedule_many([("api-purse", id, {}) for id in PURSES])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy_purses, client, 400)
            await trio.sleep(0.3)
            taken = await client.snapshot(place)
            await client.snapshot(place)
        assert taken["jobs"] == len(PURSES)
        assert await total(client) == 100 * len(PURSES)
        names = [snapshot["name"] for snapshot in await client.snapshots(place)]
    assert names[0] == taken["name"]
    for name in names:
        async with another(nodes=2, partitions=partitions) as (_, client):
            restored = await client.restore(place, name=name)
            assert (restored["jobs"], restored["partition_count"]) == (len(PURSES), partitions)
            assert await total(client) == 100 * len(PURSES)


def store_of(place: str) -> Memory:
    store = open_store(place)
    assert isinstance(store, Memory)
    return store


ran: list[str] = []


@tenure.job("api-keeper", topics=("news",), retry=tenure.Retry(attempts_max=1))
class Keeper(tenure.Job):
    """Has some of everything that a snapshot must keep."""

    name: str = ""
    read: list[Any] = []
    woken: int = 0
    ended: list[str] = []
    fences: list[int] = []
    blocked: bool = False

    def on_start(self, ctx: tenure.Context) -> None:
        if self.name == "timed":
            ctx.wake_in(60)
        if self.name == "long":
            ctx.start_activity("load", {})

    async def on_message(self, ctx: tenure.Context, message: Any) -> Any:
        if message == "fail":
            raise ValueError("on purpose")
        if message == "twice":
            return await self.twice(ctx)
        self.read.append(message)
        self.fences.append(ctx.fence)
        return len(self.read)

    async def twice(self, ctx: tenure.Context) -> int:
        """Its first step is done once; the second waits for ever, in the first cluster."""

        def first() -> int:
            ran.append(ctx.turn_id)
            return 7

        found: int = await ctx.once("first", first)
        if len(blocked) < 1:
            blocked.append(1)
            await trio.sleep_forever()
        self.read.append(found)
        return found

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.woken += 1

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        self.ended.append(event.status)


blocked: list[int] = []
KEEPERS = ("plain", "timed", "paused", "failed", "stepping", "long")


async def some_of_everything(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Keeper, name, {"name": name}) for name in KEEPERS])
    await client.schedule(Counter, id="removed")
    await client.unschedule("removed")
    await client.publish("plain", "a", id="order-1")
    await client.pause("paused")
    await client.publish("paused", "waits")
    await client.publish("failed", "fail")
    await client.publish("failed", "behind it")
    await client.publish("stepping", "twice")
    await client.publish("nobody", "letter")
    await client.schedule(Counter, id="reader")
    run = await cluster.launched()
    assert run.attempt == 1
    await trio.sleep(2)


async def test_everything_survives(in_virtual_time: None, place: str) -> None:
    ran.clear()
    blocked.clear()
    async with another(nodes=2) as (cluster, client):
        await some_of_everything(cluster, client)
        fences = (await client.state("plain")).fences
        await client.snapshot(place)
    async with another(nodes=1, partitions=7) as (cluster, client):
        restored = await client.restore(place)
        assert restored["incarnation"] == 2
        assert {job["id"] for job in await client.jobs()} == {*KEEPERS, "reader"}
        # Messages, remembered ids, fencing tokens.
        await client.publish("plain", "a", id="order-1")
        assert await client.ask("plain", "b") == 2
        plain = await client.state("plain")
        assert plain.read == ["a", "b"]
        assert min(plain.fences[1:]) > max(fences)
        # Jobs that don't run, and their mailboxes.
        assert (await client.describe("paused"))["status"] == "paused"
        await client.resume("paused")
        assert (await client.state("paused")).read == ["waits"]
        failed = await client.describe("failed")
        assert (failed["status"], failed["failure"] and failed["failure"]["error"]) == (
            "failed",
            "ValueError: on purpose",
        )
        assert await client.retry("failed", skip=True)
        assert (await client.state("failed")).read == ["behind it"]
        # Steps that were done are not done again.
        await trio.sleep(1)
        assert (await client.state("stepping")).read == [7]
        assert len(ran) == 1
        # Timers, topics, dead letters, definitions.
        await trio.sleep(60)
        assert (await client.state("timed")).woken == 1
        assert await client.topics() == {"news": len(KEEPERS)}
        await client.publish(tenure.Topic("news"), "n")
        await trio.sleep(1)
        assert (await client.state("timed")).read == ["n"]
        [letter, skipped] = await client.dead_letters()
        assert (letter["to"], letter["message"], skipped["reason"]) == ("nobody", "letter", "Skipped")
        await client.schedule(Keeper, id="plain", name="plain")
        with pytest.raises(tenure.DuplicateJob):
            await client.schedule(Keeper, id="plain", name="another")
        await client.schedule(Counter, id="removed")
        assert (await client.describe("removed"))["generation"] == 2
        # What ran outside begins anew, and under another tag.
        run = await cluster.launched()
        assert (run.job, run.attempt) == ("long", 2)
        await run.succeed()
        await trio.sleep(5)
        assert (await client.state("long")).ended == ["succeeded"]


async def test_it_is_refused_where_there_are_jobs_unless_told(in_virtual_time: None, place: str) -> None:
    async with another(nodes=2) as (cluster, client), cluster.client() as other:
        await client.schedule(Counter, id="kept")
        await client.publish("kept", {"n": 1})
        await client.snapshot(place)
        await client.schedule(Counter, id="new")
        await client.publish("kept", {"n": 2})
        with pytest.raises(tenure.NotRestorable, match="--replace"):
            await client.restore(place)
        assert await client.ask("kept", {"n": 4}) == 7
        restored = await client.restore(place, replace=True)
        assert (restored["jobs"], restored["incarnation"]) == (1, 2)
        # The same nodes go on; clients that were there before begin new lanes, and nothing of theirs is lost.
        for one in (client, other):
            await one.publish("kept", {"n": 8})
        await trio.sleep(1)
        assert (await client.state("kept")).total == 17
        assert [job["id"] for job in await client.jobs()] == ["kept"]
        again = await other.restore(place, replace=True)
        assert again["incarnation"] == 3
        await client.publish("kept", {"n": 16})
        await trio.sleep(1)
        assert (await other.state("kept")).total == 17


async def test_what_comes_before_all_have_noticed_is_kept(in_virtual_time: None, place: str) -> None:
    async with another(nodes=1) as (_, client):
        await client.schedule(Counter, id="saved")
        await client.snapshot(place)
    async with another(nodes=2) as (cluster, client), cluster.client() as other:
        await other.schedule(Counter, id="gone")
        await other.unschedule("gone")
        refused: list[tenure.NotRestorable] = []

        async def restore() -> None:
            try:
                await client.restore(place)
            except tenure.NotRestorable as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restore)
            await trio.sleep(1)
            # It has looked just now, so it may still believe that this is the cluster it was.
            await other.schedule(Counter, id="new", timeout_s=3)
        assert "'new'" in str(refused[0])
        assert await other.ask("new", {"n": 1}) == 1
        assert [job["id"] for job in await client.jobs()] == ["new"]


async def test_nodes_keep_out_of_what_is_half_restored(
    in_virtual_time: None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "UNPACKED", 10**9)  # so large that each partition is made in a pass of its own
    store = store_of(place)
    async with another(nodes=2) as (_, client):
        await client.schedule_many([(Counter, f"c{n}", {"total": n}) for n in range(50)])
        await client.snapshot(place)
    async with another(nodes=2) as (_, client):
        store.slow_s = 0.1
        with trio.move_on_after(11) as interrupted:  # amid the partitions
            await client.restore(place)
        assert interrupted.cancelled_caught
        with pytest.raises(tenure.TryAgain):
            await client.state("c7", timeout_s=20)
        await client.restore(place)
        assert [(await client.state(f"c{n}")).total for n in range(50)] == list(range(50))


async def test_only_what_has_changed_is_written_again(in_virtual_time: None, place: str) -> None:
    async with another(nodes=2, partitions=4) as (cluster, client):
        await client.schedule_many([(Counter, f"c{n}", {"total": n}) for n in range(600)])
        first = await client.snapshot(place)
        assert first["written_bytes"] == first["size_bytes"]
        await client.publish("c7", {"n": 1})
        await cluster.kill(0)  # and it does not matter who writes it
        second = await client.snapshot(place)
        assert second["written_bytes"] < first["written_bytes"] / 4
        assert second["jobs"] == first["jobs"]
        third = await client.snapshot(place, keep=2)
        assert [snapshot["name"] for snapshot in await client.snapshots(place)] == [second["name"], third["name"]]
    async with another(nodes=1) as (_, client):
        await client.restore(place)
        assert (await client.state("c7")).total == 8
        assert (await client.state("c8")).total == 8


async def test_what_is_not_needed_any_more_goes_and_the_rest_stays(in_virtual_time: None, place: str) -> None:
    store = store_of(place)
    async with another(nodes=1, partitions=2) as (_, client):
        await client.schedule_many([(Counter, f"c{n}", {}) for n in range(300)])
        for round in range(6):
            await client.publish_many([(f"c{n}", {"n": 1}) for n in range(round * 50, round * 50 + 50)])
            await client.state("c0")
            store.age_s = 7200.0  # nothing here belongs to one that is about to be written
            await client.snapshot(place, keep=1)
        verdict = await Catalog(store).verify()
        assert verdict.problems == []
        [manifest] = [path for path in store.content if path.startswith("snapshots/")]
        await client.snapshot(place, keep=1)
        assert manifest not in store.content
    attempts = {path.split("/")[1] for path in store.content if path.startswith("parts/")}
    assert len(attempts) == 1
    # A pack of which little is needed is written anew: the rest does not pile up.
    size = sum(len(content) for path, content in store.content.items() if path.startswith("packs/"))
    assert size < 3 * verdict.size_bytes


@pytest.mark.parametrize("kind", ["packs/", "parts/", "snapshots/"])
@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
async def test_damage_is_found_before_anything_is_changed(
    in_virtual_time: None, place: str, kind: str, damage: str
) -> None:
    store = store_of(place)
    async with another(nodes=1) as (_, client):
        await client.schedule_many([(Counter, f"c{n}", {}) for n in range(20)])
        await client.snapshot(place)
        path = min(path for path in store.content if path.startswith(kind))
        whole = store.content[path]
        if damage == "missing":
            del store.content[path]
        else:
            middle = len(whole) // 2
            changed = bytes((whole[middle] ^ 1,)) + whole[middle + 1 :] if damage == "changed" else b""
            store.content[path] = whole[:middle] + changed
        if kind != "snapshots/":
            assert (await Catalog(store).verify()).problems != []
            with pytest.raises(tenure.SnapshotDamaged):
                await client.restore(place, replace=True)
        else:
            with pytest.raises((tenure.SnapshotDamaged, tenure.UnknownSnapshot)):
                await client.restore(place, replace=True)
        assert len(await client.jobs()) == 20
        assert await client.ask("c7", {"n": 1}) == 1
        # The next one does not build on it: as soon as it is not there as it should be.
        if (kind, damage) == ("packs/", "changed"):
            await client.snapshot(place)
            assert (await Catalog(store).verify()).problems != []
            del store.content[path]
        await client.snapshot(place)
        assert (await Catalog(store).verify()).problems == []


async def test_a_node_that_dies_in_the_middle_costs_an_attempt(in_virtual_time: None, place: str) -> None:
    store = store_of(place)
    async with another(nodes=3) as (cluster, client):
        await client.schedule_many([("api-purse", id, {}) for id in PURSES])
        await busy_purses(client, 50)
        first = await client.snapshot(place)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy_purses, client, 300)
            store.slow_s = 0.05
            for node in (0, 1):
                async with trio.open_nursery() as taking:
                    taking.start_soon(client.snapshot, place)
                    while not any(path.startswith("packs/") for path in store.content.keys() - store.seen):  # noqa: ASYNC110
                        await trio.sleep(0.01)
                    await cluster.kill(node)
                store.seen = set(store.content)
        names = [snapshot["name"] for snapshot in await client.snapshots(place)]
        assert len(names) == 3
        assert names[0] == first["name"]
    for name in names:
        assert (await Catalog(store).verify(name)).problems == []
        async with another(nodes=1, partitions=9) as (_, client):
            await client.restore(place, name=name)
            assert await total(client) == 100 * len(PURSES)


async def test_one_at_a_time_and_a_dead_coordinator_is_followed(in_virtual_time: None, place: str) -> None:
    store = store_of(place)
    async with another(nodes=2) as (cluster, client), cluster.client() as other:
        await client.schedule(Counter, id="c")
        store.slow_s = 5.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.snapshot, place)
            await trio.sleep(1)
            with pytest.raises(tenure.SnapshotUnderWay):
                await other.snapshot(place)
            nursery.cancel_scope.cancel()
        assert await client.snapshots(place) == []
        store.slow_s = 0.0
        assert (await other.snapshot(place))["jobs"] == 1
        # A store that fails fails the snapshot, and nothing else.
        store.broken = True
        with pytest.raises(tenure.SnapshotFailed, match="the place is broken"):
            await client.snapshot(place, timeout_s=20)
        store.broken = False
        assert len(await client.snapshots(place)) == 1
        assert await client.ask("c", {"n": 1}) == 1


async def test_a_failed_try_leaves_nothing_behind(in_virtual_time: None, place: str) -> None:
    """Else a place that is full stays so."""
    store = open_store(place)
    assert isinstance(store, Memory)
    write, room = store.write, 3

    async def limited(path: str, content: bytes) -> None:
        nonlocal room
        if not room:
            raise StoreFailed(f"{path} can't be written: No space left on device")
        room -= 1
        await write(path, content)

    async with another(nodes=2) as (_, client):
        await client.schedule(Counter, id="c")
        await client.ask("c", {"n": 1})
        store.write = limited  # type: ignore[method-assign]
        with pytest.raises(tenure.SnapshotFailed, match="No space left on device"):
            await client.snapshot(place, timeout_s=20)
        assert store.content == {}
        room = 1000
        assert (await client.snapshot(place))["jobs"] == 1
        there = set(store.content)
        room = 3
        await client.ask("c", {"n": 1})
        with pytest.raises(tenure.SnapshotFailed, match="No space left on device"):
            await client.snapshot(place, timeout_s=20)
        assert set(store.content) == there
        assert (await client.verify_snapshot(place))["whole"]


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_manifest_that_can_not_be_written_leaves_nothing_behind(
    in_virtual_time: None, place: str, is_there: bool
) -> None:
    """Unless it is there all the same: then there is a snapshot, and all that it names stays."""
    store = open_store(place)
    assert isinstance(store, Memory)
    write, is_full = store.write, False

    async def limited(path: str, content: bytes) -> None:
        if is_full and path.startswith("snapshots/"):
            if is_there:
                await write(path, content)
            raise StoreFailed(f"{path} can't be written: No space left on device")
        await write(path, content)

    async with another(nodes=2) as (_, client):
        await client.schedule(Counter, id="c")
        await client.snapshot(place)
        there = set(store.content)
        store.write = limited  # type: ignore[method-assign]
        await client.ask("c", {"n": 1})
        is_full = True
        with pytest.raises(StoreFailed, match="No space left on device"):
            await client.snapshot(place, timeout_s=20)
        assert (set(store.content) == there) is not is_there
        assert len(await client.snapshots(place)) == 1 + is_there
        assert (await client.verify_snapshot(place))["whole"]


async def test_what_an_object_store_may_still_have_on_its_way_keeps_what_it_names(
    in_virtual_time: None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "fails_for_good", False)
    store = open_store(place)
    assert isinstance(store, Memory)
    write, late = store.write, dict[str, bytes]()

    async def slow(path: str, content: bytes) -> None:
        if path.startswith("snapshots/"):
            late[path] = content
            raise StoreFailed(f"{path} can't be written: timed out")
        await write(path, content)

    async with another(nodes=2) as (_, client):
        await client.schedule(Counter, id="c")
        store.write = slow  # type: ignore[method-assign]
        with pytest.raises(StoreFailed, match="timed out"):
            await client.snapshot(place, timeout_s=20)
        store.content |= late
        assert (await client.verify_snapshot(place))["whole"]


async def test_scheduled_snapshots_survive_their_owner_and_keep_so_many(in_virtual_time: None, place: str) -> None:
    async with another(nodes=3) as (cluster, client):
        await client.schedule(Counter, id="c")
        id = await client.schedule_snapshots(place, every_s=20, keep=3)
        await trio.sleep(8)
        assert len(await client.snapshots(place)) == 1
        owner = (await client.describe(id))["node"]
        await cluster.kill(int(owner.removeprefix("node-")))
        await trio.sleep(100)
        assert len(await client.snapshots(place)) == 3
        state = (await client.describe(id))["state"]
        assert (state["taken"], state["error"], state["last_jobs"]) == (6, "", 2)
        assert await client.schedule_snapshots(place, every_s=20, keep=3) == id
        await client.unschedule_snapshots(place)
        before = await client.snapshots(place)
        await trio.sleep(60)
        assert await client.snapshots(place) == before
        await client.schedule_snapshots(place, every_s=10, keep=2)
        await trio.sleep(35)
        assert len(await client.snapshots(place)) == 2
        before = await client.snapshots(place)
    # What was restored elsewhere does not write where it came from. (Clusters of one seed have one name.)
    async with another(nodes=1, seed=1) as (_, client):
        await client.restore(place)
        await trio.sleep(60)
        assert await client.snapshots(place) == before
        assert "restored" in (await client.describe(id))["state"]["stopped"]
        await client.schedule_snapshots(place, every_s=10, keep=2)
        await trio.sleep(8)
        assert (await client.snapshots(place))[-1]["incarnation"] == 2


async def test_how_long_scheduled_snapshots_may_take_is_stored_with_them(in_virtual_time: None, place: str) -> None:
    store_of(place).slow_s = 5.0
    async with another(nodes=1) as (_, client):
        id = await client.schedule_snapshots(place, every_s=10, within_s=3)
        await trio.sleep(8)
        state = (await client.describe(id))["state"]
        assert (state["taken"], state["within_s"]) == (0, 3.0)
        assert "No snapshot was taken within 3 s" in state["error"]
        await client.schedule_snapshots(place, every_s=10, within_s=400, timeout_s=60)
        await trio.sleep(400)
        state = (await client.describe(id))["state"]
        assert (state["taken"] > 0, state["within_s"], state["error"]) == (True, 400.0, "")
        # Older clients name no limit: then there is the usual one.
        await client.ask(id, {"every_s": 10, "keep": 0}, timeout_s=400)
        assert (await client.describe(id))["state"]["within_s"] == 0


def test_schedules_of_older_versions_are_read() -> None:
    stored = msgspec.msgpack.encode({"url": "/backups", "every_s": 60.0, "keep": 3, "taken": 7})
    job = JOB_TYPE.load(stored, 1)
    assert (job.every_s, job.keep, job.taken, job.within_s) == (60.0, 3, 7, 0.0)


async def test_what_can_not_be_deleted_does_not_make_scheduled_snapshots_more_frequent(
    in_virtual_time: None, place: str
) -> None:
    store = store_of(place)
    async with another(nodes=1) as (_, client):
        id = await client.schedule_snapshots(place, every_s=600, keep=4)
        await trio.sleep(610)
        store.age_s = 7200.0
        first, second = [snapshot["name"] for snapshot in await client.snapshots(place)]
        store.content[f"snapshots/{second}.json"] = b"damaged"
        await trio.sleep(600)
        state = (await client.describe(id))["state"]
        assert (state["taken"], state["error"]) == (3, "")
        assert f"the manifest of snapshot {second} is damaged" in state["not_deleted"]
        await trio.sleep(1800)
        names = await Catalog(store).names()
        state = (await client.describe(id))["state"]
        assert (state["taken"], state["last"]) == (6, names[-1])
        # Nothing was deleted while the damaged one was to be kept; now it is not, and the history is whole.
        assert state["not_deleted"] == ""
        taken_ms = [(await Catalog(store).read(name)).taken_ms for name in names]
        assert [round((b - a) / 600_000, 1) for a, b in itertools.pairwise(taken_ms)] == [1.0, 1.0, 1.0]
        assert first not in names


async def test_it_can_be_read_by_people(in_virtual_time: None, place: str) -> None:
    blocked.clear()
    async with another(nodes=2) as (cluster, client):
        await some_of_everything(cluster, client)
        await client.snapshot(place)
    found: dict[str, list[dict[str, Any]]] = {}
    async for line in lines(Catalog(store_of(place))):
        found.setdefault(line["kind"], []).append(line)
    jobs = {job["id"]: job for job in found["job"]}
    assert set(jobs) == {*KEEPERS, "reader"}
    assert (jobs["plain"]["state"]["read"], jobs["plain"]["parameters"]) == (["a"], {"name": "plain"})
    assert [message["message"] for message in jobs["paused"]["waiting"]] == ["waits"]
    assert jobs["failed"]["failure"] == "ValueError: on purpose"
    assert jobs["timed"]["timer"]["due_ms"] > 0
    assert jobs["long"]["activities"] == ["load"]
    assert [letter["to"] for letter in found["dead_letter"]] == ["nobody"]
    assert [(topic["topic"], sorted(topic["subscribers"])) for topic in found["topic"]] == [("news", sorted(KEEPERS))]


async def test_messages_for_whole_topics_and_types_are_on_their_way(
    in_virtual_time: None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in a lane behind a full mailbox, or was sent and not taken, is delivered when it is restored."""
    monkeypatch.setattr(HeldBack, "hear", lambda self, answer: None)  # what it was told got lost
    count = 3 * HARD + BEYOND + 5
    settings = tenure.NodeSettings(mailbox_messages_max=3)
    async with another(nodes=1, partitions=1, settings=settings) as (_, client):
        await client.schedule(Keeper, id="plain")
        await client.schedule(Keeper, id="paused")
        await client.state("paused")
        await client.pause("paused")
        for n in range(count):
            await client.publish("paused", n)
        await client.publish(tenure.Topic("news"), "to all")
        await client.broadcast(Keeper, "to the type")
        await client.publish("paused", "last")
        await client.snapshot(place)
    async with another(nodes=2, partitions=5) as (_, client):
        await client.restore(place)
        await client.resume("paused")
        await trio.sleep(5)
        assert sorted((await client.state("plain")).read) == ["to all", "to the type"]
        read = (await client.state("paused")).read
        assert [message for message in read if message not in ("to all", "to the type")] == [*range(count), "last"]
        assert sorted(read[count:]) == ["last", "to all", "to the type"]


async def test_a_job_that_ends_itself_is_there_as_it_was(in_virtual_time: None, place: str) -> None:
    def finish(job: Script, ctx: tenure.Context) -> None:
        ctx.finish()

    store = store_of(place)
    ending = step(finish)
    async with another(nodes=1, partitions=1) as (_, client):
        await client.schedule(Script, id="s")
        await client.state("s")
        store.slow_s = 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.snapshot, place)
            await trio.sleep(0.35)  # it has cut, and reads what was before
            await client.publish("s", ending)
        assert await client.jobs() == []
    async with another(nodes=1) as (_, client):
        await client.restore(place)
        assert (await client.describe("s"))["status"] == "running"
        await client.publish("s", ending)
        await trio.sleep(1)
        assert await client.jobs() == []


async def test_a_damaged_note_of_a_restore_is_named(in_virtual_time: None, place: str) -> None:
    store = store_of(place)
    async with another(nodes=1) as (_, client):
        await client.schedule(Counter, id="c")
        await client.snapshot(place)
        restored = await client.restore(place, replace=True)
        path = f"restores/{restored['formation']}.json"
        store.content[path] = store.content[path][:20]
        with pytest.raises(tenure.SnapshotDamaged, match=rf"{path} is damaged: .* Nothing was changed"):
            await client.restore(place, replace=True)
        assert await client.ask("c", {"n": 1}) == 1
        del store.content[path]
        # The grid knows of it, too.
        assert (await client.restore(place, replace=True))["incarnation"] == restored["incarnation"] + 1


async def test_more_restores_than_fencing_tokens_have_room_for_are_refused(in_virtual_time: None, place: str) -> None:
    store = store_of(place)
    async with another(nodes=1) as (_, client):
        await client.schedule(Keeper, id="plain")
        await client.snapshot(place)
        note = {"formation": "x", "incarnation": INCARNATION_MAX - 1, "name": "", "at_ms": 0}
        store.content["restores/x.json"] = json.dumps(note).encode()
        restored = await client.restore(place, replace=True)
        assert restored["incarnation"] == INCARNATION_MAX
        await client.publish("plain", "a")
        [fence] = (await client.state("plain")).fences
        assert 2**62 < fence < 2**63
        with pytest.raises(tenure.NotRestorable, match=r"65,600 .* room for 65,599\. Nothing was changed\."):
            await client.restore(place, replace=True)
        assert await client.ask("plain", "b") == 2


async def test_mistakes_are_named(in_virtual_time: None, place: str) -> None:
    async with another(nodes=1) as (_, client):
        for url, words in (("backups", "relative"), ("", "no place"), ("file://host/x", "no place")):
            with pytest.raises(tenure.BadLocation, match=words):
                await client.snapshot(url)
        with pytest.raises(tenure.Mistake):
            await client.snapshot(place, keep=-1)
        with pytest.raises(tenure.Mistake):
            await client.schedule_snapshots(place, every_s=0)
        with pytest.raises(tenure.Mistake, match="more than 0 seconds"):
            await client.schedule_snapshots(place, every_s=1, within_s=0)
        with pytest.raises(tenure.Mistake, match="more than 0 seconds"):
            await client.snapshot(place, timeout_s=0)
        with pytest.raises(tenure.UnknownSnapshot, match="no snapshot here"):
            await client.restore(place)
        await client.snapshot(place)
        with pytest.raises(tenure.UnknownSnapshot, match="'nonsense'"):
            await client.restore(place, name="nonsense")


async def test_what_it_waits_for_in_vain_is_said(in_virtual_time: None, place: str) -> None:
    async with another(nodes=1, backups=0, members=2) as (cluster, client):
        await client.schedule(Counter, id="c")
        await client.snapshot(place)
        await cluster.pause(0)
        with pytest.raises(tenure.SnapshotFailed, match="within 15 s: nothing is heard of partitions 0, 1, "):
            await client.snapshot(place, timeout_s=15)
        await cluster.unpause(0)
        await cluster.kill_member(1)
        await trio.sleep(30)
        with pytest.raises(tenure.SnapshotFailed, match="is lost"):
            await client.snapshot(place)
        assert len(await client.snapshots(place)) == 1


async def test_large_states_are_stored_beside_the_work(in_virtual_time: None, place: str) -> None:
    async with another(nodes=1, partitions=1) as (_, client):
        await client.schedule_many([(Counter, f"c{n}", {"seen": [n] * 300_000}) for n in range(3)])
        await client.snapshot(place)
        assert (await client.snapshot(place))["written_bytes"] < 1000
    async with another(nodes=1, partitions=2) as (_, client):
        await client.restore(place)
        assert (await client.state("c2")).seen == [2] * 300_000
