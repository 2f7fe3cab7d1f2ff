"""`tenure unschedule` and `tenure purge`, for one job and for many."""

import pytest

import tenure
from tenure.scheduler.jobtype import JobType, Registry
from tests.api.shell import Shell


class Kept(tenure.Job):
    """Takes anything."""

    def on_message(self, ctx: tenure.Context, message: object) -> None:
        """Nothing."""


@pytest.fixture
def kids(shell: Shell) -> Shell:
    """Three paused jobs, each with two messages waiting, and another one."""
    shell.app = Registry(JobType("kept", Kept))

    async def before(client: tenure.Client) -> None:
        await client.schedule_many([("kept", f"kid-{n}", {}) for n in range(3)])
        await client.schedule("kept", id="other")
        await client.do_to_all("pause", "id=kid-*")
        await client.publish_many([(f"kid-{n % 3}", n) for n in range(6)])

    shell.before = before
    left: list[str] = []

    async def after(client: tenure.Client) -> None:
        left.extend(job["id"] for job in await client.jobs())

    shell.after, shell.left = after, left  # type: ignore[attr-defined]
    return shell


def test_one_job_is_removed_by_its_id(kids: Shell) -> None:
    kids("unschedule", "kid-1")
    assert kids.err.endswith("Job kid-1 is removed.\n")
    assert kids.left == ["kid-0", "kid-2", "other"]  # type: ignore[attr-defined]


def test_one_job_is_removed_now(kids: Shell) -> None:
    kids("unschedule", "kid-1", "--now")
    assert kids.err == "Job kid-1 is removed. 2 messages dropped.\n"


def test_many_jobs_are_removed_by_a_selector(kids: Shell) -> None:
    kids("unschedule", "id=kid-*", "--now")
    assert kids.err == "3 jobs removed, 6 messages dropped.\n"
    assert kids.left == ["other"]  # type: ignore[attr-defined]


def test_a_dry_run_removes_nothing(kids: Shell) -> None:
    kids("unschedule", "id=kid-*", "--dry-run")
    assert (kids.out, kids.err) == ("kid-0\nkid-1\nkid-2\n", "3 jobs would be removed.\n")
    assert len(kids.left) == 4  # type: ignore[attr-defined]


def test_backlogs_are_dropped_and_counted(kids: Shell) -> None:
    assert kids("purge", "id=kid-0", "or", "id=kid-1", "--json") == [
        {"id": "kid-0", "done": True, "error": "", "dropped": 2},
        {"id": "kid-1", "done": True, "error": "", "dropped": 2},
    ]
    assert len(kids.left) == 4  # type: ignore[attr-defined]


def test_no_job_of_that_id_is_said(kids: Shell) -> None:
    kids("unschedule", "kid-9", code=1)
    assert "kid-9" in kids.err


def test_nothing_is_removed_where_nothing_is_named(kids: Shell) -> None:
    kids("unschedule", code=2)
    assert "Say which jobs" in kids.err


def test_retry_says_why_it_does_nothing(kids: Shell) -> None:
    kids("retry", "kid-1")
    assert kids.err == "0 jobs tried again.\nkid-1 has not failed: it is paused\n"
