"""Parameters that a client could not check, since it knows only the name of the type, are checked by the owner."""

from typing import Any

import pytest

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.wire import Status
from tests.pure.core.bench import Bench, rest


class Stock(Job):
    level: int = 0
    started: bool = False

    def on_start(self, ctx: Context) -> None:
        self.started = True


class Renamed(Stock):
    @staticmethod
    def upgrade(state: dict[str, Any], version: int) -> dict[str, Any]:
        return {"level": state["amount"]}


async def test_a_job_with_a_parameter_that_its_type_has_not_does_not_start_and_says_why(bench: Bench) -> None:
    opened = await bench.open(JobType("stock", Stock))
    await bench.define("typo", "stock", levle=3)
    await bench.define("right", "stock", level=3)
    await rest(5)
    record = opened.state.jobs["typo"]
    assert record.status == Status.FAILED
    assert record.failure is not None
    assert record.failure.error == "WrongType: job type 'stock' has no field levle; it has level, started"
    assert record.turns == 0
    assert opened.state.jobs["right"].status == Status.RUNNING
    assert any("'typo' does not start" in text for text in bench.reports)
    await opened.close()
    again = await bench.open(JobType("stock", Stock))
    assert again.state.jobs["typo"].status == Status.FAILED


async def test_parameters_of_an_older_version_are_for_its_upgrade(bench: Bench) -> None:
    opened = await bench.open(JobType("stock", Renamed, version=2))
    await bench.define("old", "stock", amount=3)
    await rest(5)
    assert opened.state.jobs["old"].status == Status.RUNNING


@pytest.mark.parametrize("value", ["three", None, [3]])
async def test_a_value_of_a_wrong_type_is_kept_and_named(bench: Bench, value: Any) -> None:
    opened = await bench.open(JobType("stock", Stock))
    await bench.define("wrong", "stock", level=value)
    await rest(5)
    assert opened.tenure.lives.of("wrong").stuck.startswith("Undecodable")
