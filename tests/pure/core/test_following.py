"""Who waits for a closing record finds it, also when the owner has cleared the slots in between."""

import itertools
from random import Random

import trio

from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.journal import Journal
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import Record, RecordKind


def journal(grid: Grid, name: str, formation: str) -> Journal:
    serials = itertools.count(1)
    return Journal(
        grid,
        0,
        formation=formation,
        settings=NodeSettings(),
        new_id=lambda: f"{name}.{next(serials)}",
        random=Random(1),
        report=lambda text: None,
    )


async def test_a_follower_is_not_left_behind_in_a_slot_that_was_cleared(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster(partitions=1, members=1, backups=0)
    formed = await find_or_form(cluster.connect(), "f")
    owner, follower = (
        journal(cluster.connect(), "a", formed.formation),
        journal(cluster.connect(), "b", formed.formation),
    )
    await owner.read()
    await owner.open("a", lambda: 0)
    await owner.commit(Record(owner.new_id(), "", RecordKind.TURNS, 1, "a", 0))
    await follower.read()
    await follower.follow()
    assert follower.slot == owner.slot
    for _ in range(3):
        await owner.commit(Record(owner.new_id(), "", RecordKind.TURNS, 1, "a", 0))
    await Imaging(owner).write()
    await trio.sleep(1)  # for the slots to be gone
    await owner.commit(Record(owner.new_id(), "", RecordKind.CLOSING, 1, "a", 0, "b"))
    await follower.follow()
    assert follower.state.closed_for is None, "the slots that lead there are gone"
    await follower.keep_up()
    await follower.follow()
    assert follower.state.closed_for == "b"
    await follower.open("b", lambda: 0)
    assert (follower.state.epoch, follower.closed_before) == (2, True)


async def test_keeping_up_begins_anew_only_where_the_head_has_moved(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster(partitions=1, members=1, backups=0)
    formed = await find_or_form(cluster.connect(), "f")
    owner, follower = (
        journal(cluster.connect(), "a", formed.formation),
        journal(cluster.connect(), "b", formed.formation),
    )
    await owner.read()
    await owner.open("a", lambda: 0)
    await follower.read()
    await follower.follow()
    state = follower.state
    await follower.keep_up()
    assert follower.state is state
