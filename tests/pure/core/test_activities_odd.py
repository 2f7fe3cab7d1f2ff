"""What programs may say of their work that nobody could store: it costs them that line, or their result, and nobody
else anything."""

import math
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest

from tenure.scheduler.activities_bounds import TOLD_BYTES_MAX, sound
from tenure.scheduler.activities_port import Outcome, Run, Untold
from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.wire import encode
from tests.pure.core.activities_bench import JOB, Machines, committed
from tests.pure.core.bench import Bench, rest


@pytest.fixture
def machines(bench: Bench) -> Machines:
    return Machines(bench)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD = {"too deep": nested(900), "as deep as can be read": nested(980), "too large a number": 10**30}


@pytest.mark.parametrize("odd", ODD)
async def test_a_result_that_can_not_be_stored_fails_its_activity_once_and_by_name(
    machines: Machines, odd: str
) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.tell(result=ODD[odd])
    run.succeed(ODD[odd])
    await rest(5)
    [event] = await machines.heard()
    assert (event["status"], event["attempt"]) == ("failed", 1)
    assert event["error"].startswith("WrongType: its result")
    assert machines.one.launches == 1
    await first.kill()
    opened = await machines.open()
    assert [activity.outcome for activity in committed(opened)] == ["failed"]
    assert not opened.state.dead


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("what", ["metrics", "info", "stage"])
async def test_what_can_not_be_stored_of_its_progress_is_passed_over(machines: Machines, what: str, odd: str) -> None:
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.tell(metrics={"rows": 1})
    run.tell(**{what: {"odd": ODD[odd]}})
    run.tell(progress=[1, 10**30])
    run.tell(progress=[-5, 10])
    run.tell(progress=[True, 10])
    await rest(2)
    [shown] = await machines.described()
    assert (shown["details"].pop("metrics"), shown["progress"]) == ({"rows": 1}, None)
    assert "what it shows of itself" in shown["details"].pop("left_out")
    assert not shown["details"]
    assert await run.note("odd", ODD[odd]) == "too_large"
    run.succeed(7)
    await rest(2)
    assert [event["result"] for event in await machines.heard()] == [7]


@pytest.mark.parametrize("odd", ODD)
async def test_what_an_older_wrapper_has_left_ends_it_too(machines: Machines, odd: str) -> None:
    """It wrote down what nobody can store; or its folder was written by something else."""
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.outcome = Outcome(status="succeeded", result=ODD[odd])
    run.untold = Untold(progress=(1, 10**30), details={"metrics": ODD[odd]}, notes={"odd": ODD[odd]})
    run.die()
    await rest(5)
    assert not machines.bench.reports
    [event] = await machines.heard()
    assert (event["status"], event["attempt"]) == ("failed", 1)
    await first.kill()
    opened = await machines.open()
    assert [activity.outcome for activity in committed(opened)] == ["failed"]


async def test_all_that_the_activities_of_one_job_have_told_is_bounded_together(machines: Machines) -> None:
    opened = await machines.begin()
    runs = []
    for n in range(40):
        await machines.ask(start=f"load{n}")
        run = await machines.one.launched()
        run.tell(metrics={"x": "x" * 60_000})
        runs.append(run)
    await rest(5)
    verdicts = [await run.note("x", "x" * 60_000) for run in runs]
    assert set(verdicts) <= {"go", "too_large"}
    assert verdicts.count("too_large") >= 20
    kept = sum(len(activity.details) + len(activity.notes) for activity in committed(opened))
    assert kept <= TOLD_BYTES_MAX + 40 * 200
    for run in runs:
        run.succeed(1)
    await rest(5)
    assert [event["status"] for event in await machines.heard()] == ["succeeded"] * 40


class Counter(Job):
    """Starts many, and keeps little."""

    ended: int = 0

    def on_message(self, ctx: Context, message: int) -> None:
        for n in range(message):
            ctx.start_activity(f"load{n}", {}, orphan_after_s=1000)

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        self.ended += 1


async def test_many_results_that_a_takeover_finds_go_over_several_records(machines: Machines, sizes: list[int]) -> None:
    type = JobType("counter", Counter)
    first = await machines.open(machines.one, type)
    await machines.bench.define(JOB, "counter")
    await machines.bench.ask(JOB, 20)
    runs = [await machines.one.launched() for _ in range(20)]
    await machines.bench.command("pause", JOB)
    await first.kill()
    for run in runs:
        run.cut_off = True
        run.succeed("x" * 900_000)
    await rest(1)
    await machines.open(machines.one, type)
    await rest(10)
    await machines.bench.command("resume", JOB)
    assert (await machines.bench.state_of(JOB))["ended"] == 20
    assert max(sizes) < 8 * 2**20


async def test_the_end_is_told_also_where_its_last_note_is_too_large(machines: Machines) -> None:
    """An owner on another machine sees nothing of its folder: it would be taken for lost, and done again."""
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.kill()
    await machines.open(machines.two)
    await rest(1)
    run.cut_off = True
    for n in range(3):
        run.tell(note={f"n{n}": "x" * 30_000}, ask=n)
    run.succeed(7)
    await rest(1)
    run.cut_off = False
    await rest(5)
    assert [event["result"] for event in await machines.heard()] == [7]
    assert machines.two.launches == 0


# -- an attempt by itself -------------------------------------------------------------------------


