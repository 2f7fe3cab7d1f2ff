"""Jobs that send to a job that takes no more: they wait, by name, and go on when there is room; nothing is lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.holding import HARD, Holding
from tenure.testing import Cluster

MAX = 20
MANY = (HARD + 4) * MAX
SETTINGS = tenure.NodeSettings(mailbox_messages_max=MAX, group_messages_max=10)


@tenure.job("credit-source")
class Source(tenure.Job):
    """Sends on what it gets."""

    to: str
    copies: int = 1
    sent: int = 0

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        for _ in range(self.copies):
            ctx.send(self.to, message)
        self.sent += 1


@tenure.job("credit-sink", topics=("credit-news",))
class Sink(tenure.Job):
    """Keeps what it gets."""

    seen: list[Any] = []

    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        self.seen.append(message)
        return len(self.seen)


@tenure.job("credit-ring")
class Ring(tenure.Job):
    """Sends on what it gets, so many times."""

    to: str
    copies: int = 1
    seen: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> None:
        self.seen += 1
        if message:
            for _ in range(self.copies):
                ctx.send(self.to, message - 1)


@pytest.fixture
async def cluster(in_virtual_time: None) -> AsyncIterator[Cluster]:
    async with Cluster(nodes=2, members=2, partitions=4, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[tenure.Client]:
    async with cluster.client() as client:
        yield client


async def feed(client: tenure.Client, to: str, count: int) -> None:
    for n in range(count):
        await client.publish(to, n, timeout_s=1000)


async def test_who_sends_to_a_full_job_waits_and_says_for_whom(
    client: tenure.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await client.schedule(Sink, id="sink")
    await client.schedule(Source, id="source", to="sink")
    await client.schedule(Source, id="other", to="source")
    await client.pause("sink")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed, client, "other", 200)
        await trio.sleep(30)
        sink, source, other = [await client.describe(id) for id in ("sink", "source", "other")]
        for job in (sink, source, other):
            assert MAX <= job["waiting"] <= 3 * MAX
        assert other["stuck"].startswith("waits: job 'source' takes no more for now: it waits: job 'sink' takes no")
        assert source["stuck"].startswith("waits: job 'sink' takes no more for now: it is paused, and ")
        assert "job 'source' waits: job 'sink' takes no more for now: it is paused" in capsys.readouterr().out
        await trio.sleep(300)
        assert (await client.describe("sink"))["waiting"] == sink["waiting"], "nothing seeps through"
        await client.resume("sink")
    await trio.sleep(5)
    assert (await client.state("sink")).seen == list(range(200))
    for id in ("source", "other"):
        assert (await client.describe(id))["stuck"] == ""
    assert await client.dead_letters() == []


async def test_what_waits_goes_on_under_new_owners(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Sink, id="sink")
    await client.schedule(Source, id="source", to="sink")
    await client.pause("sink")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed, client, "source", 100)
        await trio.sleep(10)
        for node in await cluster.nodes():
            await cluster.add_node()
            await cluster.kill(node)
            await trio.sleep(10)
        assert (await client.describe("sink"))["waiting"] <= 5 * MAX
        await client.resume("sink")
    await trio.sleep(20)
    assert (await client.state("sink")).seen == list(range(100))


async def test_jobs_that_send_to_each_other_in_a_circle_do_not_wait_for_ever(client: tenure.Client) -> None:
    for id, to in (("a", "b"), ("b", "c"), ("c", "a")):
        await client.schedule(Ring, id=id, to=to)
    for id in "abc":
        await client.pause(id)
    # Each gets more than it takes, from outside and from the one before.
    for id in "abc":
        await client.publish_many([(id, 30)] * (2 * MAX), timeout_s=5)
    for id in "abc":
        await client.resume(id)
    await trio.sleep(120)
    seen = [(await client.state(id)).seen for id in "abc"]
    assert sum(seen) == 3 * 2 * MAX * 31
    assert await client.dead_letters() == []


async def test_what_a_job_sends_itself_beyond_all_bounds_becomes_dead_letters(client: tenure.Client) -> None:
    await client.schedule(Ring, id="self", to="self", copies=3)
    await client.publish("self", 7)
    await trio.sleep(60)
    letters = await client.dead_letters()
    assert {letter["reason"] for letter in letters} == {"MailboxFull"}
    assert (await client.describe("self"))["waiting"] == 0
    while letters := await client.dead_letters():
        await client.replay(letters[: 10 * MAX])
        await trio.sleep(5)
    assert (await client.state("self")).seen == sum(3**n for n in range(8))


async def test_a_topics_subscriber_that_is_full_gets_dead_letters_and_stops_nobody(client: tenure.Client) -> None:
    await client.schedule(Sink, id="sink")
    await client.schedule(Sink, id="other")
    await trio.sleep(1)
    await client.pause("sink")
    for n in range(MANY):
        await client.publish(tenure.Topic("credit-news"), n, timeout_s=5)
    await trio.sleep(5)
    assert (await client.state("other")).seen == list(range(MANY))
    letters = await client.dead_letters()
    assert {(letter["to"], letter["reason"]) for letter in letters} == {("sink", "MailboxFull")}
    assert (await client.describe("sink"))["waiting"] + len(letters) == MANY
    await client.resume("sink")
    await trio.sleep(5)
    await client.replay(letters)
    await trio.sleep(5)
    assert (await client.state("sink")).seen == list(range(MANY))


async def test_broadcasts_to_a_job_that_is_full_become_dead_letters_too(client: tenure.Client) -> None:
    await client.schedule(Sink, id="sink")
    await client.pause("sink")
    for n in range(MANY):
        await client.broadcast(Sink, n, timeout_s=5)
    await trio.sleep(5)
    waiting, letters = (await client.describe("sink"))["waiting"], len(await client.dead_letters())
    assert waiting < HARD * MAX
    assert letters > 4 * MAX
    assert waiting + letters == MANY


async def test_a_job_that_waits_can_be_removed(client: tenure.Client) -> None:
    await client.schedule(Sink, id="sink")
    await client.schedule(Source, id="source", to="sink")
    await client.pause("sink")
    for n in range(2 * MAX):
        await client.publish("source", n, timeout_s=60)
    await trio.sleep(5)
    await client.unschedule("source", timeout_s=10)
    await client.resume("sink")
    await trio.sleep(5)
    assert (await client.state("sink")).seen == list(range(2 * MAX))


async def test_a_job_that_sends_what_is_refused_tries_one_from_time_to_time(in_virtual_time: None) -> None:
    settings = tenure.NodeSettings(dead_letters_max=MAX, group_messages_max=10)
    async with Cluster(nodes=1, partitions=4, settings=settings) as cluster, cluster.client() as client:
        await client.schedule(Ring, id="choosy", to="choosy")
        await client.schedule(Source, id="source", to="choosy")
        for n in range(100):
            await client.publish("source", "no number" if n < 90 else 0)
        await trio.sleep(300)
        assert MAX <= len(await client.dead_letters()) <= 3 * MAX
        assert "its messages become dead letters" in (await client.describe("source"))["stuck"]
        await client.discard(await client.dead_letters())
        for _ in range(5):
            await trio.sleep(60)
            await client.discard(await client.dead_letters())
        assert (await client.state("choosy")).seen == 10


async def test_a_job_that_sends_to_nobody_waits_when_there_are_too_many_dead_letters(in_virtual_time: None) -> None:
    settings = tenure.NodeSettings(dead_letters_max=MAX, group_messages_max=10)
    async with Cluster(nodes=1, partitions=4, settings=settings) as cluster, cluster.client() as client:
        await client.schedule(Source, id="source", to="nobody")
        for n in range(100):
            await client.publish("source", n)
        await trio.sleep(60)
        count = len(await client.dead_letters())
        assert MAX <= count <= 3 * MAX
        assert "its messages become dead letters" in (await client.describe("source"))["stuck"]
        await client.schedule(Sink, id="nobody")
        await trio.sleep(20)
        assert (await client.state("nobody")).seen == list(range(count, 100))


async def test_an_owner_that_never_answers_keeps_nobody_waiting(
    client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of an older version: amid an upgrade, what has waited for room may come to it."""
    await client.schedule(Sink, id="sink")
    await client.schedule(Source, id="source", to="sink")
    await client.pause("sink")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed, client, "source", 60)
        await trio.sleep(10)
        assert (await client.describe("source"))["stuck"]
        monkeypatch.setattr(Holding, "tell", lambda self: None)
        monkeypatch.setattr(Holding, "has_news", lambda self: False)
        await client.resume("sink")
        await trio.sleep(100)
        assert (await client.describe("source"))["stuck"] == ""
    await trio.sleep(5)
    assert (await client.state("sink")).seen == list(range(60))
