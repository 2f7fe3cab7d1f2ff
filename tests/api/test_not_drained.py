"""A node that can't hand over in time ends all the same, and says so."""

import pytest
import trio
from trio.testing import MockClock

import tenure
from tenure.cli.ends import Exit, explain
from tenure.nodes.errors import NotDrained
from tenure.nodes.process import NodeOptions, _drain
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.memory_cluster import open_memory
from tests.api.jobs import Script, step


async def _for_ever(job: Script, ctx: tenure.Context) -> None:
    await trio.sleep_forever()


FOR_EVER = step(_for_ever)


def test_the_deadline_for_handing_over(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(
        nodes=1,
        members=1,
        grid="memory",
        app=None,
        partitions=4,
        backups=0,
        settings=NodeSettings(drain_deadline_s=600),
        seed=0,
        start=None,
        faults=None,
    )

    async def run() -> float:
        async with open_memory(plan) as backend, backend.open_client(None, None) as client:
            await client.defining.schedule("api-script", "long", {})
            await client.publish("long", FOR_EVER)
            while not (await client.directory.describe("long"))["running"]:  # noqa: ASYNC110
                await trio.sleep(0.1)
            running = backend._nodes[0]
            began_s = trio.current_time()
            with pytest.raises(NotDrained, match="1 partitions were not handed over within 20 s") as raised:
                await _drain(running.node, running.ended, NodeOptions(drain_deadline_s=20))
            assert explain(raised.value, as_json=False) == Exit.FAILED
            assert "--drain-deadline" in capsys.readouterr().err
            return trio.current_time() - began_s

    assert trio.run(run, clock=MockClock(autojump_threshold=0)) == pytest.approx(20)
