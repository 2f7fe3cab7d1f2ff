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


class Choosy(tenure.Job):
    """Can't be made without."""

    email: str
    street: str
    n: int = 0


class Other(tenure.Job):
    """Of another application."""


@pytest.fixture
def schedule(shell: Shell) -> Shell:
    shell.app = Registry(JobType("starter", Starter), JobType("choosy", Choosy))
    return shell


def test_what_its_first_turn_fails_of_is_said(schedule: Shell) -> None:
    schedule("schedule", "starter", "a", "how=fails", code=1)
    assert "Job a is scheduled, but does not start: ValueError: on purpose" in schedule.err
    assert "`tenure unschedule a` removes it" in schedule.err


def test_parameters_that_do_not_fit_are_said(schedule: Shell) -> None:
    for wrong, what in {
        "what=x": "job type 'starter' has no field what; it has how",
        "how=1": "parameters of job type 'starter': Expected `str`, got `int` - at `$.how`",
    }.items():
        schedule("schedule", "starter", "a", wrong, code=2)
        assert what in schedule.err
    schedule("schedule", "choosy", "a", "n=1", code=2)
    assert "parameters of job type 'choosy': missing email, street (no default)" in schedule.err


def test_what_does_not_fit_is_not_made(schedule: Shell) -> None:
    found: list[object] = []

    async def after(client: tenure.Client) -> None:
        found.append(await client.jobs())

    schedule.after = after
    schedule("schedule", "choosy", "a", "n=1", code=2)
    schedule("schedule", "starter", "a", "what=x", code=2)
    assert found == [[], []]


def test_what_only_some_nodes_know_is_awaited_there(schedule: Shell) -> None:
    """Its partition may be at a node of another application, and moves."""
    schedule.others = [Registry(JobType("other", Other))]
    for id in ("a", "b", "c", "d", "e"):
        schedule("schedule", "starter", id)
        assert f"Job {id} is scheduled." in schedule.err


@pytest.mark.parametrize("how", ["finishes", "takes long", "just starts"])
def test_what_starts_is_scheduled(schedule: Shell, how: str) -> None:
    assert schedule("schedule", "starter", "a", f"how={how}", "--json") == [{"scheduled": "a"}]
