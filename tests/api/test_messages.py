"""Publishing, asking, topics, broadcasts: what arrives, and what is refused."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step


@tenure.job("api-reader", topics=("news",))
class Reader(tenure.Job):
    """Keeps what it reads, and how it came."""

    read: list[Any] = []

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        self.read.append([message, ctx.message.topic])


async def read_by(client: tenure.Client, id: str) -> list[Any]:
    await trio.sleep(1)
    read: list[Any] = (await client.state(id)).read
    return read


async def test_messages_come_in_the_order_they_were_sent(client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks")
    await client.publish_many([("clicks", {"n": n}) for n in range(1000)])
    for n in range(1000, 1010):
        await client.publish("clicks", {"n": n})
    assert (await client.state("clicks")).seen == list(range(1010))


async def test_a_repeated_id_has_no_effect(client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks")
    for _ in range(3):
        await client.publish("clicks", {"n": 5}, id="order-17")
    await client.publish_many([("clicks", {"n": 1}), ("clicks", {"n": 5})], ids=["order-18", "order-17"])
    assert (await client.state("clicks")).total == 6
    assert await client.ask("clicks", {"n": 2}, id="order-19") == 8
    await client.publish("clicks", {"n": 1})
    assert await client.ask("clicks", {"n": 2}, id="order-19") == 8
    with pytest.raises(tenure.Mistake, match="2 messages and 1 ids"):
        await client.publish_many([("clicks", {"n": 1}), ("clicks", {"n": 5})], ids=["order-20"])


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"n": "one"}, r"api-counter.*takes Amount.*Expected `int`, got `str` - at `\$.n`"),
        ({}, "missing required field `n`"),
        ([1], "Expected `object`, got `array`"),
    ],
)
async def test_a_wrong_type_is_refused_at_the_publisher(client: tenure.Client, message: Any, path: str) -> None:
    await client.schedule(Counter, id="clicks")
    with pytest.raises(tenure.WrongType, match=path):
        await client.publish("clicks", message)
    with pytest.raises(tenure.WrongType, match=path):
        await client.ask("clicks", message)
    with pytest.raises(tenure.WrongType, match=path):
        await client.publish_many([("clicks", {"n": 1}), ("clicks", message)])
    assert (await client.state("clicks")).total == 0


async def test_a_wrong_type_from_one_who_does_not_know_it_is_a_dead_letter(
    cluster: Cluster, client: tenure.Client
) -> None:
    await client.schedule(Counter, id="clicks")
    async with cluster.client(registry=tenure.Registry()) as stranger:
        await stranger.publish("clicks", {"n": "one"})
        with pytest.raises(tenure.WrongType, match=r"\$\.n"):
            await stranger.ask("clicks", {"n": "two"})
    assert await client.ask("clicks", {"n": 1}) == 1
    letters = await client.dead_letters()
    assert [(letter["to"], letter["message"], letter["reason"]) for letter in letters] == [
        ("clicks", {"n": "one"}, "WrongType"),
        ("clicks", {"n": "two"}, "WrongType"),
    ]


async def test_what_can_not_be_stored_is_refused(client: tenure.Client) -> None:
    await client.schedule(Script, id="s")
    with pytest.raises(tenure.WrongType, match=r"message 0 to 's' can't be stored: .*object"):
        await client.publish("s", object())
    with pytest.raises(tenure.WrongType, match="can't be stored"):
        await client.ask("s", 2**70)


async def test_an_oversize_message_is_refused_at_the_publisher(client: tenure.Client) -> None:
    await client.schedule(Reader, id="r")
    with pytest.raises(tenure.TooLarge, match=r"has 1048\d+ bytes; the limit is 1048576"):
        await client.publish("r", "x" * 2**20)
    with pytest.raises(tenure.TooLarge):
        await client.ask("r", "x" * 2**20)
    with pytest.raises(tenure.TooLarge):
        await client.schedule(Reader, id="r2", read=["x" * 2**20])
    assert await read_by(client, "r") == []


@pytest.mark.parametrize("to", ["", 5, None, "x" * 501, tenure.Topic("")])
async def test_a_bad_address_is_refused(client: tenure.Client, to: Any) -> None:
    with pytest.raises(tenure.Mistake, match="address"):
        await client.publish(to, 1)


@pytest.mark.parametrize("pairs", ["ab", [("a",)], [("a", 1, 2)], [5], [({}, 1)], [(["a"], 1)]])
async def test_what_are_no_pairs_is_refused(client: tenure.Client, pairs: Any) -> None:
    with pytest.raises(tenure.Mistake):
        await client.publish_many(pairs)


async def test_a_message_to_nobody_is_a_dead_letter(client: tenure.Client) -> None:
    await client.publish("nobody", {"n": 1})
    with pytest.raises(tenure.UnknownJob, match="nobody"):
        await client.ask("nobody", {"n": 2})
    letters = await client.dead_letters()
    assert [(letter["message"], letter["reason"]) for letter in letters] == [
        ({"n": 1}, "UnknownJob"),
        ({"n": 2}, "UnknownJob"),
    ]


async def test_dead_letters_can_be_replayed_or_discarded(client: tenure.Client) -> None:
    await client.publish_many([("later", {"n": 1}), ("later", {"n": 2}), ("never", {"n": 3})])
    await trio.sleep(1)
    letters = await client.dead_letters()
    await client.schedule(Counter, id="later")
    assert await client.replay(letter for letter in letters if letter["to"] == "later") == 2
    assert (await client.state("later")).seen == [1, 2]
    [left] = await client.dead_letters()
    assert left["to"] == "never"
    assert await client.discard([left]) == 1
    assert await client.discard(letters) == 0
    assert await client.dead_letters() == []


async def test_a_topic_reaches_every_subscriber(client: tenure.Client) -> None:
    await client.schedule_many([(Reader, f"r{n}", {}) for n in range(20)])
    await client.schedule(Counter, id="clicks")
    await client.state("clicks")
    await trio.sleep(1)
    assert await client.topics() == {"news": 20}
    await client.publish(tenure.Topic("news"), "one")
    await client.publish_many([(tenure.Topic("news"), "two"), ("r3", "hello"), (tenure.Topic("nobody's"), "x")])
    for _ in range(2):
        await client.publish(tenure.Topic("news"), "three", id="t-3")
    for n in range(20):
        read = await read_by(client, f"r{n}")
        assert [message for message, topic in read if topic == "news"] == ["one", "two", "three"]
    assert ["hello", ""] in await read_by(client, "r3")
    await client.unschedule("r3")
    await trio.sleep(1)
    assert await client.topics() == {"news": 19}


async def test_jobs_subscribe_and_publish_themselves(client: tenure.Client) -> None:
    await client.schedule_many([(Script, "pub", {}), (Script, "sub", {})])
    heard = step(lambda job, ctx: job.log.append("heard"))
    await client.ask("sub", step(lambda job, ctx: ctx.subscribe("tips")))
    await trio.sleep(1)
    await client.ask("pub", step(lambda job, ctx: ctx.publish(tenure.Topic("tips"), heard)))
    await client.ask("pub", step(lambda job, ctx: ctx.send("sub", heard)))
    await trio.sleep(1)
    assert (await client.state("sub")).log == ["started", "heard", "heard"]
    await client.ask("sub", step(lambda job, ctx: ctx.unsubscribe("tips")))
    await trio.sleep(1)
    await client.ask("pub", step(lambda job, ctx: ctx.publish(tenure.Topic("tips"), heard)))
    assert (await client.state("sub")).log == ["started", "heard", "heard"]


async def test_a_broadcast_reaches_all_jobs_of_a_type(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(50)])
    await client.schedule(Reader, id="r")
    await client.broadcast(Counter, {"n": 2})
    for _ in range(2):
        await client.broadcast("api-counter", {"n": 3}, id="b-1")
    await trio.sleep(1)
    for n in range(50):
        assert (await client.state(f"c{n}")).seen == [2, 3]
    assert await read_by(client, "r") == []
    with pytest.raises(tenure.WrongType, match=r"all of api-counter.*\$\.n"):
        await client.broadcast(Counter, {"n": "x"})
    with pytest.raises(tenure.UnknownJobType):
        await client.broadcast(int, 1)


async def test_backlogged_lists_what_is_not_known_to_be_stored(cluster: Cluster) -> None:
    settings = tenure.ClientSettings(window_slots=2, batch_messages_max=10)
    async with cluster.client(settings=settings) as client:
        await client.schedule(Counter, id="clicks")
        await client.state("clicks")
        for node in await cluster.nodes():
            await cluster.kill(node)
        messages = [("clicks", {"n": n}) for n in range(100)]
        with pytest.raises(tenure.Backlogged, match="of 100 messages are not known to be stored after 3") as caught:
            await client.publish_many(messages, timeout_s=3)
        unstored = caught.value.unstored
        assert unstored == messages[-len(unstored) :]
        assert 0 < len(unstored) < 100
        await cluster.add_node()
        stored = 100 - len(unstored)
        await client.publish_many(unstored)
        assert (await client.state("clicks")).seen == list(range(stored)) + list(range(stored, 100))


async def test_a_question_that_nobody_answers(cluster: Cluster, client: tenure.Client) -> None:
    for node in await cluster.nodes():
        await cluster.kill(node)
    with pytest.raises(tenure.NotDone, match="no answer from 'clicks' within 3 s; its turn may still run"):
        await client.ask("clicks", {"n": 1}, timeout_s=3)


async def test_an_answer_that_can_not_be_stored_fails_the_turn(client: tenure.Client) -> None:
    await client.schedule(Script, id="s")
    with pytest.raises(tenure.JobFailed, match=r"WrongType.*can't be an answer"):
        await client.ask("s", step(lambda job, ctx: object()))


async def test_a_closed_client_says_so(cluster: Cluster) -> None:
    async with cluster.client() as client:
        pass
    with pytest.raises(tenure.ClientClosed):
        await client.publish("clicks", 1)
    with pytest.raises(tenure.ClientClosed):
        await cluster.client().jobs()
