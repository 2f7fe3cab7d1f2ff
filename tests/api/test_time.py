"""Timers, cron, misfires: on the clocks of a testing cluster."""

from datetime import UTC, datetime, timedelta

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Script, step

MONDAY = datetime(2025, 3, 24, 8, 0, tzinfo=UTC)


@tenure.job("api-skipper", misfire="skip")
class Skipper(Script):
    """Forgets what it missed."""


@tenure.job("api-catcher", misfire="catch_up")
class Catcher(Script):
    """Does all that it missed."""


async def wakes(client: tenure.Client, id: str) -> list[str]:
    log = (await client.state(id)).log
    return [entry[1] for entry in log if isinstance(entry, list)]


async def test_wake_in(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Script, id="t")
    await client.ask("t", step(lambda job, ctx: ctx.wake_in(60)))
    due = await cluster.now() + timedelta(seconds=60)
    await trio.sleep(59)
    assert await wakes(client, "t") == []
    await trio.sleep(3)
    [woken] = await wakes(client, "t")
    assert due <= datetime.fromisoformat(woken) + timedelta(milliseconds=100) < due + timedelta(seconds=1.1)


@pytest.mark.tenure(start=MONDAY)
async def test_wake_at(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Script, id="t")
    await client.ask("t", step(lambda job, ctx: ctx.wake_at(MONDAY + timedelta(days=3))))
    await cluster.advance(3 * 86_400 - 10)
    assert await wakes(client, "t") == []
    await cluster.advance(10)
    [woken] = await wakes(client, "t")
    assert datetime.fromisoformat(woken) - MONDAY - timedelta(days=3) < timedelta(seconds=1)


@pytest.mark.tenure(start=MONDAY)
async def test_cron_follows_its_own_clock_through_a_change_of_time(cluster: Cluster, client: tenure.Client) -> None:
    """Summer time begins in Paris on Sunday, 30 March: nine o'clock comes an hour earlier by UTC."""
    await client.schedule(Script, id="t")
    await client.ask("t", step(lambda job, ctx: ctx.cron("0 9 * * *", tz="Europe/Paris")))
    await cluster.advance(7 * 86_400)
    hours = [datetime.fromisoformat(woken).hour for woken in await wakes(client, "t")]
    assert hours == [8, 8, 8, 8, 8, 7, 7]


@pytest.mark.tenure(start=datetime(2025, 10, 25, 12, 0, tzinfo=UTC))
async def test_a_cron_in_an_hour_that_comes_twice_rings_once(cluster: Cluster, client: tenure.Client) -> None:
    """Summer time ends in Paris on Sunday, 26 October: what is half past two comes at 00:30 and at 01:30 by UTC."""
    cron = step(lambda job, ctx: ctx.cron("30 2 * * *", tz="Europe/Paris"))
    await client.schedule_many([(Script, "before", {}), (Script, "between", {})])
    await client.ask("before", cron)
    await cluster.advance(13 * 3600 + 600)
    await client.ask("between", cron)
    await cluster.advance(2 * 86_400)
    for id, due in (("before", ["26 00:30", "27 01:30"]), ("between", ["27 01:30"])):
        assert [f"{datetime.fromisoformat(woken):%d %H:%M}" for woken in await wakes(client, id)] == due


@pytest.mark.tenure(start=MONDAY)
async def test_a_cron_and_a_wake_go_side_by_side(cluster: Cluster, client: tenure.Client) -> None:
    def both(job: Script, ctx: tenure.Context) -> None:
        ctx.cron("30 * * * *")
        ctx.wake_in(3600)

    await client.schedule(Script, id="t")
    await client.ask("t", step(both))
    await cluster.advance(2 * 3600)
    log = (await client.state("t")).log
    assert [entry[0] for entry in log[1:]] == ["cron", "timeout", "cron"]
    await client.ask("t", step(lambda job, ctx: ctx.cancel_wake()))
    await cluster.advance(86_400)
    assert (await client.state("t")).log == log


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda job, ctx: ctx.wake_at(datetime(2030, 1, 1)), "has no time zone"),
        (lambda job, ctx: ctx.wake_in(-1), "a delay is a number of seconds from 0"),
        (lambda job, ctx: ctx.wake_in(float("nan")), "a delay is a number of seconds from 0"),
        (lambda job, ctx: ctx.wake_at("tomorrow"), "a time is a datetime"),
        (lambda job, ctx: ctx.cron("every day"), "'every day' is no cron expression"),
        (lambda job, ctx: ctx.cron("0 0 30 2 *"), "'0 0 30 2 \\*' "),
        (lambda job, ctx: ctx.cron("* * * * *", tz="Mars/Olympus"), "no time zone 'Mars/Olympus'"),
    ],
)
async def test_a_time_that_can_not_be_is_refused_by_name(client: tenure.Client, wrong: object, words: str) -> None:
    await client.schedule(Script, id="t")
    with pytest.raises(tenure.JobFailed, match=f"BadSchedule: .*{words}"):
        await client.ask("t", step(wrong))  # type: ignore[arg-type]
    assert (await client.describe("t"))["timer"] is None


@pytest.mark.tenure(nodes=1, start=MONDAY)
@pytest.mark.parametrize(("job_type", "missed"), [(Script, 1), (Skipper, 0), (Catcher, 5)])
async def test_what_nobody_could_fire_in_time(
    cluster: Cluster, client: tenure.Client, job_type: type[Script], missed: int
) -> None:
    await client.schedule(job_type, id="t")
    await client.ask("t", step(lambda job, ctx: ctx.cron("0 * * * *")))
    await cluster.kill(0)
    await cluster.advance(5 * 3600 + 60)
    await cluster.add_node()
    await trio.sleep(2)
    assert len(await wakes(client, "t")) == missed
    await cluster.advance(3600)
    assert len(await wakes(client, "t")) == missed + 1


async def test_timers_outlive_their_node(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Script, f"t{n}", {}) for n in range(8)])
    wake = step(lambda job, ctx: ctx.wake_in(10))
    for n in range(8):
        await client.ask(f"t{n}", wake)
    await cluster.kill(0)
    await trio.sleep(15)
    for n in range(8):
        assert len(await wakes(client, f"t{n}")) == 1


async def test_a_paused_job_wakes_when_it_is_resumed(client: tenure.Client) -> None:
    await client.schedule(Script, id="t")
    await client.ask("t", step(lambda job, ctx: ctx.wake_in(10)))
    await client.pause("t")
    await trio.sleep(30)
    assert await wakes(client, "t") == []
    await client.resume("t")
    await trio.sleep(2)
    assert len(await wakes(client, "t")) == 1
