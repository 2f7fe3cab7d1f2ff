"""Parameters that a client could not check, since it knows only the name of the type, are checked by the owner."""

from typing import Any, ClassVar

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


class Moody(Job):
    """Its own check says no at every other look: when its state is read it passes."""

    looks: ClassVar[list[int]] = []
    level: int = 0

    def __post_init__(self) -> None:
        self.looks.append(self.level)
        if len(self.looks) % 2 == 0:
            raise RuntimeError("not in the mood")


async def test_a_job_whose_own_checks_fail_oddly_does_not_start_and_the_others_do(bench: Bench) -> None:
    Moody.looks.clear()
    opened = await bench.open(JobType("stock", Stock), JobType("moody", Moody))
    await bench.define("odd", "moody", level=1)
    await bench.define("right", "stock", level=3)
    await rest(5)
    assert not opened.ended.is_set()
    record = opened.state.jobs["odd"]
    assert (record.status, record.turns) == (Status.FAILED, 0)
    assert record.failure is not None
    assert record.failure.error == "WrongType: its parameters: RuntimeError: not in the mood"
    assert opened.state.jobs["right"].turns == 1
