"""A snapshot is restored into its own cluster while clients publish and a node is frozen. This file is the application,
too."""

from pathlib import Path

import pytest
import trio

import tenure
from tenure.testing import Cluster

pytestmark = pytest.mark.cluster

IDS = [f"keeper-{n}" for n in range(20)]


@tenure.job("keeper")
class Keeper(tenure.Job):
    """Counts what comes, by its name."""

    seen: dict[str, int] = {}

    def on_message(self, ctx: tenure.Context, message: str) -> int:
        self.seen[message] = self.seen.get(message, 0) + 1
        return ctx.fence


class Publisher:
    """Publishes until it is stopped; knows what became of each, and when."""

    def __init__(self, client: tenure.Client) -> None:
        self.client, self.stop, self.ended = client, trio.Event(), trio.Event()
        self.begun_s: dict[str, float] = {}
        self.stored_s: dict[str, float] = {}

    async def run(self) -> None:
        while not self.stop.is_set():
            name = f"m-{len(self.begun_s)}"
            self.begun_s[name] = trio.current_time()
            try:
                await self.client.publish_many([(id, name) for id in IDS], timeout_s=3)
                self.stored_s[name] = trio.current_time()
            except tenure.Backlogged:
                pass  # it may be there, or not
            await trio.sleep(0.02)
        self.ended.set()


async def test_a_living_cluster_goes_back_to_its_snapshot_and_on_from_there(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    async with (
        Cluster(nodes=2, members=2, grid="hazelcast", app=__file__) as cluster,
        cluster.client() as client,
        trio.open_nursery() as nursery,
    ):
        await client.schedule_many([(Keeper, id, {}) for id in IDS])
        publisher = Publisher(client)
        nursery.start_soon(publisher.run)
        await trio.sleep(2)
        asked_s = trio.current_time()
        await client.snapshot(place)
        await trio.sleep(2)
        fences = [await client.ask(id, "a question before") for id in IDS]
        await cluster.pause(1)  # it wakes in a cluster that has gone back
        await client.restore(place, replace=True)
        restored_s = trio.current_time()
        await cluster.unpause(1)
        await trio.sleep(6)
        assert all(
            after > before
            for before, after in zip(fences, [await client.ask(id, "a question after") for id in IDS], strict=True)
        )
        publisher.stop.set()
        await publisher.ended.wait()
        states = [await client.state(id) for id in IDS]
        nursery.cancel_scope.cancel()
    stored = publisher.stored_s
    before = {name for name, at_s in stored.items() if at_s < asked_s}
    after = {name for name, begun_s in publisher.begun_s.items() if begun_s > restored_s and name in stored}
    assert len(before) > 20
    assert len(after) > 20, "its clients go on, without being opened anew"
    for state in states:
        assert set(state.seen.values()) == {1}, "nothing twice"
        assert not before - state.seen.keys(), "what was stored before the snapshot is in it"
        assert not after - state.seen.keys(), "what was stored afterwards is there"
        assert "a question before" not in state.seen
        assert not state.seen.keys() - publisher.begun_s.keys() - {"a question after"}
