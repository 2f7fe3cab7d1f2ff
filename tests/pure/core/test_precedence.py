"""What is being opened goes first; what is served steps aside, a few in each pass of trio's loop."""

from itertools import pairwise

import trio

from tenure.scheduler.precedence import SERVED_IN_A_PASS, Precedence


async def step(precedence: Precedence, passed: list[int], n: int) -> None:
    await precedence.let_pass()
    passed.append(n)


async def test_who_steps_aside_goes_on_a_few_at_a_time_as_they_came(autojump_clock: object) -> None:
    precedence, passed = Precedence(), list[int]()
    precedence.goes_first(7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(precedence.run)
        for n in range(3 * SERVED_IN_A_PASS):
            nursery.start_soon(step, precedence, passed, n)
        seen = [0]
        while seen[-1] < 3 * SERVED_IN_A_PASS:
            await trio.lowlevel.checkpoint()
            seen.append(len(passed))
        assert max(after - before for before, after in pairwise(seen)) <= 2 * SERVED_IN_A_PASS
        assert len(set(seen)) > 2, "not all at once"
        assert len(passed) == 3 * SERVED_IN_A_PASS
        nursery.cancel_scope.cancel()


async def test_when_nothing_opens_any_more_all_go_on(autojump_clock: object) -> None:
    precedence, passed = Precedence(), list[int]()
    precedence.goes_first(7)
    async with trio.open_nursery() as nursery:
        for n in range(10 * SERVED_IN_A_PASS):
            nursery.start_soon(step, precedence, passed, n)
        await trio.testing.wait_all_tasks_blocked()
        assert passed == [], "each has stepped aside"
        precedence.served(7)
        precedence.served(7)  # it may be said twice
        nursery.start_soon(precedence.run)
        passes = 0
        while len(passed) < 10 * SERVED_IN_A_PASS:
            await trio.lowlevel.checkpoint()
            passes += 1
        assert passes < 5
        await trio.testing.wait_all_tasks_blocked()
        # And those who come later do, too.
        precedence.goes_first(8)
        nursery.start_soon(step, precedence, passed, -1)
        await trio.testing.wait_all_tasks_blocked()
        assert passed[-1] == -1
        nursery.cancel_scope.cancel()


async def test_who_gives_up_waiting_holds_up_nobody(autojump_clock: object) -> None:
    precedence = Precedence()
    precedence.goes_first(7)
    with trio.move_on_after(1.0):
        await precedence.let_pass()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(precedence.run)
        await precedence.let_pass()
        nursery.cancel_scope.cancel()
