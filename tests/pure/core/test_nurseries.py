"""Handlers with nurseries of their own, which raise several things at once: a turn fails, or is cancelled, and all else
goes on."""

from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType, Retry
from tests.pure.core.bench import Bench, Kill9, Opened, rest


async def _untidy() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("it was closed already")


async def _exit() -> None:
    raise SystemExit(2)


async def _kill9() -> None:
    raise Kill9


TASKS: dict[str, list[Any]] = {
    "untidy": [_untidy, trio.sleep_forever],
    "exits": [_exit, trio.sleep_forever],
    "exits untidily": [_exit, _untidy],
    "killed untidily": [_kill9, _untidy],
    "tidy": [],
}


class Branching(Job):
    """Does things side by side."""

    done: list[str] = []

    async def on_message(self, ctx: Context, message: str) -> None:
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as inner:
                for task in TASKS[message]:
                    inner.start_soon(task)
            nursery.start_soon(trio.lowlevel.checkpoint)
        self.done.append(message)


BRANCHING = JobType("branching", Branching, retry=Retry(attempts_max=1))
LIMITED = JobType("branching", Branching, retry=Retry(attempts_max=1), timeout_s=2.0)


async def begun(bench: Bench, message: str, type: JobType = BRANCHING) -> Opened:
    opened = await bench.open(type, drain_deadline_s=2.0)
    await bench.define("a", "branching")
    await bench.publish("a", message)
    await rest(1)
    return opened


async def described(bench: Bench) -> Any:
    return msgspec.msgpack.decode((await bench.command("describe", "a")).body)


def reported(bench: Bench) -> list[str]:
    return [report for report in bench.reports if "OSError: it was closed already" in report]


async def test_a_turn_that_is_cancelled_may_raise_besides(bench: Bench) -> None:
    await begun(bench, "untidy")
    await bench.define("a", "branching", revision=2, wanted="paused")
    await rest(1)
    assert (await bench.command("cancel", "a")).ok
    await rest(1)
    found = await described(bench)
    assert (found["status"], found["running"], found["failure"], found["waiting"]) == ("paused", False, None, 1)
    assert len(reported(bench)) == 1


async def test_one_that_the_drain_deadline_ends_is_left_to_the_next_owner(bench: Bench) -> None:
    first = await begun(bench, "untidy")
    await first.close()
    assert first.state.closed_for == ""
    assert [envelope.attempts for envelope in first.state.mail["a"]] == [0]
    assert len(reported(bench)) == 1


async def test_one_of_a_tenure_that_is_over_does_not_hide_that(bench: Bench) -> None:
    first = await begun(bench, "untidy")
    await bench.open(BRANCHING)
    with trio.fail_after(300):
        await first.ended.wait()
    assert first.over
    assert len(reported(bench)) == 1


@pytest.mark.parametrize("message", ["exits", "exits untidily"])
async def test_an_exit_in_a_task_fails_the_turn(bench: Bench, message: str) -> None:
    await begun(bench, message)
    found = await described(bench)
    assert (found["status"], found["first_waiting"]["message"]) == ("failed", message)
    assert "SystemExit: 2" in found["failure"]["traceback"]
    assert (await bench.command("retry", "a", skip=True)).ok
    await bench.publish("a", "tidy")
    await rest(1)  # a question does not wait for turns
    assert (await bench.state_of("a"))["done"] == ["tidy"]


async def test_a_turn_that_takes_too_long_may_raise_besides(bench: Bench) -> None:
    await begun(bench, "untidy", LIMITED)
    await rest(5)
    found = await described(bench)
    assert (found["status"], found["running"]) == ("failed", False)
    assert "OSError: it was closed already" in found["failure"]["traceback"]


async def test_what_ends_the_process_is_no_failed_turn(bench: Bench) -> None:
    first = await begun(bench, "killed untidily")
    assert first.ended.is_set()
    assert not first.over
    record = first.state.jobs.get("a")  # if that was committed before
    assert record is None or record.failure is None
