"""The lifecycle controller that the notes on scaling and shutdown asked for (see docs/heritage.md): a component that
instructs the cluster to snapshot, load, scale up, scale down and shut down.

Its instructions are commands, which are processes. Here they are carried out by the test, in virtual time, by the
calls that these commands are.
"""

from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import Lifecycle
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.testing import Cluster
from tenure.testing.cluster import LaunchedRun

IDS = [f"key-{n}" for n in range(20)]
PLACE = "memory:heritage-lifecycle"


class State(tenure.Job):
    """What must be there, whole, wherever it is moved. It knows nothing of snapshots, scaling and shutdown."""

    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> None:
        self.total += message


TYPES = Registry(*registry, JobType("heritage-state", State))


async def totals(client: tenure.Client) -> set[int]:
    return {(await client.state(id)).total for id in IDS}


async def launched(cluster: Cluster, client: tenure.Client, **instruction: Any) -> LaunchedRun:
    """The command that the controller makes of it."""
    assert "refused" not in await client.ask("lifecycle", instruction)
    return await cluster.launched()


async def done(client: tenure.Client) -> list[tuple[str, str]]:
    return [(done.do, done.status) for done in (await client.state("lifecycle")).done]


@pytest.mark.tenure(nodes=1, members=2, app=TYPES)
async def test_snapshot_load_scale_up_scale_down_shutdown(cluster: Cluster, autojump_clock: Any) -> None:
    async with cluster.client(registry=TYPES) as client:
        await client.schedule(Lifecycle, id="lifecycle")
        await client.schedule_many([("heritage-state", id, {}) for id in IDS])
        await client.publish_many([(id, 1) for id in IDS])

        run = await launched(cluster, client, do="scale_up", spawn="tenure node app.py")
        assert run.work["arguments"] == ["scale", "--to", "2", "--spawn", "tenure node app.py"]
        await cluster.add_node()
        await run.succeed()
        await client.publish_many([(id, 1) for id in IDS])

        run = await launched(cluster, client, do="scale_down")
        assert run.work["arguments"] == ["scale", "--to", "1"]
        await client.scale_to(1)  # all state of the one that goes is acquired by the one that stays
        await run.succeed()
        assert await cluster.nodes() == [0]
        assert await totals(client) == {2}

        run = await launched(cluster, client, do="snapshot", url=PLACE)
        assert run.work["arguments"] == ["snapshot", PLACE]
        taken = await client.snapshot(PLACE)
        await run.succeed()
        await client.publish_many([(id, 5) for id in IDS])
        assert await totals(client) == {7}
        assert await done(client) == [("scale_up", "succeeded"), ("scale_down", "succeeded"), ("snapshot", "succeeded")]

        run = await launched(cluster, client, do="load", url=PLACE, name=taken["name"], replace=True)
        assert run.work["arguments"] == ["restore", PLACE, "--name", taken["name"], "--replace"]
        await client.restore(PLACE, name=taken["name"], replace=True)
        assert await totals(client) == {2}
        # The controller is loaded too: as it was in the middle of that snapshot, which it now has taken again.
        assert await done(client) == [("scale_up", "succeeded"), ("scale_down", "succeeded")]
        run = await cluster.launched()
        assert run.work["arguments"] == ["snapshot", PLACE]
        await run.succeed()

        run = await launched(cluster, client, do="shutdown")
        assert run.work["arguments"] == ["shutdown", "--timers", "keep"]
        assert len(await client.shutdown()) == 1
        assert await cluster.nodes() == []
        await cluster.add_node()  # members keep all jobs
        await run.succeed()
        await trio.sleep(1)
        assert (await done(client))[-1] == ("shutdown", "succeeded")
        assert await totals(client) == {2}
