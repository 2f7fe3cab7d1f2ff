"""What fails harms nobody else, where its job type says so: questions, refusals, what is skipped or not tried again."""

from itertools import pairwise
from typing import Any

import pytest
import trio

import tenure
from tests.api.jobs import Counter


class OutOfStock(tenure.Reject):
    """A refusal of the application's own."""


@tenure.job("refusals-account")
class Account(tenure.Job):
    balance: int = 0
    tries: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        tries.append((message, trio.current_time()))
        self.balance += message
        ctx.send("audit", {"n": 1})
        if message == 13:
            raise tenure.Reject("not thirteen")
        if message == 14:
            raise OutOfStock
        if message < 0:
            raise ValueError("negative")
        return self.balance


@tenure.job("refusals-skipping", on_failure="skip", retry=tenure.Retry(attempts_max=3), topics=("numbers",))
class Skipping(Account):
    timeouts: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        if message == 99:
            ctx.wake_in(1)
        return super().on_message(ctx, message)

    def on_timeout(self, ctx: tenure.Context) -> None:
        raise RuntimeError("no timeouts here")


@tenure.job("refusals-hopeless", retry=tenure.Retry(not_on=(ValueError,)))
class Hopeless(Account):
    async def on_message(self, ctx: tenure.Context, message: int) -> int:
        async with trio.open_nursery():  # whose errors come in groups
            return super().on_message(ctx, message)


@tenure.job("refusals-async")
class Async(Account):
    async def on_message(self, ctx: tenure.Context, message: int) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._refuse)
        return 0

    async def _refuse(self) -> None:
        raise tenure.Reject("in a nursery")


@tenure.job("refusals-patient", retry=tenure.Retry(attempts_max=None, delay_max_s=10.0))
class Patient(Account):
    pass


tries: list[tuple[int, float]] = []


@pytest.fixture(autouse=True)
def calm() -> None:
    tries.clear()


async def letters(client: tenure.Client) -> list[tuple[Any, str, str]]:
    return [(letter["message"], letter["reason"], letter["detail"]) for letter in await client.dead_letters()]


async def test_a_question_that_fails_is_answered_and_its_job_goes_on(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Account, "a", {})])
    with pytest.raises(tenure.JobFailed, match="job 'a': ValueError: negative"):
        await client.ask("a", -1)
    assert await client.ask("a", 5, timeout_s=1) == 5
    found = await client.describe("a")
    assert (found["status"], found["failure"]) == ("running", None)
    assert len([n for n, _ in tries if n == -1]) == 5
    assert (await client.state("audit")).total == 1
    assert await letters(client) == []


@pytest.mark.parametrize(("message", "text"), [(13, "not thirteen"), (14, "job 'a' has rejected the message")])
async def test_a_refusal_answers_the_asker_and_changes_nothing(client: tenure.Client, message: int, text: str) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Account, "a", {})])
    assert await client.ask("a", 5) == 5
    tries.clear()
    with pytest.raises(tenure.Rejected) as caught:
        await client.ask("a", message)
    assert str(caught.value) == text
    assert await client.ask("a", 1) == 6
    assert [n for n, _ in tries] == [message, 1]
    assert await letters(client) == []
    assert (await client.state("audit")).total == 2


async def test_a_refusal_of_what_was_published_is_a_dead_letter(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Account, "a", {})])
    await client.publish_many([("a", 1), ("a", 13), ("a", 2)])
    await client.publish("a", 13, id="thirteen")
    assert (await client.state("a")).balance == 3
    assert await letters(client) == [(13, "Rejected", "not thirteen")] * 2
    assert await client.replay(await client.dead_letters()) == 2
    assert (await client.state("a")).balance == 3
    assert await letters(client) == [(13, "Rejected", "not thirteen")] * 2


async def test_a_refusal_in_a_nursery_is_one(client: tenure.Client) -> None:
    await client.schedule(Async, id="a")
    with pytest.raises(tenure.Rejected, match=r"^in a nursery$"):
        await client.ask("a", 1)


async def test_what_is_skipped_becomes_a_dead_letter_and_the_job_goes_on(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Skipping, "a", {})])
    await client.publish_many([("a", 1), ("a", -1), ("a", 2)])
    await trio.sleep(5)
    await client.publish(tenure.Topic("numbers"), -2)
    await client.publish("a", 99)
    await trio.sleep(20)
    found = await client.describe("a")
    assert (found["status"], found["failure"], found["waiting"]) == ("running", None, 0)
    assert (await client.state("a")).balance == 102
    why = "ValueError: negative"
    assert await letters(client) == [
        (-1, "JobFailed", why),
        (-2, "JobFailed", f"{why} (it came by topic 'numbers')"),
    ]
    assert [n for n, _ in tries].count(-1) == 3
    assert (await client.state("audit")).total == 3


