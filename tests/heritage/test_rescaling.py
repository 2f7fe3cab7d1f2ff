"""The contract of rescaling by interrogate, collect, acquire; and what that left open (see docs/heritage.md).

There, sources that create keys without end never let a rescale finish. Here partitions move, with whatever keys they
happen to have.
"""

from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

import trio

import tenure
from tenure.testing import Cluster

SOURCES, KEYS_AT_ONCE = 3, 10
PARTITIONS = 16
WITHIN_S = 30.0
"""A rescale takes no longer, however many keys come meanwhile. In virtual time: what is measured is waiting."""


class Seen:
    """What an observer outside of the cluster sees of each key's turns, in the order in which they happen."""

    fences: dict[str, list[int]] = defaultdict(list)
    owners: dict[str, set[int]] = defaultdict(set)


@tenure.job("heritage-key")
class Key(tenure.Job):
    """The state of one key: all that came for it, in order."""

    seen: list[int] = []

    def on_message(self, ctx: tenure.Context, message: int) -> None:
        Seen.fences[ctx.id].append(ctx.fence)
        self.seen.append(message)


CHAT = {f"chat-{number}": [(f"sender-{n * 7 % 5}", f"{number}: {n}") for n in range(60)] for number in range(4)}
"""A topic's partitions, each with its messages: who sent what."""


@tenure.job("heritage-chat-reader")
class Reader(tenure.Job):
    """Reads one partition of a topic; keyed by topic and partition. Where it is moved, the reading goes on."""

    position: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(0.1)

    def on_timeout(self, ctx: tenure.Context) -> None:
        Seen.owners[ctx.id].add(ctx.fence >> 32)
        sender, text = CHAT[ctx.id][self.position]
        ctx.send(sender, text)  # keyed anew, by the sender
        self.position += 1
        if self.position < len(CHAT[ctx.id]):
            ctx.wake_in(0.1)


@tenure.job("heritage-chat-history")
class History(tenure.Job):
    """What one sender has said."""

    said: list[str] = []

    def on_message(self, ctx: tenure.Context, message: str) -> None:
        Seen.owners[ctx.id].add(ctx.fence >> 32)
        self.said.append(message)


class Source:
    """Creates keys without end, and goes on sending to the latest of them."""

    def __init__(self, client: tenure.Client, number: int) -> None:
        self.client, self.number = client, number
        self.sent: dict[str, int] = {}
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            id = f"key-{self.number}-{len(self.sent)}"
            await self.client.schedule(Key, id=id)
            self.sent[id] = 0
            await self.client.publish_many([(key, self._next(key)) for key in list(self.sent)[-KEYS_AT_ONCE:]])
            await trio.sleep(0.02)

    def _next(self, key: str) -> int:
        self.sent[key] += 1
        return self.sent[key]


def keys(sources: list[Source]) -> int:
    return sum(len(source.sent) for source in sources)


async def ends(rescale: Awaitable[Any], sources: list[Source]) -> None:
    """It does, while keys are being created."""
    before = keys(sources)
    with trio.fail_after(WITHIN_S):
        await rescale
    await trio.sleep(1)
    assert keys(sources) > before


async def owners(client: tenure.Client) -> dict[str, set[int]]:
    """Each node with its partitions."""
    found: dict[str, set[int]] = defaultdict(set)
    for partition in await client.partitions():
        found[partition["node"]].add(partition["partition"])
    return dict(found)


async def test_rescaling_ends_while_sources_create_keys_without_end(autojump_clock: Any) -> None:
    Seen.fences.clear()
    async with Cluster(nodes=1, members=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        sources = [Source(client, number) for number in range(SOURCES)]
        async with trio.open_nursery() as nursery:
            for source in sources:
                nursery.start_soon(source.run)
            await trio.sleep(1)
            assert set(await owners(client)) == {"node-0"}

            await ends(cluster.add_node(), sources)  # out
            await ends(cluster.add_node(), sources)
            await ends(cluster.add_member(), sources)
            await trio.sleep(3)
            assert set(await owners(client)) == {"node-0", "node-1", "node-2"}

            await ends(cluster.drain(0), sources)  # and in
            await ends(cluster.drain(2), sources)
            await ends(cluster.remove_member(0), sources)
            await trio.sleep(3)
            found = await owners(client)
            for source in sources:
                source.stopped = True
        assert found == {"node-1": set(range(PARTITIONS))}

        sent = {key: count for source in sources for key, count in source.sent.items()}
        states = {key: (await client.state(key)).seen for key in list(sent)}
        jobs = await client.jobs()
        # No key's state is left behind: each is there, once, where its partition is, with all that came for it.
        assert sorted(job["id"] for job in jobs) == sorted(sent)
        assert {job["node"] for job in jobs} == {"node-1"}
        # One key's messages stay in the order in which they were sent.
        assert {key: seen for key, seen in states.items() if seen != list(range(1, sent[key] + 1))} == {}
        # Each key had one owner at each moment: what an owner does after its successor would have a lower fence.
        assert set(Seen.fences) == {key for key, count in sent.items() if count}
        assert [key for key, fences in Seen.fences.items() if fences != sorted(set(fences))] == []
        epochs = {key: {fence >> 32 for fence in fences} for key, fences in Seen.fences.items()}
        assert max(len(found) for found in epochs.values()) > 1, "no key was used on both sides of a handoff"
        assert len(sent) > 300


async def test_a_history_per_sender_of_a_topic_that_is_read_by_partition(autojump_clock: Any) -> None:
    """The example of the notes: sources with state of their own, whose messages are keyed anew, rescaled on the way."""
    Seen.owners.clear()
    senders = sorted({sender for messages in CHAT.values() for sender, _ in messages})
    async with Cluster(nodes=1, members=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        for sender in senders:
            await client.schedule(History, id=sender)
        for id in CHAT:
            await client.schedule(Reader, id=id)
        await trio.sleep(1)
        await cluster.add_node()
        await trio.sleep(1)
        await cluster.drain(0)
        await trio.sleep(10)
        for sender in senders:
            said = (await client.state(sender)).said
            for number, messages in enumerate(CHAT.values()):
                expected = [text for other, text in messages if other == sender]
                assert [text for text in said if text.startswith(f"{number}:")] == expected
        for jobs in (CHAT, senders):
            assert any(len(Seen.owners[id]) > 1 for id in jobs), "nothing that was at work has moved"
