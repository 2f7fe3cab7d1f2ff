"""A job that takes no more: what is for it is held back at its senders, and nobody else waits."""

import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

import tenure
from tenure.scheduler.client import GridClient
from tenure.scheduler.commands import OPERATIONS
from tenure.scheduler.held_back import HeldBack
from tenure.scheduler.holding import Holding
from tenure.scheduler.keys import partition_of
from tenure.scheduler.sending import Sending
from tenure.testing import Cluster
from tests.api.test_formats import backend_of

PARTITIONS = 4
SETTINGS = tenure.NodeSettings(mailbox_messages_max=20, mailbox_bytes_max=20_000, group_messages_max=10)


@tenure.job("holding-sum", retry=tenure.Retry(attempts_max=1))
class Sum(tenure.Job):
    """Fails over what is negative."""

    seen: list[int] = []

    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        if isinstance(message, int):
            if message < 0:
                raise ValueError("negative")
            self.seen.append(message)
        return sum(self.seen)


@tenure.job("holding-needs")
class Needs(tenure.Job):
    """Can't be made without its field."""

    email: str

    def on_message(self, ctx: tenure.Context, message: Any) -> str:
        return self.email


@tenure.job("holding-slow", retry=tenure.Retry(attempts_max=1))
class Slow(tenure.Job):
    """Takes its time, and fails over what is negative."""

    seen: list[int] = []

    async def on_message(self, ctx: tenure.Context, message: int) -> int:
        await trio.sleep(0.01)
        if message < 0:
            raise ValueError("negative")
        self.seen.append(message)
        return message


@pytest.fixture
async def cluster(in_virtual_time: None) -> AsyncIterator[Cluster]:
    async with Cluster(nodes=2, members=2, partitions=PARTITIONS, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[tenure.Client]:
    async with cluster.client() as client:
        yield client


def neighbours_of(id: str) -> Iterator[str]:
    """Ids of the same partition."""
    same = partition_of(id, PARTITIONS)
    return (f"n{n}" for n in range(10_000) if partition_of(f"n{n}", PARTITIONS) == same)


async def fail(client: tenure.Client, id: str) -> None:
    await client.schedule(Sum, id=id)
    await client.publish(id, -1)
    await trio.sleep(1)
    assert (await client.describe(id))["error"] == "ValueError: negative"


async def fill(client: tenure.Client, id: str, bytes_each: int = 0) -> list[int]:
    """Publish until the job takes no more; returns what was stored."""
    for n in range(10_000):
        try:
            await client.publish(id, "x" * bytes_each if bytes_each else n, timeout_s=1)
        except tenure.Backlogged as backlogged:
            if backlogged.full.keys() == {id}:
                return list(range(n))
            raise
    raise AssertionError("it takes all")


async def test_a_failed_job_holds_up_none_of_its_clients_other_jobs(client: tenure.Client) -> None:
    good = next(neighbours_of("bad"))
    await client.schedule(Sum, id=good)
    await fail(client, "bad")
    await fill(client, "bad")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_in_vain, client, "bad")
        for n in range(200):
            await client.publish(good, n, timeout_s=1)
        assert await client.ask(good, 0, timeout_s=1) == sum(range(200))
        assert (await client.describe("bad", timeout_s=1))["status"] == "failed"
        assert len(await client.jobs(timeout_s=1)) == 2
        assert await client.retry("bad", skip=True, timeout_s=1)
        nursery.cancel_scope.cancel()
    await client.unschedule("bad", timeout_s=5)


async def publish_in_vain(client: tenure.Client, id: str) -> None:
    while True:
        with pytest.raises(tenure.Backlogged):
            await client.publish_many([(id, 1_000_000)] * 100, timeout_s=1)


async def test_one_call_for_several_jobs_stores_what_is_not_for_the_full_one(client: tenure.Client) -> None:
    good = next(neighbours_of("bad"))
    await client.schedule(Sum, id=good)
    await fail(client, "bad")
    await fill(client, "bad")
    messages: list[tuple[str, Any]] = [(id, n) for n in range(5) for id in ("bad", good)]
    with pytest.raises(tenure.Backlogged) as caught:
        await client.publish_many(messages, timeout_s=1)
    assert caught.value.unstored == [("bad", n) for n in range(5)]
    assert (await client.state(good)).seen == list(range(5))


