"""Code as users write it: never run, type-checked by `test_types`. What must be an error says so with an ignore."""

from datetime import UTC, datetime
from typing import Any, assert_type

import msgspec

import tenure
import tenure.testing


class Click(msgspec.Struct):
    n: int


@tenure.job("typed-counter", version=2, topics=("news",), retry=tenure.Retry(attempts_max=3), misfire="skip")
class Counter(tenure.Job):
    total: int = 0
    last: list[int] = []

    async def on_start(self, ctx: tenure.Context) -> None:
        ctx.wake_in(60)
        ctx.wake_at(datetime.now(UTC))
        ctx.cron("0 9 * * mon", tz="Europe/Paris")

    async def on_message(self, ctx: tenure.Context, message: Click) -> int:
        self.total += message.n
        ctx.send("audit", {"total": self.total})
        ctx.publish("audit", message)
        ctx.publish(tenure.Topic("news"), message)
        ctx.progress(1, 2)
        assert_type(ctx.fence, int)
        assert_type(ctx.turn_id, str)
        assert_type(ctx.message.id, str)
        receipt = await ctx.once("charge", lambda: "receipt")
        ctx.log.info("charged", receipt=receipt)
        return self.total

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.total = self.totl  # type: ignore[attr-defined]

    async def on_stop(self, ctx: tenure.Context) -> None: ...

    async def on_resume(self, ctx: tenure.Context) -> None: ...

    @staticmethod
    def upgrade(state: dict[str, Any], version: int) -> dict[str, Any]:
        return state


@tenure.job("typed-special")
class Special(Counter):
    """Handlers may be inherited, and changed."""

    extra: str = ""

    async def on_message(self, ctx: tenure.Context, message: Click) -> int:
        return await super().on_message(ctx, message) + 1


@tenure.job("typed-importer")
class Importer(tenure.Job):
    rows: int = 0

    def on_start(self, ctx: tenure.Context) -> None:
        assert_type(ctx.start_activity("load", {"argv": ["load"]}, timeout_s=60, retry=tenure.Retry()), str)
        assert_type(ctx.cancel_activity("load"), bool)
        assert_type(ctx.activities, dict[str, str])

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        assert_type(event.has_ended, bool)
        if event.status == "sucseeded":  # type: ignore[comparison-overlap]
            self.rows = event.result["rows"]


@tenure.job("typed-function", blocking=True)
def tally(ctx: tenure.Context, message: dict[str, int]) -> int:
    ctx.state["total"] = message["n"]
    return message["n"]


assert_type(Counter(total=1).total, int)
Counter(total="one")  # type: ignore[arg-type]
tenure.job("typed-wrong", misfire="never")  # type: ignore[arg-type]


async def use() -> None:
    async with tenure.Client("a:1", settings=tenure.ClientSettings(ask_deadline_s=5)) as client:
        assert_type(client, tenure.Client)
        await client.schedule(Counter, id="clicks", total=10, timeout_s=5)
        await client.schedule(tally, id="votes")
        await client.schedule("typed-counter", id="more")
        await client.schedule_many([(Counter, "a", {"total": 1}), (tally, "b", {}), ("typed-counter", "c", {})])
        await client.publish("clicks", {"n": 1}, id="order-17")
        await client.publish(tenure.Topic("news"), Click(1))
        await client.publish_many([("clicks", {"n": 1}), (tenure.Topic("news"), 2)], ids=["a", "b"])
        await client.broadcast(Counter, Click(1))
        total: int = await client.ask("clicks", {"n": 1})
        state: Counter = await client.state("clicks")
        await client.unschedule("clicks", missing_ok=True)
        assert_type(await client.retry("clicks", skip=True), bool)
        description = await client.describe("clicks")
        assert_type(description["status"], str)
        assert_type(description["failure"], tenure.FailureView | None)
        assert_type(await client.jobs(), list[tenure.JobSummary])
        assert_type(await client.jobs("state=failed"), list[tenure.JobSummary])
        assert_type(await client.do_to_all("retry", "state=failed"), list[str])
        await client.do_to_all("remove", "id=*")  # type: ignore[arg-type]
        assert_type(await client.verify_snapshot("/snapshots"), tenure.Verified)
        assert_type(await client.export_snapshot("/snapshots", "jobs.jsonl"), int)
        assert_type(await client.nodes(), list[tenure.NodeInfo])
        assert_type(await client.partitions(), list[tenure.PartitionStatus])
        assert_type(await client.topics(), dict[str, int])
        scale = await client.scale()
        assert_type(scale, tenure.ScaleStatus)
        assert_type(scale["nodes"], list[tenure.NodeStatus])
        assert_type(await client.add_nodes(2, spawn="tenure node app.py"), list[str])
        assert_type(await client.remove_node("node-2"), str)
        assert_type(await client.scale_to(3, run=["scale", "{nodes}"]), list[str])
        assert_type(await client.shutdown(timers="fire"), list[str])
        assert_type(await client.shutdown(snapshot="/snapshots"), tenure.Shutdown)
        letters = await client.dead_letters()
        assert_type(letters, list[tenure.DeadLetter])
        assert_type(await client.replay(letters), int)
        assert_type(await client.discard(letter for letter in letters if letter["reason"] == "UnknownJob"), int)
        await client.publish(17, {})  # type: ignore[arg-type]
        await client.schedule(Counter)  # type: ignore[call-arg]
        await client.schedule(17, id="x")  # type: ignore[arg-type]
        client.nonesuch()  # type: ignore[attr-defined]
        del total, state
    try:
        await client.publish("clicks", 1)
    except tenure.Backlogged as backlogged:
        await client.publish_many(backlogged.unstored)


def use_without_await() -> None:
    with tenure.SyncClient() as client:
        assert_type(client, tenure.SyncClient)
        client.schedule(Counter, id="clicks", total=10)
        assert_type(client.jobs(), list[tenure.JobSummary])
        assert_type(client.retry("clicks"), bool)


async def test() -> None:
    async with tenure.testing.Cluster(nodes=2, members=2, grid="hazelcast", app="app.py") as cluster:
        assert_type(await cluster.add_node(), int)
        assert_type(await cluster.now(), datetime)
        async with cluster.client() as client:
            assert_type(client, tenure.Client)
    tenure.testing.Cluster(grid="redis")  # type: ignore[arg-type]


def test_without_await(sync_cluster: tenure.testing.SyncCluster) -> None:
    assert_type(sync_cluster.add_node(), int)
    with sync_cluster.client() as client:
        assert_type(client, tenure.SyncClient)
    assert_type(sync_cluster.async_client(), tenure.Client)
