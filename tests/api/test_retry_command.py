"""`tenure retry` of jobs that are stuck; `tenure dead-letters list`; how `tenure nodes` names them."""

from typing import Any

import pytest

import tenure
from tenure.cli.ends import Exit
from tenure.scheduler.jobtype import JobType, Registry
from tests.api.jobs import Counter
from tests.api.shell import Shell

STUCK = ("stranger-1", "stranger-2")


@pytest.fixture
def stuck(shell: Shell) -> Shell:
    """Jobs whose type no node knows, beside one that is well."""

    async def before(client: tenure.Client) -> None:
        core: Any = client._home._value
        await client.schedule(Counter, id="well")
        async with tenure.Client(grid=core.grid, registry=Registry(JobType("stranger", Counter))) as other:
            for id in STUCK:
                await other.schedule("stranger", id=id)

    shell.before = before
    return shell


def test_a_stuck_job_is_not_tried_again_and_it_is_said_why(stuck: Shell) -> None:
    stuck("retry", "stranger-1", code=Exit.FAILED)
    assert "job 'stranger-1' has not failed, it is stuck: UnknownJobType: node node-0 does not know" in stuck.err
    assert "See `tenure describe` for the reason." in stuck.err
    stuck("retry", "stranger-1", "--dry-run", code=Exit.FAILED)
    stuck("retry", "type=stranger", "--skip", code=Exit.FAILED)
    assert "(and 1 more that are stuck)" in stuck.err


def test_a_job_that_is_well_is_left_alone(stuck: Shell) -> None:
    stuck("retry", "well")
    assert "0 jobs tried again.\nwell has not failed: it is running\n" in stuck.err


def test_dead_letters_are_listed_by_either_name(shell: Shell) -> None:
    async def before(client: tenure.Client) -> None:
        await client.publish("nobody", {"n": 1})

    shell.before = before
    for words in (("dead-letters",), ("dead-letters", "list")):
        (letter,) = shell(*words, "--json")
        assert (letter["to"], letter["reason"]) == ("nobody", "UnknownJob")
        assert shell(*words, "--to", "x*", "--json") == []


def test_nodes_are_listed_under_the_word_that_selectors_have_for_them(shell: Shell) -> None:
    (node,) = shell("nodes", "--json")
    assert node["node"] == node["id"]
