"""What comes while a partition is being opened is not left to the next sweep."""

import trio

from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import GridError, Map, Refused
from tenure.scheduler.heard import Heard


async def test_the_sweep_beside_an_opening_finds_what_is_there_however_often_it_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    grid = MemoryCluster(partitions=1, members=1, backups=0).connect()
    for n in range(5):
        await grid.set(Map.INBOX, 0, b"slot %d" % n, b"value %d" % n)
    refusals = [Refused("not now"), Refused("nor now")]
    real = grid.scan

    def scan(*args: object, **options: object) -> object:
        if refusals:
            return refusing(refusals.pop())
        return real(*args, **options)  # type: ignore[arg-type]

    async def refusing(error: GridError) -> object:  # type: ignore[misc]
        raise error
        yield

    grid.scan = scan  # type: ignore[method-assign, assignment]
    pauses: list[int] = []

    async def pause(attempt: int) -> None:
        pauses.append(attempt)
        await trio.sleep(0.1)

    heard = Heard()
    await heard.sweep(grid, 0, pause)
    assert heard.slots == {b"slot %d" % n: b"value %d" % n for n in range(5)}
    assert pauses == [1, 2]
