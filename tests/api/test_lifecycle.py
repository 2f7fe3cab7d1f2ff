"""The lifecycle controller: instructions become commands, one after another; how they ended is kept and told."""

import sys
from pathlib import Path
from typing import Any

import cyclopts
import pytest
import trio

import tenure
from tenure.cli.app import build_app
from tenure.jobs import lifecycle_command
from tenure.jobs.lifecycle import Load, ScaleDown, ScaleUp, Shutdown, Snapshot, Undeploy, Upgrade, arguments_of
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.testing import Cluster


@pytest.mark.parametrize(
    ("instruction", "arguments"),
    [
        (Snapshot(url="s3://x"), ["snapshot", "s3://x"]),
        (Snapshot(url="s3://x", options=["--keep", "3"]), ["snapshot", "s3://x", "--keep", "3"]),
        (Load(url="/srv/x"), ["restore", "/srv/x"]),
        (Load(url="/srv/x", name="n", replace=True), ["restore", "/srv/x", "--name", "n", "--replace"]),
        (ScaleUp(nodes=2, spawn="tenure node a.py"), ["scale", "--to", "5", "--spawn", "tenure node a.py"]),
        (ScaleDown(), ["scale", "--to", "2"]),
        (Upgrade(spawn="x"), ["upgrade", "--spawn", "x", "--at-once", "1"]),
        (Undeploy(application="shop", timers="fire"), ["undeploy", "shop", "--timers", "fire"]),
        (Shutdown(), ["shutdown", "--timers", "keep"]),
    ],
)
def test_each_instruction_is_a_command(instruction: Any, arguments: list[str]) -> None:
    assert arguments_of(instruction, nodes=3) == arguments
    found, bound, _ = build_app().parse_args(arguments)  # raises what the command does not take
    assert found.__module__.startswith("tenure.cli.")
    assert bound.signature.parameters.keys() >= bound.arguments.keys()


@pytest.mark.parametrize(
    "instruction", [Snapshot(url="s3://x", options=["--verify"]), Load(url="x", options=["--keep"])]
)
def test_options_that_a_command_does_not_have_are_found(instruction: Any) -> None:
    with pytest.raises(cyclopts.CycloptsError):
        build_app().parse_args(arguments_of(instruction, nodes=3))


@pytest.mark.parametrize("instruction", [ScaleDown(nodes=3), ScaleDown(nodes=0), Undeploy(application="tenure")])
def test_what_can_not_be_is_refused(instruction: Any) -> None:
    with pytest.raises(tenure.Mistake):
        arguments_of(instruction, nodes=3)


class Listener(tenure.Job):
    """Hears how instructions ended."""

    heard: list[str] = []

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        self.heard.append(f"{message['do']} {message['status']}")


TYPES = Registry(*registry, JobType("lifecycle-listener", Listener))


@pytest.mark.tenure(nodes=2, app=TYPES)
async def test_instructions_are_carried_out_one_after_another_whoever_owns_them(cluster: Cluster) -> None:
    async with cluster.client(registry=TYPES) as client:
        await client.schedule("tenure.lifecycle", id="lifecycle")
        await client.schedule("lifecycle-listener", id="listener")
        first = await client.ask("lifecycle", {"do": "snapshot", "url": "s3://x", "tell": "listener"})
        second = await client.ask("lifecycle", {"do": "load", "url": "s3://x", "tell": "listener"})
        assert (first, second) == ({"started": "run-1"}, {"queued": 1})
        run = await cluster.launched()
        assert (run.kind, run.work) == ("tenure", {"arguments": ["snapshot", "s3://x"]})
        await cluster.kill(int((await client.describe("lifecycle"))["node"].removeprefix("node-")))
        await trio.sleep(5)
        await run.succeed()
        run = await cluster.launched()
        assert run.work == {"arguments": ["restore", "s3://x"]}
        await run.fail("RestoreRefused: there are jobs")
        await trio.sleep(10)
        state = await client.state("lifecycle")
        assert [(done.do, done.status) for done in state.done] == [("snapshot", "succeeded"), ("load", "failed")]
        assert state.done[1].error == "RestoreRefused: there are jobs"  # once: it is not tried again
        assert (state.doing, state.tell, state.current) == ([], [], "")
        assert (await client.state("listener")).heard == ["snapshot succeeded", "load failed"]