async def test_who_publishes_is_told_which_job_is_full_and_why(client: tenure.Client) -> None:
    await fail(client, "bad")
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    stored = await fill(client, "bad")
    with pytest.raises(tenure.Backlogged, match="job 'bad' takes no more for now: it has failed: ValueError: negative"):
        await client.publish("bad", 1, timeout_s=1)
    assert 20 <= len(stored) <= 30
    await fill(client, "asleep")
    with pytest.raises(tenure.Backlogged, match=r"job 'asleep' .* it is paused, and \d+ messages wait for it"):
        await client.publish("asleep", 1, timeout_s=1)


async def test_a_mailbox_is_full_by_its_bytes_too(client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    assert 7 <= len(await fill(client, "asleep", 3_000)) <= 12


async def test_what_was_held_back_comes_in_order_and_once(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    async with cluster.client() as other, trio.open_nursery() as nursery:
        nursery.start_soon(publish_in_order, client, 0)
        nursery.start_soon(publish_in_order, other, 1000)
        await trio.sleep(2)
        assert 20 <= (await client.describe("asleep"))["waiting"] <= 8 * 20 + 100
        await client.resume("asleep")
    seen = (await client.state("asleep")).seen
    assert [n for n in seen if n < 1000] == list(range(300))
    assert [n for n in seen if n >= 1000] == list(range(1000, 1300))


async def publish_in_order(client: tenure.Client, first: int) -> None:
    for n in range(first, first + 300, 10):
        await client.publish_many([("asleep", n + i) for i in range(10)], timeout_s=100)


async def test_a_slow_job_takes_all_at_its_own_pace(client: tenure.Client) -> None:
    await client.schedule(Slow, id="slow")
    began_s = trio.current_time()
    for n in range(0, 500, 10):
        await client.publish_many([("slow", n + i) for i in range(10)], timeout_s=60)
    assert await client.ask("slow", 500) == 500
    assert (await client.state("slow")).seen == list(range(501))
    assert trio.current_time() - began_s < 501 * 0.01 * 1.1


async def test_a_question_waits_its_turn_behind_what_is_held_back(client: tenure.Client) -> None:
    await client.schedule(Slow, id="slow")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.publish_many, [("slow", n) for n in range(200)])
        await trio.sleep(0.5)
        assert await client.ask("slow", 7) == 7
    assert (await client.state("slow")).seen == [*range(200), 7]


async def test_what_is_held_back_goes_on_under_a_new_owner(cluster: Cluster, client: tenure.Client) -> None:
    """It knows nothing of whom the last one had told."""
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_in_order, client, 0)
        await trio.sleep(2)
        for node in await cluster.nodes():
            await cluster.add_node()
            await cluster.kill(node)
        await client.resume("asleep")
    assert (await client.state("asleep")).seen == list(range(300))