async def test_what_it_gathers_while_nobody_answers_is_bounded(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.cut_off = True
    for n in range(200):
        run.tell(metrics={f"m{n}": "x" * 10_000})
        run.tell(note={f"n{n}": "x" * 10_000}, ask=n + 1)
        run.tell(confirm=True, ask=n + 1000)
    attempt = run._attempt
    assert len(encode(attempt._details)) < 100_000
    assert len(encode([note for _, note in attempt._notes])) < 100_000
    refused = [said["answer"] for said in run.said if said.get("verdict") == "too_large"]
    assert len(refused) > 100
    run.cut_off = False
    await rest(30)
    answered = {said["answer"] for said in run.said if "answer" in said}
    assert answered == {*range(1, 201), *range(1000, 1200)}


def test_results_that_can_be_stored_stay_as_they_are() -> None:
    for result in (None, 1, "x", {"a": [1, 2.5, None]}, nested(150), 2**64 - 1, -(2**63)):
        outcome = Outcome(status="succeeded", result=result)
        assert sound(outcome) is outcome
    for status in ("failed", "cancelled"):
        assert sound(Outcome(status=status, result=10**30)).status == status
    assert sound(Outcome(status="failed", error="\ud800", traceback="\ud800")).error == "\\ud800"


# -- anything at all ------------------------------------------------------------------------------


def anything(random: Random, depth: int = 0) -> Any:
    """What a program may say."""
    scalars = (0, -1, 2**63, 2**64, 10**30, float("nan"), float("inf"), None, True, "", "\ud800", "x" * 70_000)
    chosen = random.randrange(6)
    if chosen == 0 and depth < 4:
        return {"a": anything(random, depth + 1), "b": 1}
    if chosen == 1 and depth < 4:
        return [anything(random, depth + 1) for _ in range(random.randrange(4))]
    if chosen == 2:
        return nested(random.choice((150, 199, 201, 400, 950)))
    return random.choice(scalars) if chosen < 5 else [1, 2]


WORDS = ("progress", "metrics", "info", "stage", "result", "error", "traceback", "final", "note", "confirm", "ask")


@pytest.mark.parametrize("seed", range(15))
async def test_whatever_a_program_says_its_activity_ends_and_nothing_else_does(machines: Machines, seed: int) -> None:
    random = Random(seed)
    first = await machines.begin()
    await machines.ask(start="load", tells_progress=True, attempts_max=2)
    run = await machines.one.launched()
    for _ in range(random.randrange(1, 40)):
        run.tell(**{word: anything(random) for word in random.sample(WORDS, random.randrange(1, 4))})
        run.cut_off = random.random() < 0.2
        await rest(random.random())
    run.cut_off = False
    if random.random() < 0.7:
        run.succeed(anything(random))
    else:
        run.die()
    await rest(30)
    await first.kill()
    opened = await machines.open()
    await rest(20)
    for other in machines.one.runs.values():
        other.succeed(1)
    await rest(60)
    [activity] = committed(opened)
    assert activity.has_ended
    assert not machines.bench.reports
    assert not opened.state.dead


class Text(str):
    """No text to an encoder."""


class Number(float):
    """As of numpy."""


ASKED: dict[str, dict[str, Any]] = {
    "a flag that is a number": {"tells_progress": 1},
    "a deadline that is a flag": {"timeout_s": True},
    "a deadline that is a decimal": {"heartbeat_s": Decimal(5)},
    "a deadline that is a fraction": {"timeout_s": Fraction(50, 3)},
    "a deadline that is no number": {"stall_after_s": math.nan},
    "a kind that is no text": {"kind": "\ud800"},
    "a kind of megabytes": {"kind": "x" * 9_000_000},
    "a text of its own kind": {"kind": Text("process")},
    "work with too large a number": {"work": {"n": 10**30}},
    "work with what is no text": {"work": ["\ud800"]},
    "work that is too deep": {"work": nested(400)},
}
TAKEN: dict[str, dict[str, Any]] = {
    "a deadline without an end": {"orphan_after_s": math.inf, "timeout_s": math.inf},
    "a deadline of ages": {"timeout_s": 10**20},
    "a number of its own kind": {"timeout_s": Number(3600)},
    "a pause of ages": {"retry": Retry(delay_max_s=10**30)},
}


class Asker(Job):
    """Asks for an activity."""

    def on_message(self, ctx: Context, message: str) -> dict[str, str]:
        if message in ASKED | TAKEN:
            options = {"work": {}} | (ASKED | TAKEN)[message]
            ctx.start_activity("load", options.pop("work"), **options)
        return ctx.activities


@pytest.mark.parametrize("what", [*ASKED, *TAKEN])
async def test_what_a_turn_asks_for_is_refused_there_or_can_be_stored_and_read(machines: Machines, what: str) -> None:
    asker = JobType("asker", Asker)
    await machines.open(machines.one, asker)
    await machines.bench.define(JOB, "asker")
    answer = await machines.bench.ask(JOB, what)
    assert answer.ok == (what in TAKEN)
    await rest(5)
    second = await machines.open(machines.two, asker)  # reads what is stored
    assert len(committed(second)) == (what in TAKEN)
    assert (await machines.bench.ask(JOB, "still there?")).ok
    for run in machines.one.runs.values():
        assert msgspec.json.decode(msgspec.json.encode(run.run), type=Run) == run.run  # as its file says