async def test_skipping_keeps_what_came_by_a_topic(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Account, "a", {})])
    core: Any = client._home._value
    await core.broadcast("refusals-account", -3)
    await trio.sleep(1)
    assert await client.retry("a", skip=True)
    assert await letters(client) == [(-3, "Skipped", "ValueError: negative (it came to all jobs of its type)")]


async def test_what_is_not_to_be_tried_again_is_not(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Hopeless, "a", {})])
    with pytest.raises(tenure.JobFailed, match=r"^job 'a': ValueError: negative$"):
        await client.ask("a", -1)
    await client.publish("a", -2)
    await trio.sleep(1)
    found = await client.describe("a")
    assert (found["status"], found["failure"] and found["failure"]["attempts"]) == ("failed", 1)
    assert [n for n, _ in tries] == [-1, -2]


@pytest.mark.parametrize("type", [Account, Patient])
async def test_jobs_survive_what_lasts_for_minutes(client: tenure.Client, type: type[Account]) -> None:
    await client.schedule_many([(Counter, "audit", {}), (type, "a", {})])
    await client.publish("a", -1)
    await trio.sleep(300)
    assert (await client.describe("a"))["status"] == "running"
    assert [job["id"] for job in await client.jobs("state=retrying")] == ["a"]
    await trio.sleep(900)
    assert (await client.describe("a"))["status"] == ("failed" if type is Account else "running")
    assert [job["id"] for job in await client.jobs("state=retrying")] == ([] if type is Account else ["a"])
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(tries)]
    assert max(pauses) <= (67 if type is Account else 12)
    assert all(pause >= earliest for pause, earliest in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=False))
    assert len(set(pauses)) > 0.9 * len(pauses)  # no two need be the same


@pytest.mark.parametrize("type", [Account, Patient])
async def test_what_is_tried_again_does_not_keep_what_is_to_go(client: tenure.Client, type: type[Account]) -> None:
    await client.schedule_many([(Counter, "audit", {}), (type, "a", {})])
    await client.publish("a", -1)
    await trio.sleep(100)
    await client.unschedule("a", timeout_s=10)
    assert [job["id"] for job in await client.jobs()] == ["audit"]
    assert [message for message, *_ in await letters(client)] == [-1]


@pytest.mark.parametrize("not_on", [[ValueError], ValueError, ("ValueError",), (ValueError("x"),)])
def test_what_can_not_be_a_list_of_exceptions_is_refused(not_on: Any) -> None:
    with pytest.raises(tenure.Mistake, match=r"not_on is a tuple of exception classes, \(ValueError,\)"):
        tenure.Retry(not_on=not_on)


def test_what_can_not_be_done_on_failure_is_refused() -> None:
    with pytest.raises(tenure.Mistake, match='on_failure is "park" or "skip", not \'stop\''):
        tenure.job("refusals-odd", on_failure="stop")(type("Odd", (tenure.Job,), {}))  # type: ignore[arg-type]


# -- publishing within a turn -------------------------------------------------------------------------


@tenure.job("refusals-herald")
class Herald(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: str) -> None:
        ctx.publish(tenure.Topic("numbers") if message == "topic" else message, 7)


@tenure.job("refusals-odd-herald")
class OddHerald(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> None:
        ctx.publish(Account, 7)  # type: ignore[arg-type]


async def test_a_turn_publishes_to_jobs_and_topics_as_clients_do(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "audit", {}), (Herald, "h", {}), (Skipping, "a", {}), (Account, "b", {})])
    await trio.sleep(1)
    for to in ("topic", "a", "b", "nobody", "numbers"):
        await client.ask("h", to)
    await trio.sleep(1)
    assert ((await client.state("a")).balance, (await client.state("b")).balance) == (14, 7)
    found = {letter["to"]: letter["detail"] for letter in await client.dead_letters()}
    assert found == {
        "nobody": "there is no job of this id",
        "numbers": "there is no job of this id; there is a topic of this name, whose subscribers get what is published "
        "to Topic('numbers')",
    }


async def test_a_turn_that_publishes_to_something_else_is_told(client: tenure.Client) -> None:
    await client.schedule(OddHerald, id="h")
    with pytest.raises(tenure.JobFailed, match=r"ctx.publish takes a job's id or a tenure.Topic, not .*broadcast"):
        await client.ask("h", "x")
