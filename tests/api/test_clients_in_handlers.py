"""A handler that opens a client is in the cluster that runs it, never in one of its own."""

import pytest

import tenure
from tenure.testing import Cluster


@tenure.job("nested-child")
class Child(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.total += message
        return self.total


@tenure.job("nested-parent")
class Parent(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: str) -> int:
        async with tenure.Client() as client:
            await client.schedule(Child, id=message)
            return int(await client.ask(message, 1))


@tenure.job("nested-blocking", blocking=True, retry=tenure.Retry(attempts_max=1))
class Blocking(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: str) -> None:
        with tenure.SyncClient():
            raise AssertionError("it was let in")


REGISTRY = tenure.Registry(*(tenure.registry[name] for name in ("nested-child", "nested-parent", "nested-blocking")))


@pytest.mark.usefixtures("in_virtual_time")
async def test_a_client_in_a_handler_is_in_the_handlers_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CLUSTER", "elsewhere@127.0.0.1:1")  # a test is alone with its cluster
    async with Cluster(nodes=2, app=REGISTRY) as cluster, cluster.client() as client:
        await client.schedule(Parent, id="parent")
        assert await client.ask("parent", "kid") == 1
        assert await client.ask("parent", "kid") == 2
        assert (await client.state("kid")).total == 2


async def test_one_that_blocks_can_not_reach_a_testing_cluster_in_memory() -> None:
    async with Cluster(nodes=1, app=REGISTRY) as cluster, cluster.client() as client:
        await client.schedule(Blocking, id="job")
        with pytest.raises(tenure.JobFailed, match=r"testing cluster.*async handler.*grid=.hazelcast"):
            await client.ask("job", "kid")
