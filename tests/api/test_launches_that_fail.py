"""A launcher that does anything at all: one activity waits, says why, and nothing else is touched."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tenure.testing.fake_runs import FakeRuns


@tenure.job("api-launched")
class Launched(tenure.Job):
    heard: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.start_activity("load", None, retry=tenure.Retry(attempts_max=1))

    def on_activity(self, ctx: tenure.Context, event: tenure.ActivityEvent) -> None:
        self.heard.append(event.error)


@pytest.mark.parametrize("failure", [SystemExit("it ends itself"), SyntaxError("not Python")])
async def test_the_node_goes_on_and_the_cause_is_told(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    async def launch(self: FakeRuns, run: Any) -> None:
        raise failure

    launch_well = FakeRuns.launch
    monkeypatch.setattr(FakeRuns, "launch", launch)
    nodes = await cluster.nodes()
    await client.schedule(Launched, id="a")
    await trio.sleep(90)
    assert await cluster.nodes() == nodes
    told = f"{type(failure).__name__}: {failure}"
    (error,) = (await client.state("a")).heard
    assert error.startswith("NotLaunched: it did not begin within 60 s: its launcher fails: ")
    assert error.endswith(told)
    monkeypatch.setattr(FakeRuns, "launch", launch_well)
    await client.schedule(Launched, id="b")
    assert (await cluster.launched()).job == "b"
