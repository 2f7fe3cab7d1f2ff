"""Places of threads: who is given up before a thread has begun has none, and leaves its place."""

import trio

from tenure.scheduler.threads import Threads


async def test_a_call_that_is_given_up_before_its_thread_begins_keeps_no_place() -> None:
    told: list[str] = []
    threads, ran = Threads(1, told.append), list[int]()
    for _ in range(4):
        with trio.fail_after(5), trio.CancelScope() as scope:
            await threads.run(lambda: ran.append(1), "a turn", scope.cancel)
    assert (ran, told, threads.lost, threads.borrowed_tokens) == ([], [], {}, 0)