@pytest.mark.tenure(nodes=2, app=TYPES)
async def test_so_many_more_or_fewer_is_counted_when_it_is_begun(cluster: Cluster) -> None:
    async with cluster.client(registry=TYPES) as client:
        await client.schedule("tenure.lifecycle", id="lifecycle")
        await client.schedule("lifecycle-listener", id="listener")
        for instruction in ({"do": "scale_up", "spawn": "true"}, {"do": "scale_up", "spawn": "true"}):
            await client.ask("lifecycle", instruction)
        for fewer in (4, 1):
            became = await client.ask("lifecycle", {"do": "scale_down", "nodes": fewer, "tell": "listener"})
            assert "queued" in became  # by then it may be possible
        assert "positive" in (await client.ask("lifecycle", {"do": "scale_down", "nodes": 0}))["refused"]
        for nodes in (3, 4):
            run = await cluster.launched()
            assert run.work == {"arguments": ["scale", "--to", str(nodes), "--spawn", "true"]}
            await cluster.add_node()
            await run.succeed()
        run = await cluster.launched()
        assert run.work == {"arguments": ["scale", "--to", "3"]}
        await run.die()  # it was lost, and may have had an effect: the same once more
        await cluster.drain(0)
        run = await cluster.launched()
        assert (run.attempt, run.work) == (2, {"arguments": ["scale", "--to", "3"]})
        await run.succeed()
        await trio.sleep(3)
        state = await client.state("lifecycle")
        assert [(done.do, done.status) for done in state.done] == [
            ("scale_down", "refused"),
            ("scale_up", "succeeded"),
            ("scale_up", "succeeded"),
            ("scale_down", "refused"),
            ("scale_down", "succeeded"),
        ]
        assert "4 can't leave" in state.done[3].error
        assert (state.doing, state.tell, state.queued, state.current) == ([], [], [], "")
        assert (await client.state("listener")).heard == ["scale_down refused", "scale_down succeeded"]


@pytest.mark.tenure(nodes=1, app=TYPES)
async def test_what_is_under_way_can_be_given_up_and_what_waits_is_forgotten(cluster: Cluster) -> None:
    async with cluster.client(registry=TYPES) as client:
        await client.schedule("tenure.lifecycle", id="lifecycle")
        for nodes in (1, 2):
            await client.ask("lifecycle", {"do": "scale_up", "nodes": nodes, "spawn": "true"})
        run = await cluster.launched()
        assert run.work == {"arguments": ["scale", "--to", "2", "--spawn", "true"]}
        assert await client.ask("lifecycle", {"do": "give_up"}) == {"cancelled": True}
        await run.told_to_end()
        await trio.sleep(3)
        state = await client.state("lifecycle")
        assert [(done.do, done.status) for done in state.done] == [("scale_up", "cancelled")]
        assert (state.doing, state.queued, state.current) == ([], [], "")
        with pytest.raises(tenure.WrongType, match="do"):
            await client.publish("lifecycle", {"do": "dance"})
        refused = await client.ask("lifecycle", {"do": "scale_down"})
        assert "one must stay" in refused["refused"]
        assert (await client.state("lifecycle")).done[-1].status == "refused"


SAYS_NO = "import sys; sys.exit('no node is well')"


@pytest.mark.parametrize(
    ("code", "is_again"), [(SAYS_NO, False), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", True)]
)
async def test_what_a_command_says_at_its_end_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_again: bool
) -> None:
    """Only one that was killed is run again: an upgrade that has stopped would start one bad node after another."""
    module = tmp_path / "tenure_cli"
    module.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'runs')!r}).open('a').write('x'); {code}")
    monkeypatch.setattr(lifecycle_command, "PROGRAM", [sys.executable, str(module)])
    async with Cluster(nodes=1, partitions=4, activities="real", app=TYPES) as cluster:
        async with cluster.client(registry=TYPES) as client:
            await client.schedule("tenure.lifecycle", id="lifecycle", first_delay_s=0.05)
            await client.ask("lifecycle", {"do": "upgrade", "spawn": "true"})
            with trio.fail_after(20):
                while not (done := (await client.state("lifecycle")).done):  # noqa: ASYNC110  # a process sets no event
                    await trio.sleep(0.02)
    assert (tmp_path / "runs").read_text() == ("xx" if is_again else "x")
    assert (done[0].status, "no node is well" in done[0].error) == ("failed", not is_again)
