"""Making jobs, looking at them, removing them."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step, stopped, tally


async def test_a_job_counts(client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks", total=10)
    await client.publish("clicks", {"n": 1})
    assert await client.ask("clicks", {"n": 2}) == 13
    state = await client.state("clicks")
    assert isinstance(state, Counter)
    assert (state.total, state.seen) == (13, [1, 2])


async def test_the_same_definition_again_is_fine(client: tenure.Client) -> None:
    for _ in range(2):
        await client.schedule(Counter, id="clicks", total=10)
    assert await client.ask("clicks", {"n": 1}) == 11


@pytest.mark.parametrize(("other", "parameters"), [(Counter, {"total": 11}), (Script, {}), (Counter, {})])
async def test_another_definition_under_the_same_id_is_refused(
    client: tenure.Client, other: type[tenure.Job], parameters: dict[str, int]
) -> None:
    await client.schedule(Counter, id="clicks", total=10)
    with pytest.raises(tenure.DuplicateJob, match=r"clicks.*api-counter.*10"):
        await client.schedule(other, id="clicks", **parameters)
    assert await client.ask("clicks", {"n": 1}) == 11


async def test_jobs_do_not_share_their_default_lists_and_dicts(client: tenure.Client) -> None:
    await client.schedule_many([(Counter, "a", {}), (Counter, "b", {})])
    await client.publish_many([("a", {"n": 1}), ("b", {"n": 2})])
    a, b = await client.state("a"), await client.state("b")
    assert (a.seen, a.labels) == ([1], {"1": 1})
    assert (b.seen, b.labels) == ([2], {"2": 2})


async def test_a_function_is_a_job_with_a_dict_for_a_state(client: tenure.Client) -> None:
    await client.schedule(tally, id="votes", total=1)
    assert await client.ask("votes", {"n": 2}) == 3
    assert await client.state("votes") == {"total": 3}


async def test_types_are_named_by_class_or_by_name(client: tenure.Client) -> None:
    await client.schedule("api-counter", id="clicks", total=1)
    await client.schedule(Counter, id="clicks", total=1)


async def test_an_unknown_type_is_refused(client: tenure.Client) -> None:
    class Unregistered(tenure.Job):
        pass

    with pytest.raises(tenure.UnknownJobType, match=r"no job type 'nonesuch' .*known: .*api-counter"):
        await client.schedule("nonesuch", id="x")
    with pytest.raises(tenure.UnknownJobType, match=r"Unregistered.*is not registered: put @tenure.job"):
        await client.schedule(Unregistered, id="x")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"total": "ten"}, r"Expected `int`, got `str` - at `\$.total`"), ({"totl": 1}, "no field totl")],
)
async def test_wrong_parameters_are_refused(client: tenure.Client, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(tenure.WrongType, match=words):
        await client.schedule(Counter, id="clicks", **parameters)
    with pytest.raises(tenure.UnknownJob):
        await client.state("clicks")


@pytest.mark.parametrize("id", ["", "x" * 501, 7, None, "\ud800"])
async def test_a_bad_id_is_refused(client: tenure.Client, id: str) -> None:
    with pytest.raises(tenure.Mistake, match="id"):
        await client.schedule(Counter, id=id)
    with pytest.raises(tenure.Mistake):
        await client.ask(id, {"n": 1})


async def test_many_at_once(client: tenure.Client) -> None:
    await client.schedule_many((Counter, f"job-{n}", {"total": n}) for n in range(200))
    assert [job["id"] for job in await client.jobs()] == sorted(f"job-{n}" for n in range(200))
    assert await client.ask("job-150", {"n": 1}) == 151


async def test_many_of_which_some_are_refused(client: tenure.Client) -> None:
    await client.schedule(Counter, id="b", total=7)
    with pytest.raises(tenure.DuplicateJob) as caught:
        await client.schedule_many([(Counter, "a", {}), (Counter, "b", {}), (Counter, "c", {"total": "x"})])
    assert caught.value.__notes__ == ["2 of 3 jobs could not be scheduled; the others were"]
    assert await client.ask("a", {"n": 1}) == 1
    with pytest.raises(tenure.Mistake, match="tuples of a job type, an id and a dict"):
        await client.schedule_many([("d", Counter, {})[:2]])  # type: ignore[list-item]


async def test_removal_stops_the_job_and_its_id_can_be_used_again(client: tenure.Client) -> None:
    await client.schedule(Script, id="r-1")
    await client.publish("r-1", step(lambda job, ctx: job.log.append("late")))
    await client.unschedule("r-1")
    assert stopped[-1] == ("r-1", ["started", "late"])
    with pytest.raises(tenure.UnknownJob):
        await client.state("r-1")
    with pytest.raises(tenure.UnknownJob):
        await client.ask("r-1", "x")
    assert await client.jobs() == []
    await client.schedule(Counter, id="r-1", total=5)
    assert await client.ask("r-1", {"n": 1}) == 6
    assert (await client.describe("r-1"))["generation"] == 2


async def test_removing_what_is_not_there(client: tenure.Client) -> None:
    with pytest.raises(tenure.UnknownJob, match="nobody"):
        await client.unschedule("nobody")
    await client.unschedule("nobody", missing_ok=True)
    await client.schedule(Counter, id="somebody")
    for _ in range(2):
        await client.unschedule("somebody")


async def test_a_job_can_end_itself(client: tenure.Client) -> None:
    await client.schedule(Script, id="f-1")
    await client.ask("f-1", step(lambda job, ctx: ctx.finish()))
    await trio.sleep(5)
    assert stopped[-1] == ("f-1", ["started"])
    with pytest.raises(tenure.UnknownJob):
        await client.state("f-1")
    await client.schedule(Script, id="f-1")
    assert (await client.state("f-1")).log == ["started"]


async def test_pause_holds_messages_until_resume(client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks")
    await client.state("clicks")
    await client.pause("clicks")
    await client.publish("clicks", {"n": 1})
    with pytest.raises(tenure.JobPaused):
        await client.ask("clicks", {"n": 10}, timeout_s=5)
    await client.publish("clicks", {"n": 1})
    assert (await client.state("clicks")).total == 0
    description = await client.describe("clicks")
    assert (description["status"], description["waiting"]) == ("paused", 2)
    await client.resume("clicks")
    assert (await client.state("clicks")).total == 2
    assert (await client.describe("clicks"))["status"] == "running"


@pytest.mark.parametrize("method", ["pause", "resume", "cancel", "retry", "describe", "state"])
async def test_there_is_no_such_job(client: tenure.Client, method: str) -> None:
    with pytest.raises(tenure.UnknownJob, match="nobody"):
        await getattr(client, method)("nobody")


async def test_cancel_ends_the_running_turn_and_pauses(client: tenure.Client) -> None:
    tries = []

    async def slow(job: Script, ctx: tenure.Context) -> None:
        job.log.append("slow")
        tries.append(ctx.attempt)
        if len(tries) == 1:
            await trio.sleep_forever()

    await client.schedule(Script, id="c-1")
    await client.publish("c-1", step(slow))
    await trio.sleep(1)
    assert (await client.describe("c-1"))["running"]
    await client.cancel("c-1")
    description = await client.describe("c-1")
    assert (description["status"], description["running"], description["waiting"]) == ("paused", False, 1)
    assert description["state"] == {"log": ["started"]}
    await client.resume("c-1")
    assert (await client.state("c-1")).log == ["started", "slow"]
    assert len(tries) == 2


async def test_describe_tells_all(client: tenure.Client) -> None:
    def work(job: Script, ctx: tenure.Context) -> None:
        ctx.progress(3, 10)
        ctx.subscribe("news")
        ctx.wake_in(3600)

    await client.schedule(Script, id="d-1")
    await client.ask("d-1", step(work))
    description = await client.describe("d-1")
    assert description["type"] == "api-script"
    assert description["progress"] == [3, 10]
    assert description["topics"] == ["news"]
    assert description["turns"] == 2
    assert description["timer"] is not None
    assert description["due_ms"] == description["timer"]["due_ms"] > 0


async def test_a_state_of_a_class_unknown_here_is_a_dict(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks", total=3)
    async with cluster.client(registry=tenure.Registry()) as stranger:
        assert await stranger.state("clicks") == {"total": 3, "seen": [], "labels": {}}
        with pytest.raises(tenure.UnknownJobType):
            await stranger.schedule("api-counter", id="more")


async def test_nodes_and_partitions(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="clicks")
    await client.state("clicks")
    nodes = await client.nodes()
    assert [node.name for node in nodes] == ["node-0", "node-1"]
    partitions = await client.partitions()
    assert [partition["partition"] for partition in partitions] == list(range(16))
    assert {partition["node"] for partition in partitions} == {"node-0", "node-1"}
    assert sum(partition["jobs"] for partition in partitions) == 1


async def test_a_job_can_be_described_as_soon_as_it_is_scheduled(client: tenure.Client) -> None:
    for n in range(20):
        await client.schedule(Counter, id=f"new-{n}")
        assert (await client.describe(f"new-{n}"))["type"] == "api-counter"
    with pytest.raises(tenure.UnknownJob):
        await client.describe("nonesuch")
