"""Activities on a grid that loses acknowledgements and events, while nodes are killed: every report counts once."""

import pytest
import trio

import tenure
from tenure.scheduler.grid.memory import MEASURED_TROUBLE, Fault, Faults
from tenure.testing import Cluster

REPORTS = 15


@tenure.job("api-listener")
class Listener(tenure.Job):
    """Keeps every word of its activity."""

    heard: list[int] = []
    ends: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.start_activity("work", None, tells_progress=True, retry=tenure.Retry(attempts_max=100))

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        if event.has_ended:
            self.ends.append(event.status)
        elif event.progress is not None:
            self.heard.append(event.progress[0])


@pytest.mark.parametrize("seed", range(4))
async def test_each_report_counts_once_and_in_order(in_virtual_time: None, seed: int) -> None:
    faults = Faults(MEASURED_TROUBLE)
    async with Cluster(nodes=2, members=3, partitions=4, seed=seed, faults=faults) as cluster:
        async with cluster.client() as client:
            await client.schedule(Listener, id="a", timeout_s=300)
            run = await cluster.launched()
            for n in range(REPORTS):
                await run.report(progress=[n, REPORTS])
                await trio.sleep(1.5)
                if n in (4, 9):
                    await cluster.kill((await cluster.nodes())[0])
                    await cluster.add_node()
            faults.end()
            await run.succeed()
            with trio.fail_after(300):
                while not (state := await client.state("a", timeout_s=100)).ends:  # noqa: ASYNC110  # no event tells
                    await trio.sleep(1)
            assert state.ends == ["succeeded"]
            # What was not sent yet may be replaced by what came later; what was sent is heard once.
            assert state.heard == sorted(set(state.heard))
            assert len(state.heard) > REPORTS / 3
            assert (await client.describe("a"))["activities"][0]["progress"] == [REPORTS - 1, REPORTS]
            assert faults.counts[Fault.APPLIED_UNKNOWN] > 10
