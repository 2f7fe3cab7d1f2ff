"""`tenure schedule` says whether the job starts."""

import pytest
import trio

import tenure
from tenure.scheduler.jobtype import JobType, Registry
from tests.api.shell import Shell


class Starter(tenure.Job):
    """Does on its start what its field says."""

    how: str = "just starts"

    async def on_start(self, ctx: tenure.Context) -> None:
        if self.how == "fails":
            raise ValueError("on purpose")
        if self.how == "finishes":
            ctx.finish()
        if self.how == "takes long":
            await trio.sleep(60)


@pytest.fixture
def schedule(shell: Shell) -> Shell:
    shell.app = Registry(JobType("starter", Starter))
    return shell


def test_what_its_first_turn_fails_of_is_said(schedule: Shell) -> None:
    schedule("schedule", "starter", "a", "how=fails", code=1)
    assert "Job a is scheduled, but does not start: ValueError: on purpose" in schedule.err
    assert "`tenure unschedule a` removes it" in schedule.err


def test_parameters_that_do_not_fit_are_said(schedule: Shell) -> None:
    for wrong in ("what=x", "how=1"):
        schedule("schedule", "starter", "a", wrong, code=1)
        assert "does not start" in schedule.err


@pytest.mark.parametrize("how", ["finishes", "takes long", "just starts"])
def test_what_starts_is_scheduled(schedule: Shell, how: str) -> None:
    assert schedule("schedule", "starter", "a", f"how={how}", "--json") == [{"scheduled": "a"}]