async def test_who_gives_up_leaves_nothing_behind(client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    for _ in range(20):
        with trio.move_on_after(0.5):
            await client.publish_many([("asleep", 1)] * 20)
    sending = await client._home.run(sending_of)
    held = sending.held_back
    assert held.by_job.keys() == {"asleep"}
    assert not held.by_job["asleep"].messages
    await trio.sleep(70)
    assert not held.by_job
    assert not held._asking, "nobody is asked about a job to which nobody sends"
    assert sending._buffer_bytes == 0


async def test_an_owner_of_an_older_version_gets_it_all_and_does_not_read_on(
    client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_in_order, client, 0)
        await trio.sleep(2)
        monkeypatch.delitem(OPERATIONS, "room")
        monkeypatch.setattr(Holding, "tell", lambda self: None)
        await trio.sleep(10)
        assert not (await client._home.run(sending_of)).held_back.by_job
        await client.resume("asleep")
    assert (await client.state("asleep")).seen == list(range(300))


async def test_an_owner_that_answers_something_else_ends_no_client(
    client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def otherwise(tenure: Any, envelope: Any, arguments: Any) -> None:
        tenure.turns.draft.answer_value(envelope, {"room": "enough"})

    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    with monkeypatch.context() as patch:
        patch.setitem(OPERATIONS, "room", otherwise)
        stored = await fill(client, "asleep")
        with pytest.raises(tenure.Backlogged):
            await client.publish("asleep", 1, timeout_s=10)
    await client.resume("asleep")
    await client.publish("asleep", len(stored), timeout_s=10)
    assert (await client.state("asleep")).seen == [*stored, len(stored)]


async def sending_of(client: GridClient) -> Sending:
    return client.sending


# -- questions ------------------------------------------------------------------------------------


async def test_a_question_to_a_failed_job_is_refused_at_once_and_for_good(client: tenure.Client) -> None:
    await fail(client, "bad")
    await client.publish_many([("bad", n) for n in (1, 2)])
    began_s = trio.current_time()
    with pytest.raises(tenure.JobFailed, match=r"nothing was done: it has failed: ValueError: negative; 3 messages"):
        await client.ask("bad", 100)
    assert trio.current_time() - began_s < 1
    await client.retry("bad", skip=True)
    assert (await client.state("bad")).seen == [1, 2]


async def test_a_question_to_a_paused_job_is_refused_at_once_and_for_good(client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    began_s = trio.current_time()
    with pytest.raises(tenure.JobPaused, match="it is paused; 0 messages wait for it"):
        await client.ask("asleep", 100)
    assert trio.current_time() - began_s < 1
    await client.resume("asleep")
    assert await client.ask("asleep", 1) == 1


async def test_a_question_to_a_job_that_no_node_can_run_is_refused_at_once(cluster: Cluster) -> None:
    registry = tenure.Registry()

    @tenure.job("holding-needs", registry=registry)
    class Otherwise(tenure.Job):
        """As somebody sees it who does not know what it needs."""

        def on_message(self, ctx: tenure.Context, message: Any) -> None: ...

    @tenure.job("holding-of-nobody", registry=registry)
    class OfNobody(tenure.Job):
        def on_message(self, ctx: tenure.Context, message: Any) -> None: ...

    async with cluster.client(registry=registry) as client:
        await client.schedule(OfNobody, id="nobody")
        await client.schedule(Otherwise, id="needy")
        began_s = trio.current_time()
        with pytest.raises(tenure.JobStuck, match="it is stuck: UnknownJobType"):
            await client.ask("nobody", 1)
        with pytest.raises((tenure.JobFailed, tenure.JobStuck), match="missing required field `email`"):
            await client.ask("needy", 1)
        assert trio.current_time() - began_s < 2


async def test_questions_that_wait_when_the_job_fails_are_refused_then(client: tenure.Client) -> None:
    await client.schedule(Slow, id="slow")
    await client.schedule(Slow, id="bad")
    errors: list[BaseException] = []

    async def ask(id: str, message: int) -> None:
        try:
            await client.ask(id, message)
        except tenure.TenureError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "bad", 1)
        await trio.sleep(0.001)
        await client.publish("bad", -1)
        for n in (2, 3):
            nursery.start_soon(ask, "bad", n)
            await trio.sleep(0.001)
        for n in range(10):
            nursery.start_soon(ask, "slow", n)
        await trio.sleep(0.05)
        await client.pause("slow")
        began_s = trio.current_time()
    assert trio.current_time() - began_s < 1
    assert sorted(type(error).__name__ for error in errors)[:3] == ["JobFailed"] * 2 + ["JobPaused"]
    await client.retry("bad", skip=True)
    await client.resume("slow")
    assert (await client.state("bad")).seen == [1]
    assert len((await client.state("slow")).seen) + len(errors) == 12


async def test_questions_to_a_full_failed_job_are_refused_at_once(client: tenure.Client) -> None:
    await fail(client, "bad")
    stored = await fill(client, "bad")
    began_s = trio.current_time()
    with pytest.raises(tenure.JobFailed, match="nothing was done"):
        await client.ask("bad", 1_000_000)
    assert trio.current_time() - began_s < 1
    await client.retry("bad", skip=True)
    assert (await client.state("bad")).seen == stored


async def test_a_question_that_was_answered_is_answered_again_while_its_job_is_paused(client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    assert await client.ask("asleep", 5, id="order-1") == 5
    await client.pause("asleep")
    assert await client.ask("asleep", 5, id="order-1") == 5


@tenure.job("holding-stubborn", retry=tenure.Retry(attempts_max=20, first_delay_s=60))
class Stubborn(tenure.Job):
    """Tries again, for long."""

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        raise ValueError("not yet")


async def test_who_gets_no_answer_is_told_what_the_job_is_at(client: tenure.Client) -> None:
    await client.schedule(Stubborn, id="s")
    await client.publish("s", 1)
    with pytest.raises(tenure.NotDone, match="may still run: its first turn has failed, and is tried again: Value"):
        await client.ask("s", 1, timeout_s=5)


# -- what would be without bound ------------------------------------------------------------------


async def test_who_waits_when_the_client_is_closed_is_told_at_once(cluster: Cluster) -> None:
    told: list[BaseException] = []

    async def call(call: Any, *arguments: Any) -> None:
        try:
            await call(*arguments, timeout_s=100_000)
        except tenure.TenureError as error:
            told.append(error)

    async with trio.open_nursery() as nursery:
        async with cluster.client() as client:
            await client.schedule(Sum, id="asleep")
            await client.schedule(Slow, id="slow")
            await client.pause("asleep")
            await fill(client, "asleep")
            nursery.start_soon(call, client.publish_many, [("asleep", 1), ("slow", 2)])
            nursery.start_soon(call, client.ask, "slow", 3)
            await trio.sleep(0.005)
        began_s = trio.current_time()
    assert trio.current_time() - began_s < 1
    by_type = {type(error): error for error in told}
    backlogged, not_done = by_type[tenure.Backlogged], by_type[tenure.NotDone]
    assert isinstance(backlogged, tenure.Backlogged)
    assert ("asleep", 1) in backlogged.unstored
    assert "as this client was closed: job 'asleep' takes no more for now" in str(backlogged)
    assert "client was closed" in str(not_done)


async def test_very_many_callers_who_give_up_cost_no_more_each_than_few(client: tenure.Client) -> None:
    await client.schedule(Sum, id="asleep")
    await client.pause("asleep")
    await fill(client, "asleep")
    lines = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    async def give_up() -> None:
        with pytest.raises(tenure.Backlogged):
            await client.publish("asleep", 1, timeout_s=5)

    def held_back_alone(frame: Any, event: str, argument: Any) -> Any:
        return count if frame.f_code.co_filename.endswith("held_back.py") else None

    async def many(callers: int) -> int:
        nonlocal lines
        lines, before = 0, sys.gettrace()
        sys.settrace(held_back_alone)
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(callers):
                    nursery.start_soon(give_up)
        finally:
            sys.settrace(before)
        return lines

    few = await many(50)
    assert await many(400) < 2 * 8 * few


async def test_senders_share_the_room_and_those_that_are_gone_are_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[int] = []
    let_go_on = HeldBack._let_go_on

    def note(self: HeldBack, job: Any, room: Any) -> None:
        rooms.append(room.room)
        let_go_on(self, job, room)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(cluster.client()) for _ in range(5)]
        await clients[0].schedule(Slow, id="slow")
        await clients[0].pause("slow")
        for client in clients:
            await fill(client, "slow")
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(partial(client.publish_many, [("slow", 1)] * 100, timeout_s=1000))
            await trio.sleep(5)
            monkeypatch.setattr(HeldBack, "_let_go_on", note)
            await clients[0].resume("slow")
        assert sum(rooms[:5]) <= 20
        await clients[0].pause("slow")
        for client in clients:
            await fill(client, "slow")
        partition, nodes = partition_of("slow", PARTITIONS), [ours.node for ours in backend_of(cluster)._nodes.values()]
        [full] = [node.tenures[partition].holding.full["slow"] for node in nodes if partition in node.tenures]
        assert len(full) == 5
        with pytest.raises(tenure.Backlogged):
            await clients[0].publish("slow", 1, timeout_s=300)
        assert len(full) == 1


@tenure.job("holding-remembering", remember_s=100)
class Remembering(tenure.Job):
    """Remembers ids for a while."""

    seen: list[int] = []

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.seen.append(message)
        return message


async def test_too_many_ids_hold_up_only_the_jobs_that_are_sent_them(in_virtual_time: None) -> None:
    settings = tenure.NodeSettings(remembered_max=20, group_messages_max=10)
    async with Cluster(nodes=2, members=2, partitions=PARTITIONS, settings=settings) as cluster:
        async with cluster.client() as client, cluster.client() as other:
            good, source = [id for id, _ in zip(neighbours_of("ids"), range(2), strict=False)]
            await client.schedule(Remembering, id="ids")
            await client.schedule(Remembering, id=good)
            stored = 0
            why: dict[str, str] = {}
            while not why:
                try:
                    await client.publish("ids", stored, id=f"id{stored}", timeout_s=5)
                    stored += 1
                except tenure.Backlogged as backlogged:
                    why = dict(backlogged.full)
            assert why.keys() == {"ids"}
            assert re.match(r"its messages have ids, and partition \d remembers 2\d ids", why["ids"])
            assert 20 <= stored <= 40
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish_with_ids, client, stored)
                await trio.sleep(1)
                for n in range(20):
                    await client.publish(good, n, timeout_s=1)
                assert await client.ask(good, 20, timeout_s=1) == 20
                assert (await client.describe("ids", timeout_s=1))["waiting"] == 0
                await other.schedule(Sender, id=source, to="ids", timeout_s=5)
                await trio.sleep(20)
                assert (await client.state("ids")).seen == [*range(stored), -1], "jobs that send do not wait for it"
                await trio.sleep(300)
            assert (await client.state("ids")).seen == [*range(stored), -1, *range(stored, stored + 10)]


async def publish_with_ids(client: tenure.Client, first: int) -> None:
    for n in range(first, first + 10):
        await client.publish("ids", n, id=f"id{n}", timeout_s=10_000)


@tenure.job("holding-sender")
class Sender(tenure.Job):
    """Sends as it starts."""

    to: str

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.send(self.to, -1, id="of-a-job")


@tenure.job("holding-news", topics=["news"])
class News(Sum):
    """Hears the news."""


@tenure.job("holding-carries")
class Carries(tenure.Job):
    """Sends on, with ids."""

    def on_message(self, ctx: tenure.Context, message: tuple[str, int]) -> None:
        to, count = message
        for n in range(count):
            ctx.send(to, n, id=f"n{n}")


async def stands_still(client: tenure.Client, id: str) -> bool:
    """All that this client sends to the partition of this job?"""
    try:
        await client.describe(id, timeout_s=3)
        await client.ask(id, 1, timeout_s=3)
    except tenure.NotDone:
        return True
    return False


async def test_a_client_is_told_before_its_lane_stops_also_where_others_have_brought_too_much_by_far(
    in_virtual_time: None,
) -> None:
    """A topic fills its paused subscriber, and the dead letters of its partition, to the last bound there is."""
    settings = msgspec.structs.replace(SETTINGS, dead_letters_max=20)
    good = next(neighbours_of("bad"))
    full = {"bad": "job 'bad' takes no more for now: it is paused", nobody(): "too many dead letters"}
    async with Cluster(nodes=1, partitions=PARTITIONS, settings=settings) as cluster, cluster.client() as client:
        await client.schedule(News, id="bad")
        await client.schedule(Sum, id=good)
        await client.pause("bad")
        for _ in range(30):
            await client.publish_many([(tenure.Topic("news"), 1)] * 100)
        await trio.sleep(3)
        row = max(await client.partitions(), key=lambda row: row["waiting"])
        assert row["waiting"] >= 64 * 20 - 1
        assert row["dead_letters"] >= 64 * 20
        assert row["dead_letters_dropped"]
        for id, why in full.items():
            async with cluster.client() as other:
                await other.publish(id, 2)
                assert not await stands_still(other, good)
                with pytest.raises(tenure.Backlogged, match=why):
                    await other.publish(id, 2, timeout_s=1)
                assert not await stands_still(other, good)


def nobody() -> str:
    return next(id for id in neighbours_of("bad") if id > "n5")


async def test_a_client_is_told_before_its_lane_stops_for_ids_that_jobs_have_brought(in_virtual_time: None) -> None:
    settings = tenure.NodeSettings(remembered_max=20)
    async with Cluster(nodes=1, partitions=PARTITIONS, settings=settings) as cluster, cluster.client() as client:
        ids = neighbours_of("busy")
        good, named = next(ids), next(ids)
        for id in ("busy", good, named):
            await client.schedule(Sum, id=id)
        await client.schedule(Carries, id="carries")
        await client.publish("carries", ("busy", 60))
        await trio.sleep(3)
        await client.publish(named, 1, id="a")
        assert not await stands_still(client, good)
        with pytest.raises(tenure.Backlogged, match=f"job '{named}' takes no more for now: its messages have ids"):
            await client.publish(named, 1, id="b", timeout_s=1)
        assert not await stands_still(client, good)
        assert (await client.state(named)).seen == [1]
